"""Normalisers of single papers in place of batch norm: Fixup, batch renormalisation, standardised weights."""
