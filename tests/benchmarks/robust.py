"""Time and memory of a robust round: the median of a cohort of 1,000 and a model of 200,000 parameters.

Run `python -m tests.benchmarks.robust`; `--aggregate` takes another rule, "mean" the sum for comparison. It prints the
seconds of each round, the peak of the driver's resident memory, and the bytes of the arrays that it held.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

import partitioning
from algorithms import Local, Participation, Robust, begin, fedavg, next_round
from algorithms.options.aggregation import AGGREGATES
from raysim.fleet.calls import fetch_results
from raysim.fleet.client_actors import ClientActors
from raysim.fleet.model_plan import ModelPlan
from raysim.fleet.worker_plan import WorkerPlan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aggregate", default="median", choices=sorted(AGGREGATES))
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    keys = {"byzantine": given.clients // 10} if "krum" in given.aggregate else {}
    with tempfile.TemporaryDirectory() as folder:
        path, rng = Path(folder) / "population", np.random.default_rng(0)
        rows = 10 * given.clients
        x, y = rng.normal(size=(rows, 784)).astype(np.float32), rng.integers(0, 10, rows)
        partitioning.make({"x": x, "label": y}, path, scheme="iid", clients=given.clients)
        algorithm = fedavg(Participation(), Local(lr=0.1, batch_size=10)).having(
            Robust(AGGREGATES[given.aggregate](**keys))
        )
        model = ModelPlan("mlp", {"hidden": (250,)}, (784,), 10, seed=1)
        plan = WorkerPlan(path, model, algorithm, Path(folder) / "personal").resolved()
        with ClientActors(given.actors) as actors:
            fetch_results([handle.fingerprint.remote() for handle in actors.pool.handles()], 180)
            fleet = actors.fleet(plan)
            state = begin(plan.module(), fleet, 0)
            for number in range(1, given.rounds + 1):
                started = time.perf_counter()
                state = next_round(state, plan.algorithm, fleet)
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                seconds, driver = time.perf_counter() - started, fleet.traffic.driver / 2**20
                print(
                    f"round {number}: {seconds:.1f} s, driver's peak {peak:.0f} MiB, its arrays so far {driver:.0f} MiB"
                )
            print(f"{given.aggregate}: {fleet.layouts.shared.floats:,} values x {given.clients:,} clients")
            fleet.close()


if __name__ == "__main__":
    main()
