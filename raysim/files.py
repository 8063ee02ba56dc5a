"""Files that are on disk as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def complete(path: Path) -> Iterator[Path]:
    """A path to write to, which becomes `path` when it is complete."""
    aside = path.with_name(f".{path.name}.partial")
    yield aside
    # Some libraries write files that only their owner may read.
    aside.chmod(0o644)
    aside.replace(path)


def sync(*paths: Path) -> None:
    """Wait until files, or what folders list, would survive the machine."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
