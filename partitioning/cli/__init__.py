"""Command line: `partitioning make | inspect | plot | verify`."""
