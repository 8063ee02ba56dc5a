"""Files that are to survive the machine."""

import os
from pathlib import Path


def sync(*paths: Path) -> None:
    """Wait until files, or what folders list, would survive the machine."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
