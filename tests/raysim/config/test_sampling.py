"""`algorithm.sampling`: names, and a rule of the user's own."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raysim
from raysim.common.errors import InputError, OwnCodeError
from raysim.simulation.api import read_experiment
from tests.kit.own_code import own_module

RULES = """
def rule(context):
    return context.clients[:2]


def short():
    return [0]


class Needing:
    def __init__(self, share):
        self.share = share

    def __call__(self, context):
        return [0]


def raising(context):
    return context.gone
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with own_module(tmp_path_factory.mktemp("rules"), "sampling_rules", RULES) as found:
        yield found


def of(folder: Path, **keys: Any) -> dict[str, Any]:
    return {
        "rounds": 1,
        "data": {"dataset": "digits"},
        "partition": {"scheme": "iid", "clients": 4},
        "algorithm": {"sampling": "sampling_rules:rule", **keys},
        "evaluate": {"every": 0},
        "modules": [str(folder)],
    }


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (
            {"sampling": "unifrom"},
            r"unknown algorithm\.sampling = 'unifrom': did you mean 'uniform'\? It must be one of",
        ),
        ({"sampling": "sampling_rules:ruel"}, r"'sampling_rules:ruel': did you mean 'sampling_rules:rule'\? It must"),
        ({"sampling": "sampling_rules:short"}, r"sampling_rules:short': must take \(context\), and does not"),
        ({"sampling": "sampling_rules:Needing"}, r"'sampling_rules:Needing': must be made without arguments"),
        ({"candidates": 3}, r'algorithm\.candidates = 3 with algorithm\.sampling = "sampling_rules:rule"'),
        ({"oort": {"alpha": 1.0}}, r'algorithm\.oort with algorithm\.sampling = "sampling_rules:rule"'),
        ({"over": 1.5}, r'algorithm\.over = 1\.5 with algorithm\.sampling = "sampling_rules:rule"'),
    ],
)
def test_a_wrong_rule_is_refused_in_one_line(folder: Path, keys: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text) as error:
        read_experiment(of(folder, **keys))
    assert "\n" not in str(error.value)


def test_python_takes_the_function_and_an_error_of_a_rule_names_its_line(folder: Path) -> None:
    read_experiment(of(folder))  # imports the module
    rules = importlib.import_module("sampling_rules")
    assert read_experiment(of(folder, sampling=rules.rule)).algorithm[0].sampling == "sampling_rules:rule"
    with pytest.raises(OwnCodeError, match=r"AttributeError: .*gone.*sampling_rules\.py, line \d+, in raising"):
        raysim.run(of(folder, sampling="sampling_rules:raising"), out=folder / "run", inline=True)
