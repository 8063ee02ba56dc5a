"""Prepared samples in whole runs: the keys of `[data]` and their refusals."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

import raysim
from partitioning import Population
from partitioning.sources.arrays import nested
from raysim.common.errors import InputError
from raysim.config.experiment import Experiment
from raysim.data.augment import AugmentationChain, Crop, Flip
from raysim.simulation.population import population_of
from raysim.simulation.samples import prepare_samples
from tests.kit.runs import quick_run

DATA = {"dataset": "digits", "test": 0.1}
AUGMENTED = {**DATA, "standardise": "global", "augment": ["crop", "flip", "colour-jitter"], "crop_padding": 1}


def experiment(data: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "seed": 3,
        "rounds": 2,
        "data": data,
        "partition": {"scheme": "dirichlet-qp", "clients": 6, "label_alpha": 0.5, "test_clients": 1},
        "model": {"name": "mlp", "hidden": [12]},
        "local": {"batch_size": 32},
        "algorithm": {"name": "fedavg"},
        "fleet": {"block": 3},
        **more,
    }


def model(folder: Path, name: str = "fedavg") -> bytes:
    return (folder / name / "model.safetensors").read_bytes()


def test_the_resolved_experiment_says_how_samples_are_augmented(tmp_path: Path) -> None:
    quick_run(experiment(AUGMENTED, rounds=1), tmp_path / "run", inline=True)
    resolved = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert resolved["data"]["augment"] == ["crop", "flip", "colour-jitter"] and resolved["data"]["hue"] == 0.05
    assert Experiment.of(resolved).to_toml() == resolved


def test_every_execution_trains_on_the_same_augmented_images(tmp_path: Path) -> None:
    ways = ("sequential", "vectorised", "fused")
    tables = [{"name": "fedavg", "local": {"execution": way, "precision": "fp64"}} for way in ways]
    quick_run(experiment(AUGMENTED, algorithm=tables, rounds=1), tmp_path / "run", inline=True)
    one, *others = (
        load_file(tmp_path / "run" / name / "model.safetensors") for name in ("fedavg", "fedavg-2", "fedavg-3")
    )
    for other in others:
        for name, values in one.items():
            np.testing.assert_allclose(other[name], values, rtol=0, atol=1e-9)
    quick_run(
        experiment({**AUGMENTED, "augment": [], "crop_padding": 2}, algorithm=tables[0], rounds=1),
        tmp_path / "b",
        inline=True,
    )
    plain = load_file(tmp_path / "b" / "fedavg" / "model.safetensors")
    assert max(np.abs(plain[name] - one[name]).max() for name in one) > 1e-3


def test_a_made_population_stays_and_is_prepared_as_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    made = population_of(Experiment.of(experiment(DATA)), tmp_path / "p")
    keys = {"image_size": 6, "channels": 3, "standardise": "global", "augment": ["crop", "flip"]}
    file = experiment({"population": str(made.path), **keys})
    del file["partition"]
    quick_run(file, tmp_path / "run", inline=True)
    weights = load_file(tmp_path / "run" / "fedavg" / "model.safetensors")
    assert {3 * 6 * 6} == {value.shape[1] for value in weights.values() if value.shape[:1] == (12,) and value.ndim == 2}
    found = prepare_samples(made, Experiment.of(file).data)
    assert (found.shape, found.labels.outputs) == ((3, 6, 6), 10) and found.augment == AugmentationChain(
        (Crop(2), Flip())
    )
    assert found.standardise is not None and not found.standardise.per_client
    assert len(found.standardise.scale.mean) == 3
    assert Population.open(made.path).digest == made.digest


def test_copies_are_made_before_and_nothing_is_changed_in_training(tmp_path: Path) -> None:
    data = Experiment.of(experiment({**DATA, "augment": "append"})).data
    assert (data.augment, data.changes) == (("append", "flip", "colour-jitter"), ("flip", "colour-jitter"))
    made = population_of(Experiment.of(experiment({**DATA, "augment": ["append", "flip"]})), tmp_path / "p")
    assert prepare_samples(made, data).augment is None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"population": "p", "classes": [1]}, "data.classes with data.population: must be left out"),
        ({"population": "p", "split": "all"}, "data.split with data.population: must be left out"),
        ({"population": "p", "augment": "append"}, 'data.augment with "append" and data.population'),
        ({"dataset": "digits", "crop_padding": 4}, 'data.crop_padding = 4: must stand with data.augment = ["crop"]'),
        ({"dataset": "digits", "hue": 0.1, "augment": "flip"}, 'data.hue = 0.1: must stand with data.augment = ["col'),
        ({"dataset": "digits", "augment": ["flip", "flip"]}, "should name each only once"),
        ({"dataset": "digits", "augment": ["turn"]}, "data.augment"),
        ({"dataset": "digits", "crop_size": 4}, 'data.crop_size = 4: must stand with data.augment = ["crop"]; add it'),
        ({"dataset": "digits", "crop_scale": [0.5, 1.0], "augment": "crop"}, 'data.augment = ["resized-crop"]; add it'),
        (
            {"dataset": "digits", "crop_scale": [1.0, 0.5], "augment": "resized-crop"},
            "should be the lowest and the highest",
        ),
        (
            {"dataset": "digits", "crop_size": 4, "augment": ["append", "crop"]},
            'data.crop_size with data.augment = "app',
        ),
        ({"dataset": "digits", "channels": 2}, "data.channels = 2"),
        ({"dataset": "digits", "image_size": [8]}, "data.image_size"),
        ({"dataset": "digits", "image_size": 0}, "data.image_size = 0"),
        ({"dataset": "digits", "classes": []}, "data.classes"),
        ({"dataset": "digits", "test": ""}, 'data.test = "": must be a data set or a share'),
        ({"dataset": "digits", "standardise": "local"}, "data.standardise = 'local'"),
        (
            {"dataset": "digits", "standardise": "client", "augment": "colour-jitter"},
            'data.standardise = "client" with data.augment = ["colour-jitter"]: must be "global" or "none"',
        ),
    ],
)
def test_keys_that_make_no_sense_are_refused_in_one_line(keys: dict[str, Any], message: str) -> None:
    file = experiment(keys)
    if "population" in keys:
        del file["partition"]
    with pytest.raises(InputError) as error:
        Experiment.of(file)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_image_keys_on_columns_of_numbers_leave_nothing_behind(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": np.arange(40.0), "label": np.arange(40) % 2}), tmp_path / "t.parquet")
    for key, value in {"image_size": 8, "channels": 3, "augment": ["flip"]}.items():
        file = experiment({"dataset": f"file:{tmp_path / 't.parquet'}", key: value}, partition={"clients": 2})
        with pytest.raises(InputError, match=f"^data.{key}"):
            raysim.run(file, tmp_path / "run", inline=True)
        assert not (tmp_path / "run").exists()


def test_augmentations_that_do_not_fit_the_samples_leave_nothing_behind(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(40, 1, 4, 4))
    pq.write_table(pa.table({"image": nested(x), "label": np.arange(40) % 2}), tmp_path / "t.parquet")
    for keys, message in (
        ({"augment": ["crop"], "crop_padding": 4}, "data.crop_padding = 4 on images of 4x4"),
        ({"augment": ["colour-jitter"]}, '"colour-jitter" on column .image. of client . with values of -'),
        ({"augment": "append"}, '"colour-jitter" on rows 0 to 39 of column .image. with values of -'),
        ({"test": "gaussians"}, "data.test = 'gaussians': must have no test set of its own"),
    ):
        file = experiment({"dataset": f"file:{tmp_path / 't.parquet'}", **keys}, partition={"clients": 2})
        with pytest.raises(InputError, match=message):
            raysim.run(file, tmp_path / "run", inline=True)
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["digitss", "./x.csv", "hf:", "memory:1", "digits,digits", "file:~no-such-user/x.csv"])
def test_a_fault_of_the_test_set_names_its_key(name: str, tmp_path: Path) -> None:
    for key, data in {"test": {"dataset": "digits", "test": name}, "dataset": {"dataset": name}}.items():
        with pytest.raises(InputError) as caught:
            raysim.run(experiment(data), tmp_path / "run", inline=True)
        other = "dataset" if key == "test" else "test"
        assert f"data.{key} " in str(caught.value) and f"data.{other} " not in str(caught.value)
