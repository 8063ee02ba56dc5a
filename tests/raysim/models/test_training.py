"""Every model trains: two steps one by one and stacked come to the same, and a whole run on symbols."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import raysim
from algorithms import Compute, InputError, Layout, Local, Packed, Resident, Sharing, choose, trainer
from algorithms.training.local import Execution
from algorithms.training.work import Work
from partitioning.sources.arrays import nested
from raysim.common import errors
from raysim.fleet.machine import settled
from raysim.models.build import MODELS, build
from raysim.models.keys import NORMS
from tests.kit.runs import quick_run

LOCAL = Local(lr=1e-3, batch_size=4, momentum=0.9)
UPDATES = 2

SHAPES: dict[str, tuple[int, ...]] = {
    "lenet": (2, 16, 16),
    "vgg16": (2, 32, 32),
    "alexnet_bn": (2, 63, 63),
    "mobilenet_v2": (2, 32, 32),
    "deeplab_v3plus": (2, 32, 32),
}
"""Samples of the models that 8x8 images are too small for, or that normalise too few values of them."""

SLOW = ("alexnet_bn", "vgg16")
LARGE = ("resnet18", "mobilenet_v2", "deeplab_v3plus")
"""Models of the field whose steps take seconds; their small relatives have the same layers."""

WIDE = ("cnn4", "fedbs_cifar")
"""Models of the same blocks as `cnn3` and `fedbs_mnist` whose normalised steps take 0.4 GB."""

STACKED = [
    *((name, {}) for name in MODELS if name not in (*SLOW, *LARGE, "lstm", "transformer")),
    *((name, {"norm": "batch"}) for name in ("mlp", "cnn", "lenet", "cnn3", "cnn4")),
]

STACKED_SLOWLY = [
    *((name, {}) for name in (*SLOW, *LARGE)),
    ("vgg16", {"norm": "batch"}),
    *(("resnet18", parameters) for parameters in ({"stem": "small"}, {"norm": "none"})),
    *(("deeplab_v3plus", parameters) for parameters in ({"backbone": "resnet50"}, {"norm": "none"})),
]


def resident(name: str, shape: tuple[int, ...], lanes: int, **parameters: object) -> Resident:
    module = build(name, shape=shape, classes=3, seed=1, **parameters).double()
    return Resident(module, Sharing().divide(Layout.of(module)), torch.zeros(shape), lanes=lanes)


def works(name: str, shape: tuple[int, ...]) -> list[Work]:
    """Two client updates of two steps each."""
    made = []
    for update in range(UPDATES):
        draw = torch.Generator().manual_seed(update)
        x = torch.rand(8, *shape, generator=draw, dtype=torch.float64)
        places = shape[1:] if name == "deeplab_v3plus" else ()
        y = torch.randint(0, 3, (8, *places), generator=draw)
        made.append(Work(x, y, [np.arange(4), np.arange(4, 8)], torch.Generator().manual_seed(update)))
    return made


def trained(
    execution: Execution, name: str, shape: tuple[int, ...], work: list[Work], parameters: dict[str, Any]
) -> tuple[list[Packed], np.ndarray]:
    """Models and losses of client updates that are trained together."""
    here = resident(name, shape, len(work), **parameters)
    start, nothing = here.shared().copy(), here.personal().copy()
    for lane in range(len(work)):
        here.load(start, nothing, lane)
    losses = trainer(here, Compute(execution, "fp64")).train(LOCAL, work, LOCAL.lr)
    models = [here.shared(lane).copy() for lane in range(len(work))]
    for model in models:
        assert np.isfinite(model.floats).all() and not np.array_equal(model.floats, start.floats)
    return models, losses


@pytest.mark.parametrize(("name", "parameters"), STACKED)
def test_stacked_steps_equal_sequential_ones(name: str, parameters: dict[str, Any]) -> None:
    """One client stands for both: the first of some models, the second of others."""
    shape, lane = SHAPES.get(name, (2, 8, 8)), len(name) % 2
    with settled(1):
        stacked, losses = trained("vectorised", name, shape, works(name, shape), parameters)
        assert np.isfinite(losses).all()
        (alone,), (own,) = trained("sequential", name, shape, [works(name, shape)[lane]], parameters)
    assert np.abs(stacked[lane].floats - alone.floats).max() < 1e-9
    assert np.array_equal(stacked[lane].integers, alone.integers)
    assert losses[lane] == pytest.approx(own, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parameters"), STACKED_SLOWLY)
def test_stacked_steps_of_large_models(name: str, parameters: dict[str, Any]) -> None:
    test_stacked_steps_equal_sequential_ones(name, parameters)


@pytest.mark.parametrize("name", ["resnet20", "deeplab_v3plus"])
def test_choice_of_execution(name: str) -> None:
    module = build(name, shape=(3, 8, 8), classes=3, seed=0)
    stacked = Local(lr=0.1, compute=Compute("vectorised"))
    label = torch.zeros(8, 8, dtype=torch.uint8) if name == "deeplab_v3plus" else None
    assert choose(stacked, module, torch.zeros(3, 8, 8), "cpu", 8, label=label).execution == "vectorised"
    assert choose(Local(lr=0.1), module, torch.zeros(3, 8, 8), "cpu", 8).execution == "sequential"


def test_lstm_is_never_stacked() -> None:
    module = build("lstm", shape=(6,), classes=3, seed=0, hidden=4)
    with pytest.raises(InputError, match="must be sequential") as error:
        choose(Local(lr=0.1, compute=Compute("vectorised")), module, torch.zeros(6), "cpu", 8)
    assert "\n" not in str(error.value)
    for device in ("cpu", "cuda"):
        assert choose(Local(lr=0.1), module, torch.zeros(6), device, 8).execution == "sequential"


def text(folder: Path, kind: type) -> str:
    """A table of windows of 80 symbols and the one that follows: 0, 1, 2, ... over and over."""
    symbols = (np.arange(80) + np.arange(60)[:, None]) % 7
    table = {"window": nested(symbols.astype(kind)), "label": (np.arange(60) + 80) % 7}
    pq.write_table(pa.table(table), folder / "text.parquet")
    return f"file:{folder / 'text.parquet'}"


def experiment(dataset: str) -> dict[str, Any]:
    return {
        "rounds": 2,
        "data": {"dataset": dataset, "test": 0.2},
        "partition": {"scheme": "iid", "clients": 4},
        "model": {"name": "lstm", "hidden": 24, "vocabulary": 7},
        "local": {"optimizer": "adam", "lr": 0.02, "batch_size": 4, "epochs": 8},
        "evaluate": {"every": 1, "metrics": ["accuracy", "loss"]},
    }


def test_a_run_on_symbols(tmp_path: Path) -> None:
    run = quick_run(experiment(text(tmp_path, np.int16)), tmp_path / "run", inline=True)
    table = pq.read_table(run.folder / "fedavg" / "metrics.parquet")
    losses = table["test_loss"].to_pylist()
    assert losses[1] < losses[0] < np.log(7)
    assert table["train_loss"].to_pylist()[1] < table["train_loss"].to_pylist()[0]


def test_symbols_as_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(raysim.InputError, match="store symbols as int16 or wider") as error:
        raysim.run(experiment(text(tmp_path, np.uint8)), tmp_path / "run", inline=True)
    assert "\n" not in str(error.value)


RESIDUAL = ("resnet20", "resnet18")
APART = ("deeplab_v3plus", "resnet18", "lstm", "transformer")
WITHOUT = ("logistic", "lstm", "cnn_dropout")
SINGLE = ("mlp", "cnn", "lenet", "cnn3", "cnn4", "digit_cnn", "alexnet_bn", "vgg16", "mobilenet_v2")
"""Those that normalise one value a channel somewhere: behind linear layers, or at these sizes."""


def makes_sense(name: str, norm: str) -> bool:
    refused = {"fixup": name not in RESIDUAL, "instance": name in SINGLE, "group+ws": name == "mlp"}
    return norm == "none" or (name not in WITHOUT and not refused.get(norm, False))


@pytest.mark.parametrize("norm", [norm for norm in NORMS if norm != "batch"])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in (*LARGE, *WIDE) else ())
        for name in MODELS
        if name not in (*SLOW, *APART)
    ],
)
def test_every_model_under_every_norm(name: str, norm: str) -> None:
    keys: dict[str, Any] = {"norm": norm, **({"groups": 2} if norm.startswith("group") else {})}
    if makes_sense(name, norm):
        test_stacked_steps_equal_sequential_ones(name, keys)
        return
    with pytest.raises(errors.InputError, match="norm"):
        build(name, shape=SHAPES.get(name, (2, 8, 8)), classes=3, seed=1, **keys)
