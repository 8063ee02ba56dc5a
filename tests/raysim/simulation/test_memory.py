"""Runs on data in memory: the same model as from a file, a run that goes on without the data, and its refusals."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import raysim
from partitioning import Population
from raysim.common.names import POPULATION
from raysim.data.catalogue import MEMORY
from raysim.data.sources import load
from tests.kit.runs import quick_resume, quick_run

DIGITS = load("digits").train
PIXELS = np.rint(np.array(DIGITS["image"].to_pylist()) * 16).astype(np.uint8)
LABELS = DIGITS["label"].to_numpy()
EXPERIMENT: dict[str, Any] = {
    "rounds": 1,
    "partition": {"scheme": "iid", "clients": 3},
    "model": {"name": "logistic"},
    "local": {"lr": 0.1},
}


def run(folder: Path, **data: Any) -> Path:
    return quick_run({**EXPERIMENT, "data": data}, folder, inline=True).folder / "fedavg"


def test_every_form_gives_the_model_of_a_file_and_its_own_test_set(tmp_path: Path) -> None:
    np.savez(tmp_path / "train.npz", x=PIXELS[:1500], label=LABELS[:1500])
    np.savez(tmp_path / "test.npz", x=PIXELS[1500:], label=LABELS[1500:])
    grey = PIXELS[:, 0]
    models = {
        "file": run(tmp_path / "a", dataset="file:train.npz", test="file:test.npz", root=str(tmp_path)),
        "test": run(tmp_path / "b", dataset=(grey[:1500], LABELS[:1500]), test=(grey[1500:], LABELS[1500:])),
        "splits": run(
            tmp_path / "c",
            dataset={
                "train": TensorDataset(torch.tensor(PIXELS[:1500]), torch.tensor(LABELS[:1500])),
                "test": (PIXELS[1500:, 0, :, :, None], LABELS[1500:]),
            },
        ),
    }
    assert len({(folder / "model.safetensors").read_bytes() for folder in models.values()}) == 1
    assert Population.open(tmp_path / "c" / POPULATION).manifest.counts.test_rows == 297


def test_a_run_goes_on_from_its_folder_alone(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", dataset=(PIXELS, LABELS), test=0.2)
    trained = (folder / "model.safetensors").read_bytes()
    assert Population.open(tmp_path / "run" / POPULATION).manifest.dataset.startswith(MEMORY)
    shutil.rmtree(folder)
    quick_resume(tmp_path / "run", inline=True)
    assert (folder / "model.safetensors").read_bytes() == trained
    shutil.rmtree(folder)
    next((tmp_path / "run" / POPULATION).glob("shard-*")).write_bytes(b"")
    with pytest.raises(raysim.InputError, match=r"shard-00000.arrow .*; its samples were data in memory: restore it"):
        raysim.resume(tmp_path / "run", inline=True)


def test_changes_may_name_another_data_set(tmp_path: Path) -> None:
    config = {**EXPERIMENT, "data": {"dataset": object(), "test": 0.2}}
    made = quick_run(config, tmp_path / "run", inline=True, changes=["data.dataset=digits", "rounds=0"])
    assert 'dataset = "digits"' in (made.folder / "config.toml").read_text()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "the table": ({"data": PIXELS}, "data is numpy.ndarray of shape (1797, 1, 8, 8): must be what a file can hold"),
    "no labels": ({"data": {"dataset": PIXELS}}, "the data are numpy.ndarray of shape (1797, 1, 8, 8): must be a pair"),
    "another key": ({"data": {"dataset": (PIXELS, LABELS), "label": LABELS}}, "data.label is numpy.ndarray"),
    "another table": ({"data": {"dataset": (PIXELS, LABELS)}, "local": {"lr": PIXELS}}, "local.lr is numpy.ndarray"),
    "the top": ({"data": {"dataset": (PIXELS, LABELS)}, "seed": torch.tensor(LABELS)}, "seed is torch.Tensor of shape"),
    "a list": ({"data": {"dataset": (PIXELS, LABELS), "label": LABELS.tolist()}}, "data.label = [0, 1, 2"),
    "its name": ({"data": {"dataset": f"{MEMORY}12"}}, "stands for data that were in memory"),
    "another mistake": ({"data": {"dataset": object()}, "local": {"lrr": 1}}, "unknown key 'local.lrr'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_refusal_prints_no_array(name: str, tmp_path: Path) -> None:
    given, expected = WRONG[name]
    with pytest.raises(raysim.InputError) as error:
        raysim.run({**EXPERIMENT, **given}, tmp_path / "run", inline=True)
    line = str(error.value)
    assert expected in line and len(line) < 500 and "[[" not in line
    assert not (tmp_path / "run").exists()
