"""A user's module in a folder of its own, which Python forgets afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def own_module(folder: Path, name: str, code: str) -> Iterator[Path]:
    """Write a module and yield its folder; tests of one process must give their modules different names."""
    (folder / f"{name}.py").write_text(code)
    try:
        yield folder
    finally:
        sys.modules.pop(name, None)
