"""Runs as jobs of a Ray cluster: sent there, followed from here, and fetched back."""
