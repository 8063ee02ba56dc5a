"""Each client's part in a run, from the journals of an algorithm's rounds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raysim.store.journal import batches

OUTCOMES = {"counted": "updates", "late": "late", "vanished": "vanished"}
"""Names of a client's sums, by the outcome of a client update that they count."""

BYTES = ("bytes_up", "bytes_down")
"""Columns of bytes in `metrics.parquet`, and names of a client's share of them."""


CLIENT_FACTS = ("client", "name", "domain", "site", "device", "split", "samples", "test_samples")
"""Columns about a client that a run does not change; a population without names, domains or sites lacks these."""

ACCOUNTS = (*OUTCOMES.values(), "samples_wasted", *BYTES, "machine_seconds")
"""Columns of a client's sums over a run."""

SCORES = ("test_", "train_")
"""Beginnings of the columns of a client's metrics."""

TAKEN = {*CLIENT_FACTS, *ACCOUNTS, "cluster", "algorithm"}
"""Columns of `clients.parquet`, and that of a frame's algorithm, beside the metrics."""


def participation(folder: Path, clients: NDArray[np.int64], timed: bool) -> dict[str, NDArray[Any]]:
    """Return each client's sums over the rounds of an algorithm, [K] each.

    All client updates of a round have an equal share of its bytes, and all those of a block one of its seconds.

    Args:
        folder: folder of the algorithm, whose journals are complete.
        clients: ids in ascending order, int64 [K].
        timed: whether client updates may come late, or never.

    Returns:
        `updates`, client updates that counted, and their `samples`; if they are timed also `late`, `vanished` and
        `samples_wasted`; `bytes_up`, `bytes_down` and `machine_seconds`.
    """
    counts = {name: np.zeros(len(clients), np.int64) for name in (*OUTCOMES.values(), "samples", "samples_wasted")}
    shares = {name: np.zeros(len(clients)) for name in (*BYTES, "machine_seconds")}
    sizes = _block_sizes(folder)
    for rows, moved in zip(_rounds(folder), _bytes(folder), strict=True):
        ids, samples = rows.column("client").to_numpy(), rows.column("samples").to_numpy()
        own = np.isin(ids, clients)  # `centralized` has rows of no client
        places = np.searchsorted(clients, ids[own])
        outcomes = rows.column("outcome").to_numpy(zero_copy_only=False) if timed else np.full(len(ids), "counted")
        for outcome, name in OUTCOMES.items():
            mine = outcomes[own] == outcome
            np.add.at(counts[name], places[mine], 1)
            np.add.at(counts["samples" if name == "updates" else "samples_wasted"], places[mine], samples[own][mine])
        for name, total in zip(BYTES, moved, strict=True):
            np.add.at(shares[name], places, total / len(ids))
        np.add.at(shares["machine_seconds"], places, _seconds(rows, sizes)[own])
    names = counts if timed else ("updates", "samples")
    return {**{name: counts[name] for name in names}, **shares}


def _rounds(folder: Path) -> Iterator[pa.Table]:
    """Yield the client updates of each round that has some."""
    each = groupby(_updates(folder), lambda batch: batch.column("round")[0].as_py())
    return (pa.Table.from_batches(list(parts)) for _, parts in each)


def _updates(folder: Path) -> Iterator[pa.RecordBatch]:
    return (batch for batch in batches(folder / "updates.journal") if batch.num_rows)


def _bytes(folder: Path) -> Iterator[tuple[int, int]]:
    """Yield the bytes of each round that has client updates."""
    for batch in batches(folder / "metrics.journal"):
        for row in batch.to_pylist():
            if row["updates"] + (row["late"] or 0) + (row["vanished"] or 0):
                yield row["bytes_up"], row["bytes_down"]


def _block_sizes(folder: Path) -> NDArray[np.int64] | None:
    """Return the client updates of each block of an asynchronous run, whose numbers are those of the whole run."""
    sizes = np.zeros(0, np.int64)
    for batch in _updates(folder):
        if batch.column("staleness").null_count == batch.num_rows:
            return None
        found = np.bincount(batch.column("block").drop_null().to_numpy(), minlength=len(sizes))
        found[: len(sizes)] += sizes
        sizes = found
    return sizes


def _seconds(rows: pa.Table, sizes: NDArray[np.int64] | None) -> NDArray[np.float64]:
    """Return the share of each client update in its block's seconds; 0 for one that was not computed."""
    blocks = rows.column("block").fill_null(-1).to_numpy()
    seconds = rows.column("machine_block_seconds").fill_null(0.0).to_numpy()
    shares: NDArray[np.float64] = seconds / np.maximum(
        1, np.bincount(blocks + 1)[blocks + 1] if sizes is None else sizes[blocks]
    )
    return shares
