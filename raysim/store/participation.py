"""Each client's part in a run, from the rows of an algorithm's rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

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


def participation(updates: pa.Table, metrics: pa.Table, clients: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return each client's sums over the rounds of an algorithm, [K] each.

    All client updates of a round have an equal share of its bytes, and all those of a block one of its seconds.

    Args:
        updates: rows of `updates.parquet`.
        metrics: rows of `metrics.parquet`.
        clients: ids in ascending order, int64 [K].

    Returns:
        `updates`, client updates that counted, and their `samples`; if they may come late, or never, also `late`,
        `vanished` and `samples_wasted`; `bytes_up`, `bytes_down` and `machine_seconds`.
    """
    ids, timed = updates["client"].to_numpy(), "outcome" in updates.column_names
    own = np.isin(ids, clients)  # `centralized` has rows of no client
    places, samples = np.searchsorted(clients, ids[own]), updates["samples"].to_numpy()[own]
    outcomes = updates["outcome"].to_numpy()[own] if timed else np.full(len(places), "counted")
    rounds = np.searchsorted(metrics["round"].to_numpy(), updates["round"].to_numpy())
    of_round = np.bincount(rounds)[rounds]

    def summed(values: NDArray[Any]) -> NDArray[Any]:
        sums = np.zeros(len(clients), values.dtype)
        np.add.at(sums, places, values)
        return sums

    counts = {name: summed((outcomes == outcome).astype(np.int64)) for outcome, name in OUTCOMES.items()}
    counts["samples"] = summed(samples * (outcomes == "counted"))
    counts["samples_wasted"] = summed(samples * (outcomes != "counted"))
    shares = {name: summed((metrics[name].to_numpy()[rounds] / of_round)[own]) for name in BYTES}
    shares["machine_seconds"] = summed(_seconds(updates)[own])
    return {**{name: counts[name] for name in (counts if timed else ("updates", "samples"))}, **shares}


def _seconds(updates: pa.Table) -> NDArray[np.float64]:
    """Return the share of each client update in its block's seconds; 0 for one that was not computed."""
    blocks = updates["block"].fill_null(-1).to_numpy()
    # Blocks of asynchronous training have numbers of the whole run.
    rounds = np.where(updates["staleness"].is_valid().to_numpy(), 0, updates["round"].to_numpy())
    numbers = rounds * (blocks.max(initial=0) + 2) + blocks
    _, places, sizes = np.unique(numbers, return_inverse=True, return_counts=True)
    shares: NDArray[np.float64] = updates["machine_block_seconds"].fill_null(0.0).to_numpy() / sizes[places]
    return shares
