"""Reproductions: a paper's table or figure as a study, with verdicts on the paper's claims."""
