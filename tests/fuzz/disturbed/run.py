"""The experiment that is disturbed, and a run of it in a process of its own."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import tomli_w

from algorithms.names import ALGORITHMS
from partitioning.cli.exit_status import run_command
from raysim.cli.commands import cli
from raysim.store.journal import batches

ROUNDS = 40
LONG = 300
"""Seconds after which a run counts as hung; Ray notices a lost node after some fifteen."""

LARGE = {"name": "mlp", "hidden": [420], "norm": "batch"}
"""So large that Ray leaves models on the nodes that made them: below 100 KB the driver holds them."""

OWN: dict[str, dict[str, Any]] = {
    "fedprox": {"proximal": 0.1},
    **{name: {"aggregate_every": 3} for name in ("radfed", "radfedm", "radfeda")},
    "radfedp": {"aggregate_every": 3, "proximal": 0.5},
    "centralized": {"fraction": 1.0},
}
"""What an algorithm is given besides its name."""

PHONES = {"devices": {"compute": 40.0, "spread": 1.0, "latency": 1.0}}
CHAIN = {"chain": [{"name": "top-k", "share": 0.1}]}

OPTIONS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "uplink with feedback": ("fedavg", {"uplink": {**CHAIN, "feedback": True}}, {}),
    "downlink with feedback": ("fedavg", {"downlink": CHAIN}, {}),
    "adaptive privacy": (
        "fedavg",
        {"sampling": "poisson", "weighting": "equal"},
        {"privacy": {"noise": 1.0, "clip": 0.1, "delta": 1e-3, "accountant": "rdp", "adaptive": {"count_noise": 2.0}}},
    ),
    "geometric median": ("fedavg", {"server": {"aggregate": "geometric-median"}}, {}),
    "Krum under attack": (
        "fedavg",
        {"server": {"aggregate": "krum", "byzantine": 1}},
        {"attack": {"share": 0.2, "kind": "sign-flip"}},
    ),
    "late updates": ("fedavg", {"deadline": 20.0, "late": "stale"}, PHONES),
    "Oort": ("fedavg", {"sampling": "oort"}, PHONES),
    "FedBuff": ("fedbuff", {}, PHONES),
    "power of choice": ("fedavg", {"fraction": None, "cohort": 3, "candidates": 6}, {}),
    "second models": ("ditto", {}, {}),
}
"""Algorithm, its keys and further tables of a run with an option, without batch norm, which several of them refuse."""

BRITTLE = '''
import os
from pathlib import Path

from torch import nn


class Brittle(nn.Module):
    """A small network with batch norm, whose output is no number while a certain file is there."""

    def __init__(self, shape, classes):
        super().__init__()
        inputs = 1
        for size in shape:
            inputs *= size
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(inputs, 12), nn.BatchNorm1d(12), nn.ReLU())
        self.head = nn.Linear(12, classes)

    def forward(self, x):
        broken = self.training and Path(os.environ.get("BRITTLE", "/nowhere")).exists()
        return self.head(self.body(x)) * (float("nan") if broken else 1.0)
'''


def experiment(algorithm: str, own_model: bool = False) -> dict[str, Any]:
    """A run of a second or two: uneven clients, some of them empty in a round, batch norm, everything measured."""
    name, keys, tables = OPTIONS.get(algorithm, (algorithm, OWN.get(algorithm, {}), {}))
    given = {"name": name, "fraction": 0.6, **keys}
    model = {**LARGE, "norm": "none"} if algorithm in OPTIONS else LARGE
    return {
        "seed": 3,
        "rounds": ROUNDS,
        "data": {"dataset": "digits", "test": 0.1},
        "partition": {"scheme": "dirichlet-qp", "clients": 10, "label_alpha": 0.3, "local_test": 0.2},
        "model": {"name": "brittle:Brittle"} if own_model else model,
        "algorithm": [{key: value for key, value in given.items() if value is not None}],
        "fleet": {"block": 2},
        "evaluate": {"every": 4},
        **tables,
    }


FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["raysim.simulation.api", "raysim.cli.commands"])


def command(arguments: list[str], output: Path, environment: dict[str, str]) -> None:
    """The command line in a process that was forked from one which has imported all: that takes seconds each time."""
    os.setsid()  # Ctrl-C is for it alone
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.environ.update(environment)
    os.chdir(output.parent)
    run_command(cli, "raysim", arguments)


@dataclass
class Run:
    """A run in a process of its own.

    Args:
        folder: of the run, new.
        config: the experiment.
        options: of the command, such as --inline.
    """

    folder: Path
    config: dict[str, Any]
    options: tuple[str, ...]
    process: ForkServerProcess = field(init=False)

    def __post_init__(self) -> None:
        self.home = self.folder.parent
        file = self.home / f"{self.folder.name}.toml"
        file.write_text(tomli_w.dumps(self.config))
        (self.home / "brittle.py").write_text(BRITTLE)
        self.broken = self.home / f"{self.folder.name}.broken"
        self._start("run", str(file), "--out", str(self.folder))

    def resume(self) -> None:
        """Have a new process go on with it."""
        self._start("resume", str(self.folder))

    def _start(self, *arguments: str) -> None:
        self._output = self.home / f"{self.folder.name}.{arguments[0]}.txt"
        given = [*arguments, *self.options], self._output, {"BRITTLE": str(self.broken)}
        self.process = FORKS.Process(target=command, args=given)
        self.process.start()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def reaches(self, number: int) -> bool:
        """Wait for the row of a round; False where the run ends without it."""
        end = time.monotonic() + LONG
        while time.monotonic() < end:
            if self.rounds >= number:
                return True
            if not self.process.is_alive():
                return False
            time.sleep(0.002)
        raise TimeoutError(f"round {number} did not come in {LONG} s: {self.said}")

    def ends(self) -> int:
        """Wait for its end: the exit status, negative where a signal ended it."""
        self.process.join(LONG)
        if self.process.exitcode is None:
            self.process.kill()
            raise TimeoutError(f"no end in {LONG} s: {self.said}")
        return self.process.exitcode

    @property
    def rounds(self) -> int:
        """How many are written so far, a batch each."""
        return max((sum(1 for _ in batches(path)) for path in self.folder.glob("*/metrics.journal")), default=0)

    @property
    def said(self) -> str:
        """What it has shown."""
        return self._output.read_text(errors="replace")


def left(folder: Path) -> dict[str, Any]:
    """Return everything of a finished run of one algorithm that must not depend on faults."""
    (algorithm,) = (path for path in folder.iterdir() if path.name in ALGORITHMS)
    return left_of_algorithm(algorithm)


def left_of_all(folder: Path) -> dict[str, Any]:
    """Return the same of every finished algorithm below a folder."""
    finished = sorted(path.parent for path in folder.rglob("summary.json"))
    return {
        f"{path.relative_to(folder)}/{name}": value
        for path in finished
        for name, value in left_of_algorithm(path).items()
    }


def left_of_algorithm(algorithm: Path) -> dict[str, Any]:
    """Return the same of an algorithm's folder."""
    whole: dict[str, Any] = {
        name: (algorithm / name).read_bytes() if (algorithm / name).exists() else None
        for name in ("model.safetensors", "personal.safetensors")
    }
    for name in ("metrics", "updates"):
        table = pq.read_table(algorithm / f"{name}.parquet")
        timeless = [column for column in table.column_names if not column.startswith(("seconds", "machine_"))]
        # Compared as text, for an undefined number is equal to no other.
        whole[name] = repr(table.select(timeless).to_pydict())
    return whole
