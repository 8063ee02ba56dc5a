"""System calls that write files, struck one at a time."""
