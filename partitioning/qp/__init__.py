"""Quadratic programmes of RADFed, section IV-A: solving, randomising and rounding."""
