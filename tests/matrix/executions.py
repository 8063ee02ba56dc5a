"""Ways to run a configuration, and the digests of what it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from safetensors.numpy import load_file

import raysim
from algorithms.names import ALGORITHMS
from raysim.common.errors import StoppedError
from raysim.simulation.api import read_experiment, resume_experiment, run_experiment
from raysim.simulation.options import RunOptions
from raysim.simulation.stop import Stop
from raysim.store.location import RunLocation
from raysim.watching.progress import Watcher

EXECUTIONS = ("inline", "stopped", "one actor", "two actors")
"""Ways to run: in this process, stopped there after two rounds and resumed, and on client actors."""

STOPPED_AFTER = 2


class Stopper(Watcher):
    """Watcher that asks a run to stop after a round."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def round(self, round_number: int, metrics: dict[str, float]) -> None:
        self._stop.asked |= round_number >= STOPPED_AFTER


def run(config: Mapping[str, Any], folder: Path, fleet: raysim.Actors | None = None) -> dict[str, str]:
    """Run a configuration without its report, in this process or on a fleet; return its digests."""
    run_experiment(read_experiment(config), RunLocation(folder, str(folder)), RunOptions(inline=not fleet, fleet=fleet))
    return digests(folder)


def run_stopped(config: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Run a configuration in this process, stop it between two rounds, and resume it; return its digests."""
    location, stop = RunLocation(folder, str(folder)), Stop()
    options = RunOptions(inline=True, watcher=Stopper(stop), stop=stop)
    try:
        run_experiment(read_experiment(config), location, options)
    except StoppedError:
        resume_experiment(location, RunOptions(inline=True))
    else:
        raise AssertionError("the run was to stop, and ended")
    return digests(folder)


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the model, the personal state, the rounds and the client updates of a run."""
    (algorithm,) = (path for path in folder.iterdir() if path.name in ALGORITHMS)
    found = {}
    for name in ("model", "personal"):
        path = algorithm / f"{name}.safetensors"
        if path.exists():
            found[name] = _sha256(sorted((key, each.tobytes()) for key, each in load_file(path).items()))
    for name in ("metrics", "updates"):
        table = pq.read_table(algorithm / f"{name}.parquet")
        timeless = [column for column in table.column_names if not column.startswith(("seconds", "machine_"))]
        # Compared as text, for an undefined number is equal to no other.
        found[name] = _sha256(sorted(table.select(timeless).to_pydict().items()))
    return found


def _sha256(value: object) -> str:
    return sha256(repr(value).encode()).hexdigest()
