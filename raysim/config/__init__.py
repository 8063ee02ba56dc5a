"""The experiment file: read, changed by `--set`, checked, resolved, and composed into an algorithm."""
