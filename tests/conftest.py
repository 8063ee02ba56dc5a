"""Settings of all tests."""

import raysim  # noqa: F401  before any test imports ray: it switches off Ray's hook for `uv run`
