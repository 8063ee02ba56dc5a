"""Damaged populations: they give the same as before, or are refused."""
