"""Each client's part in a run, from the journals of an algorithm's rounds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from algorithms.core.clients import among
from raysim.store.journal import batches

OUTCOMES = {"counted": "updates", "late": "late", "vanished": "vanished"}
"""Names of a client's sums, by the outcome of a client update that they count."""

BYTES = ("bytes_up", "bytes_down")
"""Columns of bytes in `metrics.parquet`, and names of a client's share of them."""


def participation(
    folder: Path, clients: NDArray[np.int64], timed: bool, arriving: Collection[int] = ()
) -> dict[str, NDArray[Any]]:
    """Return each client's sums over the rounds of an algorithm, [K] each.

    All client updates of a round have an equal share of its bytes, and all those of a block one of its seconds.

    Args:
        folder: folder of the algorithm, whose journals are complete.
        clients: ids in ascending order, int64 [K].
        timed: whether client updates may come late, or never.
        arriving: numbers of the asynchronous phases: a block's updates may arrive in several rounds of these.

    Returns:
        `updates`, client updates that counted, and their `samples`; if they are timed also `late`, `vanished` and
        `samples_wasted`; `bytes_up`, `bytes_down` and `machine_seconds`.
    """
    counts = {name: np.zeros(len(clients), np.int64) for name in (*OUTCOMES.values(), "samples", "samples_wasted")}
    shares = {name: np.zeros(len(clients)) for name in (*BYTES, "machine_seconds")}
    sizes = _block_sizes(folder, arriving)
    for row, rows in _rounds(folder):
        ids, samples = rows.column("client").to_numpy(), rows.column("samples").to_numpy()
        own = among(ids, clients)  # `centralized` has rows of no client
        places = np.searchsorted(clients, ids[own])
        outcomes = rows.column("outcome").to_numpy(zero_copy_only=False) if timed else np.full(len(ids), "counted")
        for outcome, name in OUTCOMES.items():
            mine = outcomes[own] == outcome
            np.add.at(counts[name], places[mine], 1)
            np.add.at(counts["samples" if name == "updates" else "samples_wasted"], places[mine], samples[own][mine])
        for name in BYTES:
            np.add.at(shares[name], places, row[name] / len(ids))
        blocks = _blocks(rows)
        seconds = rows.column("machine_block_seconds").fill_null(0.0).to_numpy()
        of_block = sizes.get(row["phase"], np.bincount(blocks))
        np.add.at(shares["machine_seconds"], places, (seconds / of_block[blocks])[own])
    names = counts if timed else ("updates", "samples")
    return {**{name: counts[name] for name in names}, **shares}


def _rounds(folder: Path) -> Iterator[tuple[Mapping[str, Any], pa.Table]]:
    """Yield the metrics and the client updates of each round that has some updates."""
    updates = (batch for batch in batches(folder / "updates.journal") if batch.num_rows)
    each = groupby(updates, lambda batch: batch.column("round")[0].as_py())
    rows = (row for batch in batches(folder / "metrics.journal") for row in batch.to_pylist())
    some = (row for row in rows if row["updates"] + (row["late"] or 0) + (row["vanished"] or 0))
    return ((row, pa.Table.from_batches(list(parts))) for row, (_, parts) in zip(some, each, strict=True))


def _blocks(rows: pa.Table) -> NDArray[np.int64]:
    """Return 1 + the number of each client update's block, [n]; 0 for an update that was not computed."""
    numbers: NDArray[np.int64] = rows.column("block").fill_null(-1).to_numpy() + 1
    return numbers


def _block_sizes(folder: Path, arriving: Collection[int]) -> Mapping[int, NDArray[np.int64]]:
    """Return the client updates of each block of the asynchronous phases, which number theirs through all rounds."""
    sizes: dict[int, NDArray[np.int64]] = {}
    for row, rows in _rounds(folder) if arriving else ():
        if (phase := row["phase"]) in arriving:
            before = sizes.get(phase, np.zeros(0, np.int64))
            sizes[phase] = np.bincount(_blocks(rows), minlength=len(before))
            sizes[phase][: len(before)] += before
    return sizes
