"""Faults put in by drawn seeds, and what a run makes of them; see README.md."""
