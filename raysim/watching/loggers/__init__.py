"""Loggers: TensorBoard, MLflow, Weights & Biases, and the user's own."""
