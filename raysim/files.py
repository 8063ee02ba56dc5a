"""Files that are on disk as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partitioning.disk import written


@contextmanager
def complete(path: Path) -> Iterator[Path]:
    """A path to write to, which becomes `path` when it is complete; DiskFullError and nothing left where it is not."""
    aside = path.with_name(f".{path.name}.partial")
    try:
        with written(path):
            yield aside
            # Some libraries write files that only their owner may read.
            aside.chmod(0o644)
            aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def sync(*paths: Path) -> None:
    """Wait until files, or what folders list, would survive the machine."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
