"""Populations on disk: written, read, verified and fetched."""
