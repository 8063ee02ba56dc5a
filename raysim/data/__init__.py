"""Data sets by name as tables, a population's batches as tensors, and encoded images decoded once."""
