"""The cache folder of this package and of raysim, for fetched, downloaded and decoded files."""

import os
from pathlib import Path


def cache() -> Path:
    """Return the cache folder: RAYSIM_CACHE, or `raysim` in XDG_CACHE_HOME, or in ~/.cache."""
    if own := os.environ.get("RAYSIM_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raysim"
