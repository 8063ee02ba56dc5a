"""Augmentation by a user's own function: keyed draws, its place in a chain, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file

from raysim.common.errors import InputError
from raysim.data.augment import Flip, augmentation
from raysim.data.own_augment import OwnAugmentation
from raysim.simulation.api import read_experiment
from tests.kit.own_code import own_module
from tests.kit.runs import quick_run

X = torch.arange(24.0).view(2, 3, 2, 2)
DRAWS = torch.tensor([[0.25, 0.5], [0.0, 0.75]])
SEEDS = [(1 << 22) << 24 | (1 << 23), 3 << 22]

CODE = """
import torch


def noisy(sample, generator):
    return sample + 0.1 * torch.randn(sample.shape, generator=generator)


def nothing(sample, generator):
    return sample


def own_draws(sample, generator):
    return sample + torch.randn(sample.shape)


def halves(sample, generator):
    return sample[:, :2]


def fails(sample, generator):
    return sample.gone


def short(sample):
    return sample
"""


def noisy(sample: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return sample + torch.rand(sample.shape, generator=generator)


def test_each_sample_has_a_generator_seeded_by_its_draws_and_the_given_samples_stay() -> None:
    def inplace(sample: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        sample += torch.rand(sample.shape, generator=generator)
        return sample

    kept = X.clone()
    expected = [
        x + torch.rand(x.shape, generator=torch.Generator().manual_seed(s)) for x, s in zip(X, SEEDS, strict=True)
    ]
    for change in (noisy, inplace):
        assert torch.equal(OwnAugmentation("mine:f", change)(X, DRAWS), torch.stack(expected))
    assert torch.equal(X, kept)


def test_it_stands_in_a_chain_with_draws_of_its_own() -> None:
    chain = augmentation(["flip", "mine:f"], {}, None, (3, 2, 2), {"mine:f": noisy})
    assert chain is not None and chain.numbers == 3
    draws = torch.cat([torch.tensor([[0.1], [0.9]]), DRAWS], 1)
    flipped = Flip()(X, draws[:, :1])
    assert torch.equal(chain(X, draws), OwnAugmentation("mine:f", noisy)(flipped, DRAWS))


def test_labels_that_are_images_stay_or_move_by_an_equal_generator() -> None:
    y = torch.arange(8, dtype=torch.uint8).view(2, 2, 2)
    moving = OwnAugmentation("mine:f", lambda sample, generator: sample)
    assert torch.equal(moving.labels(y, DRAWS), y)

    def turn(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return value.flip(-1) if torch.rand((), generator=generator) < 0.5 else value

    turn.labels = turn  # type: ignore[attr-defined]
    both = OwnAugmentation("mine:f", turn)
    assert torch.equal(both(y[:, None].float(), DRAWS)[:, 0], both.labels(y, DRAWS).float())


def test_samples_that_are_no_images_are_changed_by_own_functions_alone() -> None:
    assert augmentation(["mine:f"], {}, None, (5,), {"mine:f": noisy}) is not None
    with pytest.raises(InputError, match="must be on images"):
        augmentation(["flip", "mine:f"], {}, None, (5,), {"mine:f": noisy})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda x, g: x[0], r"must return a tensor \(3, 2, 2\) of torch.float32, .* returns \(2, 2\) of torch.float32"),
        (
            lambda x, g: x.double(),
            r"and returns \(3, 2, 2\) of torch.float64 \(test_own_augment.py, line \d+\); correct it",
        ),
        (lambda x, g: None, r"and returns a NoneType \(test_own_augment.py, line \d+\); correct it"),
        (lambda x, g: x.gone, r"must take samples of shape \(3, 2, 2\), and raised AttributeError: .*gone"),
        (
            lambda x, g: import_module("kornea.filters"),
            r"No module named 'kornea'; install kornea, or import it at the top if it lies beside your file$",
        ),
        (lambda x, g: sys.exit(3), r"must take samples of shape \(3, 2, 2\), and raised SystemExit: 3; correct it"),
    ],
)
def test_a_function_that_does_not_fit_is_refused(change: Callable[..., Any], text: str) -> None:
    with pytest.raises(InputError, match=text) as error:
        augmentation(["mine:f"], {}, None, (3, 2, 2), {"mine:f": change})
    assert "\n" not in str(error.value) and str(error.value).startswith("data.augment = 'mine:f': ")


class Counting:
    """Augmentation that counts its calls."""

    calls = 0

    def __call__(self, sample: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        self.calls += 1
        return sample * self.calls


def test_one_that_keeps_something_on_itself_is_refused_before_the_run() -> None:
    says = r"^data\.augment = 'mine:f': must keep nothing on itself, and sets 'calls' \(test_own.*\); compute it anew"
    with pytest.raises(InputError, match=says):
        augmentation(["mine:f"], {}, None, (3, 2, 2), {"mine:f": Counting()})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with own_module(tmp_path_factory.mktemp("own"), "augment_code", CODE) as found:
        yield found


def experiment(folder: Path, augment: Any, **local: Any) -> dict[str, Any]:
    return {
        "rounds": 2,
        "data": {"dataset": "digits", "test": 0.8, "augment": augment},
        "partition": {"scheme": "quantity", "clients": 10},
        "model": {"name": "mlp", "hidden": [8], "norm": "batch"},
        "local": {"lr": 0.1, "batch_size": 16, **local},
        "fleet": {"block": 5},
        "evaluate": {"every": 0},
        "modules": [str(folder)],
    }


@pytest.mark.parametrize(
    ("augment", "text"),
    [
        ("augment_code:short", r"data\.augment = 'augment_code:short': must take \(sample, generator\)"),
        (["flip", "augment_code:nosy"], r"data\.augment = 'augment_code:nosy'.*did you mean 'augment_code:noisy'"),
        (["turn"], r"unknown data\.augment = 'turn': must be one of append, crop, .*module:NAME"),
        (["append", "augment_code:noisy"], r'with "append": must be without an augmentation of your own'),
        (["append", "flap"], r"unknown data\.augment = 'flap'.*did you mean 'flip'"),
    ],
)
def test_wrong_names_are_refused_in_one_line(folder: Path, augment: Any, text: str) -> None:
    with pytest.raises(InputError, match=text) as error:
        read_experiment(experiment(folder, augment))
    assert "\n" not in str(error.value)


def test_every_execution_trains_on_the_same_samples(folder: Path, tmp_path: Path) -> None:
    ways = ("sequential", "vectorised")
    runs = {way: experiment(folder, "augment_code:noisy", execution=way, precision="fp64") for way in ways}
    runs["plain"] = experiment(folder, "augment_code:nothing", execution="sequential", precision="fp64")
    models = {
        way: load_file(quick_run(given, tmp_path / way, inline=True).folder / "fedavg/model.safetensors")
        for way, given in runs.items()
    }
    for name, value in models["sequential"].items():
        assert abs(value - models["vectorised"][name]).max() < 1e-9
    assert any(abs(value - models["plain"][name]).max() > 1e-3 for name, value in models["sequential"].items())


def test_draws_of_torch_s_own_are_refused_in_stacked_steps(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="your own code draws random numbers in a step"):
        quick_run(experiment(folder, "augment_code:own_draws", execution="vectorised"), tmp_path / "run", inline=True)
