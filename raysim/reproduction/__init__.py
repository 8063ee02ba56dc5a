"""Reproductions: a paper's table or figure as a study, and what its claims come to here."""
