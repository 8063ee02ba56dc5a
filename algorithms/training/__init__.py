"""Training of client updates: the arithmetic of a local step, and the executions that run it."""
