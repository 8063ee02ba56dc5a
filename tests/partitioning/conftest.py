"""Fixtures of all tests of the partitioner."""

import pyarrow as pa
import pytest

from tests.kit.tables import rich_table


@pytest.fixture
def table() -> pa.Table:
    return rich_table()


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read sources in batches of about 2,000 bytes."""
    for module in ("parquet", "arrays", "images", "source"):
        monkeypatch.setattr(f"partitioning.sources.{module}.BATCH_BYTES", 2000)
