"""Sealed JSON: records that end with a checksum of their own content."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

SEAL = "sha256"
"""Key of the checksum."""


def sealed(record: Mapping[str, Any]) -> bytes:
    """Return a record as the bytes of a JSON file that ends with a checksum of the record."""
    content = json.loads(json.dumps(record))  # as it will be read: every key a string
    return (json.dumps({**content, SEAL: digest_of(content)}, indent=2, ensure_ascii=False) + "\n").encode()


def is_intact(record: Mapping[str, Any]) -> bool:
    """Return whether a record read from JSON has the content that was sealed."""
    return record.get(SEAL) == digest_of(record)


def digest_of(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a record's values alone, independent of order and layout, without its seal."""
    content = {key: value for key, value in record.items() if key != SEAL}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
