"""Rounds: the synchronous one, redistribution, arrivals, and the phases of an algorithm."""
