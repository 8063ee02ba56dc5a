"""Time rounds of federated averaging in fluke.

    python fluke_.py --data a.npz --load A --rounds 5 --warm 2

fluke trains in one process, one client after the other; its parallel algorithm is for several GPUs. One thread of
PyTorch. Clients forget their models between rounds (`persistency` false), as those of the other peers do. fluke scores
all clients when it ends, so the script leaves at the last merge.

The file's name ends in _ because a script's folder comes first on the path: fluke.py would be imported instead.
"""

from __future__ import annotations

import sys
import time
import warnings
from contextlib import redirect_stdout
from importlib.metadata import version

from loads import DEVICE, LOADS, needed, parser, read, report

with needed("fluke"):
    import torch
    from fluke import DDict, FlukeENV
    from fluke.algorithms import CentralizedFL
    from fluke.client import Client
    from fluke.config import OptimizerConfigurator
    from fluke.data import FastDataLoader
    from fluke.evaluation import ClassificationEval
    from fluke.server import EarlyStopping, Server
    from torch_models import build


class Timed(CentralizedFL):
    """Federated averaging that notes when training begins and when each merge is done, and ends after the last one."""

    def __init__(self, clients: list[Client], server: Server, rounds: int) -> None:
        super().__init__(len(clients), None, {}, clients, server)
        self.seen: list[float] = []
        self._last = rounds

    def _round_zero(self, *_: object, **__: object) -> None:
        self.seen.append(time.perf_counter())

    def _compute_evaluation(self, round: int, eligible: object) -> None:
        self.seen.append(time.perf_counter())
        if len(self.seen) > self._last:
            raise EarlyStopping(round)

    def finalize(self) -> None:
        """Score no client."""
        FlukeENV().close_cache()


def train(path: str, name: str, rounds: int) -> list[float]:
    """Seconds at the start and after each merge."""
    load = LOADS[name]
    environment = FlukeENV()
    environment.set_seed(0)
    environment.set_device(DEVICE)
    environment.set_inmemory(True)
    environment.set_evaluator(ClassificationEval(1, load.classes))
    environment.set_eval_cfg(task="classification", locals=False, server=False, pre_fit=False, post_fit=False)
    x, y = (torch.from_numpy(array) for array in read(path, name))
    optimizer = OptimizerConfigurator(DDict(name="SGD", lr=load.lr), DDict(name="StepLR", step_size=1, gamma=1))
    clients = [
        Client(
            index=user,
            train_set=FastDataLoader(
                x[user], y[user], num_labels=load.classes, batch_size=load.batch, shuffle=True, skip_singleton=False
            ),
            test_set=None,
            optimizer_cfg=optimizer,
            loss_fn=torch.nn.CrossEntropyLoss(),
            local_epochs=load.epochs,
            persistency=False,
        )
        for user in range(load.clients)
    ]
    timed = Timed(clients, Server(build(load), None, clients, weighted=True), rounds)
    timed.run(rounds, load.cohort / load.clients)
    return timed.seen


def main() -> None:
    """Train and print the line."""
    arguments = parser(__doc__).parse_args()
    torch.set_num_threads(1)
    with redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stamps = train(arguments.data, arguments.load, arguments.warm + arguments.rounds)
    report("fluke", version("fluke-fl"), arguments, 1, stamps)


if __name__ == "__main__":
    main()
