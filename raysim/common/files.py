"""Files that survive a crash of the machine, and hashes of text. `partitioning.store.files.sha256` hashes a file."""

import hashlib
import os
from pathlib import Path


def sync(*paths: Path) -> None:
    """Wait until files, or the entries of folders, are on disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def text_sha256(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()
