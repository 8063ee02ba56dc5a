"""Time rounds of federated averaging in pfl-research's simulated backend.

    python pfl_.py --data a.npz --load A --rounds 5 --warm 2 [--processes N] [--threads N]

One process for the perceptrons, and two for the convolutional network, joined by torch.distributed (gloo): pfl's own
distributed mode, under PyTorch's launcher. On a GPU it is one for all loads: each further process needs a GPU of its
own. One thread in each: with batches of ten a second one slows the perceptrons down, though a single process gains by
it on the convolutions. All data are tensors in memory, and the model is pfl's resident one. pfl leaves the order of
samples to the data set, so a visit's is shuffled where its data set is made.

The file's name ends in _ because a script's folder comes first on the path: pfl.py would be imported instead of pfl.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.metadata import version

from loads import DEVICE, LOADS, Load, needed, parser, read, report

# Before pfl is imported: by default it takes a GPU if there is one.
os.environ["PFL_PYTORCH_DEVICE"] = DEVICE

with needed("pfl"):
    import numpy as np
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel
    from torch.nn.functional import cross_entropy
    from torch_models import build


class Classifier(torch.nn.Module):
    """A load's model with the two methods that pfl asks for."""

    def __init__(self, load: Load) -> None:
        super().__init__()
        self.body = build(load)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return cross_entropy(self.body(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(len(y) * self.loss(x, y).item(), len(y))}


class Stamps(TrainingProcessCallback):
    """Notes when training begins and when each merge is done."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self.seen.append(time.perf_counter())
        return Metrics()

    def after_central_iteration(self, *_, **__) -> tuple[bool, Metrics]:
        if DEVICE == "cuda":
            torch.cuda.synchronize()  # a merge is done when the GPU is, and nothing before this waits for it
        self.seen.append(time.perf_counter())
        return False, Metrics()


def cohorts(load: Load) -> Callable[[], int]:
    """A sampler of users, one a call: each `cohort` of them are uniform without replacement.

    pfl's own samplers go round in a fixed order, or draw with replacement. Every process draws the same.
    """
    rng, waiting = np.random.default_rng(0), []

    def draw() -> int:
        if not waiting:
            waiting.extend(rng.choice(load.clients, load.cohort, replace=False).tolist())
        return waiting.pop()

    return draw


def train(path: str, name: str, rounds: int) -> list[float]:
    """Seconds at the start and after each merge, in this process."""
    load = LOADS[name]
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  pfl seeds itself from numpy's global generator, and all processes must agree
    x, y = (torch.from_numpy(array).to(DEVICE) for array in read(path, name))

    def visit(user: int) -> PyTorchTensorDataset:
        order = torch.randperm(load.samples, device=DEVICE)
        return PyTorchTensorDataset((x[user][order], y[user][order]), user_id=str(user))

    module = Classifier(load).to(DEVICE)
    model = PyTorchModel(
        module,
        local_optimizer_create=torch.optim.SGD,
        # The merged difference is the gradient: with rate 1 the mean of the clients' models becomes the model.
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )
    backend = SimulatedBackend(FederatedDataset(visit, cohorts(load)), None, postprocessors=[WeightByDatapoints()])
    stamps = Stamps()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,  # pfl evaluates before round 1, a warm one, all the same
            train_cohort_size=load.cohort,
            val_cohort_size=None,
        ),
        backend,
        model,
        NNTrainHyperParams(local_batch_size=load.batch, local_num_epochs=load.epochs, local_learning_rate=load.lr),
        callbacks=[stamps],
        send_metrics_to_platform=False,  # it would print them
    )
    return stamps.seen


def launch(processes: int) -> int:
    """This script once more, in so many processes under PyTorch's launcher."""
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", __file__, *sys.argv[1:]]
    return subprocess.run([sys.executable, *command], check=False).returncode


def main() -> None:
    """Train, in this process or as one of several, and print the line."""
    asks = parser(__doc__)
    asks.add_argument("--processes", type=int, help="default: 2 for load C on the CPU, else 1")
    asks.add_argument("--threads", type=int, default=1, help="PyTorch's threads in each process")
    arguments = asks.parse_args()
    processes = arguments.processes or (2 if arguments.load == "C" and DEVICE == "cpu" else 1)
    if processes > 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        raise SystemExit(launch(processes))
    torch.set_num_threads(arguments.threads)
    with redirect_stdout(sys.stderr):
        stamps = train(arguments.data, arguments.load, arguments.warm + arguments.rounds)
    if int(os.environ.get("RANK", "0")) == 0:
        report("pfl", version("pfl"), arguments, processes, stamps)


if __name__ == "__main__":
    main()
