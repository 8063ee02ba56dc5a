"""A user's own module as the model, and models of which a part trains, in whole runs."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import tomli_w
from ray import cloudpickle
from safetensors.numpy import load_file, save_file

import raysim
from raysim.common.errors import InputError, OwnCodeError
from raysim.config.experiment import Experiment
from raysim.config.own_errors import describe_unordered
from tests.kit.runs import quick_run

MODULE = """
import math
import random

import numpy as np
import torch
from torch import nn

from {helper} import Doubled


class Mine(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int, hidden: int = 6, *, rate: float | None = None) -> None:
        super().__init__()
        self.first = nn.Linear(math.prod(shape), hidden)
        self.norms = nn.ModuleDict(dict(deep=Doubled(hidden)))
        self.last = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.last(torch.relu(self.norms["deep"](self.first(x.flatten(1)))))


class Fixed(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 10))


def made(classes, *, bias: bool = True):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes, bias=bias))


def other(shape, classes): return "no module"
def misnamed(shape, classes, norm="bach"): return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
def narrow(shape, classes): return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
def broken(shape, classes): return nn.Linear(5, classes)
def raising(shape, classes): raise KeyError("gone")
def bare(shape, classes, key=None): ...
def taken(shape, classes, *, groups: int = 1): ...
def seeded(shape, classes, *, seed: int = 1): ...
def positional(key: int, /): ...


class Plain(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 10))
        self.random = np.random.default_rng(0)


class Noisy(Plain):
    def forward(self, x):
        return super().forward(x) + (np.random.rand() + random.random() if self.training else 0)


class Lasting(Plain):
    def forward(self, x):
        return super().forward(x) + (self.random.random() if self.training else 0)


class Restless(Plain):
    def forward(self, x):
        return super().forward(x) + torch.rand(1)


class Halving(Plain):
    def forward(self, x):
        return super().forward(x.mul_(0.5))


class Squaring(Plain):
    def forward(self, x):
        return super().forward(x if self.training else torch.square_(x))


class Rectifying(nn.Sequential):
    def __init__(self):
        super().__init__(nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(64, 10))


class Hidden(Plain):
    def forward(self, x):
        x.numpy()[...] /= 2
        return super().forward(x)


class Detached(Plain):
    def forward(self, x):
        return super().forward(x).detach()


class Paired(Plain):
    def forward(self, x):
        return super().forward(x), x


class PairedInTraining(Plain):
    def forward(self, x):
        return (super().forward(x), x) if self.training else super().forward(x)


