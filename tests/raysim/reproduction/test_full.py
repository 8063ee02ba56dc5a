"""Every reproduction's full setting starts, takes its first rounds, and is judged and drawn by them: slow.

The data are drawn, in the layout of the true files. The models, images, algorithms, partitions and measures are the
paper's; less are rounds, visits' steps, seeds, folds, values of grids, and data sets: `shortened`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from raysim import study
from raysim.common.vision import torchvision
from raysim.reproduction.claim import OF_ROUNDS
from raysim.reproduction.file import read_reproduction, reproductions
from raysim.reproduction.reproducing import draw
from raysim.reproduction.verdict import StudyNumbers
from raysim.studies.read import read_findings
from tests.kit.drawn_files import sums_of_cifar10, write_all, write_idx

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("drawn")]

FULL = [name for name in reproductions() if not name.endswith("-quick")]

ROUNDS = 2

DATASETS = 4
"""Of a study's data sets, which mostly differ in a number, so many: the first, the last, and others between."""

CAPS = {
    "steps": 2,
    "epochs": 1,
    "batches": 2,
    "per_domain": 32,
    "fix_after": 1,
    "aggregate_every": 2,
    "burn_in": 1000,
    "search": 5000,
}
"""The most that a key of this name is given, wherever it is: what a visit takes, and what else needs more rounds."""

LAST = {"take": "last", "since": None, "until": None, "level": None, "period": None}
"""What is taken where a claim is of more rounds than there are here: its column must be measured all the same."""

WEIGHTS = torchvision.models.get_weight("MobileNet_V2_Weights.IMAGENET1K_V1")

SMALLER: Mapping[str, tuple[str, ...]] = {
    "dp-fedavg-mnist": ("partition.clients=150",),  # ten of the 1,500 drawn images each, as many as in the paper
    "fedmmb-table-5a": ("algorithm.fedavg.local.steps=2",),  # of all three
    "fedmmb-table-5b": ("algorithm.fedavg.local.steps=2", "data.test=0.005"),
}
"""What else is less, where two cores would take many minutes or the drawn files have fewer samples."""


MNIST_ROWS: Mapping[str, int] = {"lr-mnist": 11_000}
"""Drawn training images of MNIST, where a set needs more than the others: about 1,100 of each digit."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of all the papers' data sets, and of the weights that torchvision would download."""
    folder = tmp_path_factory.mktemp("data")
    write_all(folder)
    hub = folder / "torch" / "hub" / "checkpoints"
    hub.mkdir(parents=True)
    torch.save(torchvision.models.mobilenet_v2().state_dict(), hub / WEIGHTS.url.rpartition("/")[2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_HOME", str(folder / "torch"))
        patch.setenv("RAYSIM_CACHE", str(folder / "cache"))
        for key, value in sums_of_cifar10(folder / torchvision.datasets.CIFAR10.base_folder).items():
            patch.setattr(torchvision.datasets.CIFAR10, key, value)
        yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", FULL)
def test_the_full_setting_takes_its_first_rounds(name: str, root: Path, tmp_path: Path) -> None:
    reproduction, run = read_reproduction(name), tmp_path / "run"
    if name in MNIST_ROWS:
        root = tmp_path
        write_idx(root / "MNIST/raw", train=MNIST_ROWS[name])
    changes = [f"data.root={root}", *SMALLER.get(name, ())]
    study(shortened(reproduction.study(full=True)), run, changes=changes, inline=True)
    found = read_findings(run)
    assert found.trials
    assert {trial.status for trial in found.trials} == {"done"}
    measured = StudyNumbers(found)
    for claim in reproduction.claims:
        measured.judge(claim.model_copy(update=LAST if claim.take in OF_ROUNDS else {}))
    assert any(figure["file"] for figure in draw(reproduction, found)) or not reproduction.figures


def shortened(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A study with the first seed, rounds and grid values alone, of few data sets."""
    cut: dict[str, Any] = capped(raw)
    cut.pop("epochs", None)
    cut["rounds"] = ROUNDS
    asked = cut["study"]
    asked["seeds"] = asked.get("seeds", [1])[:1]
    names = list(asked["datasets"])
    taken = np.linspace(0, len(names) - 1, min(len(names), DATASETS)).round().astype(int)
    asked["datasets"] = {
        name: {key: value for key, value in asked["datasets"][name].items() if key not in ("rounds", "epochs")}
        for name in (names[place] for place in taken)
    }
    if "grid" in asked:
        asked["grid"] = first(asked["grid"])
    if "folds" in asked:
        asked |= {"folds": 3, "validation": "next"}
    return cut


def capped(value: Any, path: str = "") -> Any:
    """The same, with no number above what its key is given at most."""
    if isinstance(value, Mapping):
        return {key: capped(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [capped(each, path) for each in value]
    most = CAPS.get(path.rpartition(".")[2])
    return min(value, most) if most is not None and isinstance(value, int) else value


def first(grid: Mapping[str, Any]) -> dict[str, Any]:
    """A grid with the first of each key's values."""
    return {key: first(each) if isinstance(each, Mapping) else each[:1] for key, each in grid.items()}
