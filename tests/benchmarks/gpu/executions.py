"""Executions side by side on one worker, and every model under deterministic kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa

import partitioning
from algorithms import Algorithm, Participation, fedavg, fedbn, radfed
from algorithms.training.local import Execution
from raysim.data.decoding import decode_population
from raysim.data.tensors import decoder_of
from raysim.fleet.model_plan import ModelPlan
from raysim.models.build import MODELS
from tests.benchmarks.gpu.harness import local_of, measured, model_of, plan_of
from tests.benchmarks.gpu.setting import Add, Setting, attempt, images
from tests.benchmarks.peers.loads import CIFAR, DIGITS, Load
from tests.benchmarks.rounds import table_of

SHAPES = {
    "logistic": (1, 28, 28),
    "mlp": (1, 28, 28),
    "cnn": (1, 28, 28),
    "cnn_dropout": (1, 28, 28),
    "cnn3": (1, 28, 28),
    "fedbs_mnist": (1, 28, 28),
    "digit_cnn": DIGITS,
    "alexnet_bn": (3, 128, 128),
    "vgg16": (3, 64, 64),
    "resnet18": (3, 64, 64),
    "mobilenet_v2": (3, 64, 64),
    "deeplab_v3plus": (3, 64, 64),
    "lstm": (80,),
}
"""Shape of a sample by model; all others take CIFAR-10's."""


def executions(setting: Setting, add: Add) -> None:
    """Train the perceptron by every execution: short client updates of load B, and long ones of load A."""
    for name in ("B", "A"):
        load, runs = setting.load(name), setting.few
        path = setting.population(name, load)
        model = model_of("mlp", load, hidden=load.hidden)
        first: dict[str, Any] = {}
        for execution in ("sequential", *_stacked()):
            algorithm = fedavg(Participation(cohort=load.cohort), local_of(load, execution))
            attempt(
                add,
                f"load {name}, mlp, {execution}",
                partial(_compared, path, load, setting.device, model, algorithm, runs, first),
            )


def stacked(setting: Setting, add: Add) -> None:
    """Train networks with batch norm stacked and one by one: FedBN's digits, and ResNet-20."""
    for name, load in networks(setting).items():
        path, first = setting.population(name, load), {}
        for execution in ("sequential", "vectorised"):
            algorithm = fedbn(Participation(cohort=load.cohort), local_of(load, execution))
            attempt(
                add,
                f"{name}, FedBN, {execution}",
                partial(_compared, path, load, setting.device, model_of(name, load), algorithm, setting.few, first),
            )


def networks(setting: Setting) -> dict[str, Load]:
    """Return loads of networks with batch norm."""
    small = setting.small
    return {
        "digit_cnn": Load(
            "digit_cnn",
            DIGITS,
            clients=4 if small else 20,
            samples=8 if small else 320,
            cohort=2 if small else 10,
            batch=4 if small else 32,
            lr=0.01,
        ),
        "resnet20": Load(
            "resnet20",
            CIFAR,
            clients=4 if small else 100,
            samples=8 if small else 100,
            cohort=2 if small else 20,
            batch=4 if small else 20,
        ),
    }


def models(setting: Setting, add: Add) -> None:
    """Train every model for a round: a kernel that is not deterministic raises here, and names itself."""
    for name in MODELS:
        if not setting.small or name in ("mlp", "lenet", "lstm", "deeplab_v3plus"):
            attempt(add, name, partial(_one_round, setting, name))


def _stacked() -> list[str]:
    return [execution for execution in get_args(Execution) if execution not in ("auto", "sequential")]


def _compared(
    path: Path, load: Load, device: str, model: ModelPlan, algorithm: Algorithm, rounds: int, first: dict[str, Any]
) -> dict[str, Any]:
    """Return seconds a round, memory, and the largest difference to the first execution, relative to its entries."""
    found = measured(plan_of(path, load, device, model, algorithm), rounds)
    base = first.setdefault("model", found)
    largest = float(np.abs(base.model.floats).max())
    difference = float(np.abs(found.model.floats - base.model.floats).max()) / largest
    return {
        "seconds a round": found.seconds,
        "speed to sequential": base.seconds / found.seconds,
        "MiB": found.mib,
        "difference": difference,
    }


def _one_round(setting: Setting, name: str) -> Mapping[str, Any]:
    shape = SHAPES.get(name, CIFAR)
    load = Load(name, shape, clients=4, samples=8, cohort=2, batch=4, lr=0.01)
    path = setting.work / f"model-{name}"
    partitioning.make(_samples(name, load), path, scheme="iid", clients=load.clients)
    path = decode_population(partitioning.Population.open(path))  # labels that are images become an array
    model = replace(model_of(name, load), labels=decoder_of(partitioning.Population.open(path)).labels)
    # RADFed measures the models after their training, too.
    plan = plan_of(
        path, load, setting.device, model, radfed(Participation(cohort=2), local_of(load), aggregate_every=1)
    )
    found = measured(plan, 1)
    return {"seconds a round": found.seconds, "execution": found.execution, "MiB": found.mib}


def _samples(name: str, load: Load) -> pa.Table:
    """Return a table that a model takes: images, windows of symbols, or images with a class per pixel."""
    rng, rows = np.random.default_rng(0), load.clients * load.samples
    if name == "lstm":
        symbols = rng.integers(0, 80, (rows, *load.shape)).astype(np.int16)
        windows = pa.FixedSizeListArray.from_arrays(pa.array(symbols.reshape(-1)), load.shape[0])
        return pa.table({"window": windows, "label": pa.array(rng.integers(0, load.classes, rows))})
    table = table_of(load, *(images(load)[key] for key in ("x", "y")))
    if name != "deeplab_v3plus":
        return table
    masks = pa.array(rng.integers(0, load.classes, rows * 64 * 64).astype(np.uint8))
    for size in reversed(load.shape[1:]):
        masks = pa.FixedSizeListArray.from_arrays(masks, size)
    return table.set_column(table.column_names.index("label"), "label", masks)
