"""Time rounds of federated averaging in Flower's simulation engine.

    python flower.py --data a.npz --load A --rounds 5 --warm 2

Two client workers of one CPU each, unless `--workers` says otherwise. The message API, and in each worker one model and
one copy of the data that stay: a visit's cost beside training is then the engine's, not the loading of a partition.
"""

from __future__ import annotations

import os
import time
from contextlib import redirect_stdout
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from sys import stderr

# Before Flower and Ray are imported: a benchmark tells nobody that it ran.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

from loads import DEVICE, LOADS, check, needed, parser, read, report

with needed("flower"):
    import torch
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation
    from torch.nn.functional import cross_entropy
    from torch_models import build, trained

client_app = ClientApp()


@lru_cache(maxsize=1)
def resident(path: str, load: str) -> tuple[torch.Tensor, torch.Tensor, torch.nn.Module]:
    """A worker's data and model: made at its first visit, which is in a warm round."""
    torch.set_num_threads(1)
    x, y = read(path, load)
    return torch.from_numpy(x).to(DEVICE), torch.from_numpy(y).to(DEVICE), build(LOADS[load]).to(DEVICE)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """A visit."""
    config = message.content["config"]
    load = LOADS[config["load"]]
    x, y, module = resident(config["data"], config["load"])
    client = context.node_config["partition-id"]
    features, labels = x[client], y[client]
    module.load_state_dict(message.content["arrays"].to_torch_state_dict(), strict=not load.adapters)
    module.train()
    optimiser = torch.optim.SGD(module.parameters(), lr=load.lr)
    for _ in range(load.epochs):
        for rows in torch.randperm(len(labels), device=DEVICE).split(load.batch):
            optimiser.zero_grad()
            cross_entropy(module(features[rows]), labels[rows]).backward()
            optimiser.step()
    metrics = MetricRecord({"num-examples": len(labels)})
    content = RecordDict({"arrays": ArrayRecord(trained(module)), "metrics": metrics})
    return Message(content=content, reply_to=message)


class Timed(FedAvg):
    """Federated averaging, weighted by samples, that notes when each merge is done."""

    def __init__(self, clients: int, cohort: int) -> None:
        super().__init__(
            fraction_train=cohort / clients,
            fraction_evaluate=0.0,
            min_train_nodes=cohort,
            min_available_nodes=clients,
        )
        self.stamps: list[float] = []

    def configure_train(self, server_round: int, *rest, **named):
        if not self.stamps:
            self.stamps.append(time.perf_counter())
        return super().configure_train(server_round, *rest, **named)

    def aggregate_train(self, server_round: int, replies):
        replies = list(replies)
        if failed := [reply.error.reason for reply in replies if reply.has_error()]:
            raise RuntimeError(failed[0])
        merged = super().aggregate_train(server_round, replies)
        self.stamps.append(time.perf_counter())
        return merged


def main() -> None:
    """Run the simulation and print its line."""
    asks = parser(__doc__)
    asks.add_argument("--workers", type=int, default=2, help="client workers of one CPU each; they share a GPU")
    arguments = asks.parse_args()
    load = LOADS[arguments.load]
    check(arguments.data, arguments.load)  # a wrong file is refused here, not in a worker
    strategy = Timed(load.clients, load.cohort)
    server_app = ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy.start(
            grid,
            initial_arrays=ArrayRecord(trained(build(load))),
            num_rounds=arguments.warm + arguments.rounds,
            train_config=ConfigRecord({"data": str(Path(arguments.data).resolve()), "load": arguments.load}),
        )

    with redirect_stdout(stderr):
        run_simulation(
            server_app,
            client_app,
            num_supernodes=load.clients,
            backend_config={
                "init_args": {"address": "local", "num_cpus": arguments.workers, "log_to_driver": False},
                "client_resources": {"num_cpus": 1, "num_gpus": 1 / arguments.workers if DEVICE == "cuda" else 0.0},
            },
        )
    report("flower", version("flwr"), arguments, arguments.workers, strategy.stamps)


if __name__ == "__main__":
    # As an imported module: what a worker gets of this file is then its name, and `resident` stays from visit to visit.
    import flower

    flower.main()
