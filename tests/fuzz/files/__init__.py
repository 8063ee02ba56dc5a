"""Hostile data files: they are read or refused, in bounded time and memory."""
