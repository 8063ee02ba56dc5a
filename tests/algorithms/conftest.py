"""Fixtures of all tests of algorithms."""

from tests.kit.federation import federation, settle

__all__ = ["federation", "settle"]
