"""Time rounds of federated averaging in BlazeFL's thread pool or process pool.

    python blazefl_.py --data a.npz --load A --rounds 5 --warm 2 [--workers N] [--pool thread|process]

BlazeFL's own FedAvg: its server handler and its client trainers, with models through shared memory. One thread of
PyTorch in each worker. All data are tensors in shared memory, and a user's batches are rows of them, shuffled by the
generator that BlazeFL hands out: `torch.utils.data.DataLoader` would take one sample at a time. The line has the
sha256 of the model after the last round, because BlazeFL promises the same bytes for any number of workers.

The file's name ends in _ because a script's folder comes first on the path: blazefl.py would be imported instead.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from loads import LOADS, Load, needed, parser, read, report

if sysconfig.get_config_var("Py_GIL_DISABLED") and sys.flags.gil != 0:
    # A library of torch's would switch the lock on again.
    os.execv(sys.executable, [sys.executable, "-X", "gil=0", *sys.argv])

with needed("blazefl"):
    import torch
    from blazefl.contrib.fedavg import (
        FedAvgBaseServerHandler,
        FedAvgPartitionType,
        FedAvgProcessPoolClientTrainer,
        FedAvgThreadPoolClientTrainer,
    )
    from blazefl.core import serialize_model
    from torch_models import build


class Name(StrEnum):
    """Name of the only model."""

    LOAD = "load"


@dataclass(frozen=True)
class Selector:
    """The load's model, with one thread of PyTorch in the process that asks for it."""

    load: Load

    def select_model(self, model_name: Name) -> torch.nn.Module:
        torch.set_num_threads(1)
        return build(self.load)


@dataclass(frozen=True)
class Batches:
    """Batches of one client's samples, in a new order in each epoch."""

    x: torch.Tensor
    y: torch.Tensor
    size: int
    generator: torch.Generator | None

    @property
    def dataset(self) -> torch.Tensor:
        """Something as long as the client has samples: BlazeFL weights the client by it."""
        return self.y

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for rows in torch.randperm(len(self.y), generator=self.generator).split(self.size):
            yield self.x[rows], self.y[rows]


@dataclass(frozen=True)
class Clients:
    """All clients' samples in shared memory."""

    x: torch.Tensor
    y: torch.Tensor

    def get_dataset(self, type_: FedAvgPartitionType, cid: int | None) -> None:
        """Nothing: the trainers ask for batches."""

    def set_dataset(self, type_: FedAvgPartitionType, cid: int | None, dataset: None) -> None:
        """Nothing changes."""

    def get_dataloader(
        self, type_: FedAvgPartitionType, cid: int, batch_size: int, generator: torch.Generator | None
    ) -> Batches:
        return Batches(self.x[cid], self.y[cid], batch_size, generator)


def train(path: str, name: str, rounds: int, workers: int, pool: str, folder: Path) -> tuple[list[float], str]:
    """Seconds at the start and after each merge, and the sha256 of the last model."""
    load = LOADS[name]
    x, y = (torch.from_numpy(array).share_memory_() for array in read(path, name))
    torch.manual_seed(0)
    selector, data = Selector(load), Clients(x, y)
    common = {"model_selector": selector, "model_name": Name.LOAD, "dataset": data, "device": "cpu", "seed": 0}
    common |= {"num_clients": load.clients, "batch_size": load.batch}
    handler = FedAvgBaseServerHandler(**common, global_round=rounds, sample_ratio=load.cohort / load.clients)
    common |= {"epochs": load.epochs, "lr": load.lr, "num_parallels": workers}
    if pool == "thread":
        trainer = FedAvgThreadPoolClientTrainer(**common)
    else:
        trainer = FedAvgProcessPoolClientTrainer(**common, state_dir=folder / "state")
    stamps = [time.perf_counter()]
    while not handler.is_stopped():
        trainer.local_process(handler.downlink_package(), handler.sample_clients())
        for package in trainer.uplink_package():
            handler.load(package)
        stamps.append(time.perf_counter())
    return stamps, sha256(serialize_model(handler.model).numpy().tobytes()).hexdigest()


def main() -> None:
    """Train and print the line."""
    asks = parser(__doc__)
    asks.add_argument("--workers", type=int, default=2)
    asks.add_argument(
        "--pool", choices=["thread", "process"], default="thread", help="the process pool starts anew each round"
    )
    arguments = asks.parse_args()
    rounds = arguments.warm + arguments.rounds
    with redirect_stdout(sys.stderr), TemporaryDirectory() as folder:
        stamps, digest = train(arguments.data, arguments.load, rounds, arguments.workers, arguments.pool, Path(folder))
    report("blazefl", version("blazefl"), arguments, arguments.workers, stamps, sha256=digest)


if __name__ == "__main__":
    main()
