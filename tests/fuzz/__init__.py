"""Fuzzers: faults at drawn moments, and input that nobody should write; see README.md."""