class Gradient(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        raise RuntimeError(
            "adaptive_avg_pool2d_backward_cuda does not have a deterministic implementation, but you set "
            "'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation"
        )


class Unordered(Plain):
    def forward(self, x):
        return Gradient.apply(super().forward(x))


class Raising(Plain):
    def forward(self, x):
        if len(x) > 30:
            raise KeyError("many")
        return super().forward(x)


number = 3
"""

HELPER = """
from torch import nn


class Doubled(nn.BatchNorm1d):
    def forward(self, x):
        return 2 * super().forward(x)
"""

BASE: dict[str, Any] = {
    "seed": 5,
    "rounds": 2,
    "data": {"dataset": "digits"},
    "partition": {"scheme": "dirichlet-qp", "clients": 6, "test_clients": 1},
    "local": {"momentum": 0.9, "weight_decay": 0.01},
    "fleet": {"block": 1},
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with `own_model.py` and what it imports; both are forgotten at the end."""
    names = {"own_model": MODULE.format(helper="own_layers"), "own_layers": HELPER}
    for name, text in names.items():
        (tmp_path / f"{name}.py").write_text(text)
    yield tmp_path
    for name in names:
        sys.modules.pop(name, None)


def test_it_runs_from_a_file_and_from_python_with_the_same_bytes(folder: Path, two_actors: raysim.Actors) -> None:
    file = folder / "experiment.toml"
    algorithm = [{"name": "radfed", "aggregate_every": 2, "cohort": 4}, {"name": "fedbn"}]
    raw = {**BASE, "algorithm": algorithm}
    file.write_text(tomli_w.dumps({**raw, "model": {"name": "own_model:Mine", "hidden": 4}}))
    actors = quick_run(file, folder / "actors", fleet=two_actors)
    mine = {"name": sys.modules["own_model"].Mine, "hidden": 4}
    inline = quick_run({**raw, "model": mine}, folder / "inline", inline=True)
    assert not cloudpickle.list_registry_pickle_by_value()
    text = (folder / "inline" / "config.toml").read_text()
    assert 'name = "own_model:Mine"' in text and "norm =" not in text
    for name in ("radfed", "fedbn"):
        models = [(run.folder / name / "model.safetensors").read_bytes() for run in (inline, actors)]
        assert models[0] == models[1]
    entries = load_file(folder / "actors" / "fedbn" / "model.safetensors")
    assert entries["first.weight"].shape == (4, 64) and "norms.deep.running_mean" in entries
    assert "norms.deep.weight" in load_file(folder / "actors" / "fedbn" / "personal.safetensors")


def test_its_norm_is_converted_where_one_is_named(folder: Path) -> None:
    model = {"name": "own_model:Mine", "norm": "group", "groups": 3}
    file = folder / "experiment.toml"
    file.write_text(tomli_w.dumps({**BASE, "rounds": 1, "model": model}))
    quick_run(file, folder / "group", inline=True)
    entries = load_file(folder / "group" / "fedavg" / "model.safetensors")
    assert "norms.deep.weight" in entries and "norms.deep.running_mean" not in entries


@pytest.mark.parametrize(("name", "size"), [("Fixed", 650), ("made", 650)])
def test_shape_and_classes_are_given_where_they_are_taken(folder: Path, name: str, size: int) -> None:
    file = folder / "experiment.toml"
    file.write_text(tomli_w.dumps({**BASE, "rounds": 0, "model": {"name": f"own_model:{name}"}}))
    quick_run(file, folder / "run", inline=True)
    entries = load_file(folder / "run" / "fedavg" / "model.safetensors")
    assert sum(value.size for value in entries.values()) == size


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"name": "nowhere:Mine"}, "model.name = 'nowhere:Mine': no module 'nowhere' in "),
        ({"name": "own_model:Mime"}, "unknown model.name = 'own_model:Mime'.* did you mean 'own_model:Mine'"),
        ({"name": "own_model:number"}, "must be callable, and is 3"),
        ({"name": "own_model:bare"}, "of the shape .* and key has no annotation"),
        ({"name": "own_model:taken"}, "groups is taken: every model has it"),
        ({"name": "own_model:seeded"}, "seed is taken"),
        ({"name": "own_model:positional"}, "key is positional-only"),
        ({"name": "own_model:Mine", "hiden": 3}, "unknown key 'model.hiden' of model own_model:Mine.*'hidden'"),
        ({"name": "own_model:Mine", "hidden": "x"}, "model.hidden = 'x'"),
        ({"name": "own_model:other"}, "it is a str, not a torch.nn.Module"),
        ({"name": "own_model:misnamed"}, "unknown model.norm = 'bach'"),
        ({"name": "own_model:narrow"}, "returns 10 logits each .*of two samples it returns \\(2, 3\\)"),
        ({"name": "own_model:broken"}, "must be one that takes samples of shape \\(1, 8, 8\\)"),
        ({"name": "own_model:raising"}, "must be made \\(KeyError: 'gone'\\)"),
        ({"name": "own_model:Lasting"}, "must return the same logits for the same samples, entries and seed"),
        ({"name": "own_model:Restless"}, "must return the same logits in evaluation, and draws random numbers there"),
        *(
            ({"name": f"own_model:{name}"}, "must leave its samples unchanged.* and changes them in place; correct it")
            for name in ("Halving", "Squaring", "Rectifying", "Hidden")
        ),
        ({"name": "own_model:Detached"}, "that depend on its parameters, and these are detached from them"),
        ({"name": "own_model:Paired"}, "returns 10 logits each .TypeError: it returns a tuple"),
        ({"name": "own_model:PairedInTraining"}, "return logits alone in training, and returns a tuple"),
        ({"name": "own_model:made", "norm": "batch"}, "must have a batch-norm layer to replace"),
        ({"name": "mlp", "norm": "bach"}, "model.norm = 'bach'"),
        ({"name": "mlp", "norm_momentum": 0.0}, "model.norm_momentum = 0.0"),
        ({"name": "cnn_dropout", "norm": "batch"}, "on a model without batch norm"),
        ({"name": "mlp", "weights": "nowhere.safetensors"}, "readable .safetensors file"),
        ({"name": "resnet20", "train": "x"}, "must be one of all, stem, .*, stage3block3.bn2, output; use one"),
        ({"name": "mlp", "norm": "batch", "train": "output"}, "no batch-norm layer that trains"),
    ],
)
def test_what_does_not_fit_is_one_line(folder: Path, model: dict[str, Any], message: str) -> None:
    file = folder / "experiment.toml"
    file.write_text(tomli_w.dumps({**BASE, "model": model, "algorithm": {"name": "fedbn"}}))
    with pytest.raises(InputError, match=message) as error:
        raysim.run(file, folder / "run", inline=True)
    assert "\n" not in str(error.value) and not (folder / "run").exists()


def test_draws_from_numpy_and_python_have_the_update_s_key(folder: Path) -> None:
    file = folder / "experiment.toml"
    file.write_text(tomli_w.dumps({**BASE, "model": {"name": "own_model:Noisy"}}))
    first = quick_run(file, folder / "first", inline=True)
    state, drawn = np.random.get_state()[1], random.random()  # type: ignore[index]  # noqa: NPY002
    second = quick_run(file, folder / "second", inline=True)
    models = [(run.folder / "fedavg" / "model.safetensors").read_bytes() for run in (first, second)]
    losses = [pq.read_table(run.folder / "fedavg" / "updates.parquet")["loss"].to_pylist() for run in (first, second)]
    assert models[0] == models[1] and losses[0] == losses[1]
    assert np.array_equal(state, np.random.get_state()[1]) and drawn != random.random()  # type: ignore[index]  # noqa: NPY002


