"""The matrix: every algorithm and option, each run in several ways, to the same bytes."""
