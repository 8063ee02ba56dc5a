"""Training of client updates: the chain of a local step, and the executions that run it."""