def test_a_layer_that_is_not_deterministic_is_named(folder: Path) -> None:
    # On a GPU torch raises it in place of the layer's gradient, without a frame of the user's.
    error = RuntimeError("median CUDA with indices output does not have a deterministic implementation, but you set")
    assert describe_unordered(error).startswith("operation median CUDA with indices output: must be deterministic")
    assert not describe_unordered(RuntimeError("no such operation"))
    file = folder / "experiment.toml"
    file.write_text(tomli_w.dumps({**BASE, "model": {"name": "own_model:Unordered"}}))
    with pytest.raises(
        OwnCodeError,
        match=r"^[^\n]*: operation adaptive_avg_pool2d_backward_cuda: must [^\n]*WindowMean [^\n]*in backward",
    ):
        raysim.run(file, folder / "run", inline=True)


def test_what_it_raises_in_training_is_one_line_that_says_where(folder: Path) -> None:
    file = folder / "experiment.toml"
    file.write_text(tomli_w.dumps({**BASE, "model": {"name": "own_model:Raising"}, "local": {"batch_size": 40}}))
    with pytest.raises(OwnCodeError) as error:
        raysim.run(file, folder / "run", inline=True)
    line = next(i for i, text in enumerate(MODULE.splitlines(), 1) if 'raise KeyError("many")' in text)
    where = f"({folder / 'own_model.py'}, line {line}, in forward)"
    assert str(error.value) == f"your own code raised KeyError: 'many' {where}; see {folder / 'run' / 'run.log'}"
    log = (folder / "run" / "run.log").read_text()
    assert "Traceback" in log and f"line {line}, in forward" in log and (folder / "run" / "config.toml").exists()


def test_the_resolved_keys_are_those_that_mean_something() -> None:
    given = {"name": "cnn", "norm": "batch-renorm", "renorm_start": 20}
    model = Experiment.of({**BASE, "model": given}).to_toml()["model"]
    opening = {"renorm_r_max": 3.0, "renorm_d_max": 5.0, "renorm_start": 20, "renorm_r_end": 4000, "renorm_d_end": 2500}
    assert {key: value for key, value in model.items() if key.startswith("renorm")} == opening
    assert "init_std" not in model and "weights" not in model


@pytest.mark.slow
def test_a_run_starts_from_weights_and_trains_a_part(tmp_path: Path, two_actors: raysim.Actors) -> None:
    first = {"name": "mlp", "hidden": [8, 6], "norm": "batch"}
    quick_run({**BASE, "model": first}, tmp_path / "before", inline=True)
    trained = load_file(tmp_path / "before" / "fedavg" / "model.safetensors")
    save_file(trained, tmp_path / "start.safetensors")
    model = {**first, "weights": str(tmp_path / "start.safetensors"), "train": "linear2"}
    algorithms = [{"name": "fedavg"}, {"name": "fedbn"}, {"name": "radfed", "aggregate_every": 2}]
    raw = {**BASE, "model": model, "algorithm": algorithms}
    inline = quick_run(raw, tmp_path / "inline", inline=True)
    actors = quick_run(raw, tmp_path / "actors", fleet=two_actors)
    assert "starts from" in (tmp_path / "inline" / "run.log").read_text()
    part = 4 * (8 * 6 + 6 + 6 * 10 + 10)
    batch_norm = {"fedavg": 4 * 4 * 6 + 8, "fedbn": 0, "radfed": 4 * 4 * 6 + 8}
    for name, of_norm in batch_norm.items():
        path = inline.folder / name / "model.safetensors"
        assert path.read_bytes() == (actors.folder / name / "model.safetensors").read_bytes()
        entries = load_file(path)
        assert set(entries) == set(trained)
        for entry, value in entries.items():
            is_frozen = entry.startswith(("linear1", "norm1"))
            assert is_frozen == np.array_equal(value, trained[entry]), entry
        rows = pq.read_table(inline.folder / name / "metrics.parquet").to_pydict()
        assert rows["bytes_up"] == [5 * (part + of_norm)] * 2
        assert rows["bytes_down"] == rows["bytes_up"]


@pytest.mark.parametrize("name", ["builtins:dict", "builtins:type"])
def test_a_class_whose_parameters_cannot_be_read_is_refused(name: str) -> None:
    for table in ({"model": {"name": name}}, {"algorithm": {"name": name}}, {"server": {"rule": name}}):
        with pytest.raises(InputError, match="must have parameters that can be read"):
            Experiment.of({"data": {"dataset": "digits"}, **table})


def test_own_code_that_exits_is_refused(tmp_path: Path) -> None:
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(InputError, match=r"leaving must be importable \(SystemExit: 0\)"):
        Experiment.of({"data": {"dataset": "digits"}, "model": {"name": "leaving:x"}}, [tmp_path])
