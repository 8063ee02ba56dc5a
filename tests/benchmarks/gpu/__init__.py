"""Measurements that need a GPU, in one command: see `__main__`."""
