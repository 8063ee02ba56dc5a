"""Mutants of the packages, and the tests that catch them; see README.md."""
