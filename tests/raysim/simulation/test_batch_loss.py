"""A loss of whole batches: the loss of an evaluation is that of each client's samples as one batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from tests.kit.own_code import own_module
from tests.kit.runs import quick_run

CODE = """
from torch.nn.functional import cross_entropy


def squared(outputs, y):
    return cross_entropy(outputs, y) ** 2


def mean(outputs, y):
    return cross_entropy(outputs, y)


def each(outputs, y):
    return cross_entropy(outputs, y, reduction="none")
"""


def test_the_loss_of_an_evaluation_is_that_of_each_client_s_samples(tmp_path: Path) -> None:
    with own_module(tmp_path, "batch_loss_code", CODE) as folder:
        tables = [
            {"name": "fedavg", "label": each, "local": {"loss": f"batch_loss_code:{each}"}}
            for each in ("squared", "mean", "each")
        ]
        experiment = {
            "rounds": 2,
            "data": {"dataset": "digits", "test": 0.2},
            "partition": {"scheme": "dirichlet", "clients": 8, "label_alpha": 0.3, "local_test": 0.3},
            "model": {"name": "mlp", "hidden": [8]},
            "local": {"lr": 0.1, "batch_size": 16, "execution": "vectorised", "precision": "fp64"},
            "algorithm": tables,
            "fleet": {"block": 4},
            "evaluate": {"every": 1, "metrics": ["loss", "batch_loss_code:each"]},
            "modules": [str(folder)],
        }
        run = quick_run(experiment, tmp_path / "run", inline=True).folder
    clients, rounds = (
        {name: pq.read_table(run / name / f"{what}.parquet") for name in ("squared", "mean", "each")}
        for what in ("clients", "metrics")
    )
    plain, squared = (np.asarray(clients["squared"][f"test_{name}"]) for name in ("each", "loss"))
    np.testing.assert_allclose(squared, plain**2, rtol=1e-12)
    assert len(plain) == 8 and plain.std() > 0
    test = rounds["squared"]
    np.testing.assert_allclose(np.asarray(test["test_loss"]), np.asarray(test["test_each"]) ** 2, rtol=1e-12)
    for column in ("test_loss", "train_loss"):
        means, of_samples = (np.asarray(rounds[name][column]) for name in ("mean", "each"))
        np.testing.assert_allclose(means, of_samples, rtol=1e-9)
