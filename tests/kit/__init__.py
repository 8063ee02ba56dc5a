"""Helpers that several test modules share; nothing else lies here, and no test module imports another."""
