"""Faults of a user's own code: they name the place of the code."""

import sys
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch import nn

from algorithms import Samples
from algorithms.core.returned import Returned

LINES = {line.strip(): number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1)}


def train(model: Any) -> None: ...


def logged(function: Any) -> Any:
    @wraps(function)
    def call(*given: Any) -> Any:
        return function(*given)

    return call


@logged
def wrapped(model: Any) -> None: ...


class Rule:
    def __call__(self, model: Any) -> None: ...

    def value(self, sums: Any) -> None: ...


class Network(nn.Module):
    def forward(self, features: Any) -> None: ...


class Inherited(nn.Identity): ...


@pytest.mark.parametrize(
    ("thing", "line"),
    [
        (train, "def train(model: Any) -> None: ..."),
        (wrapped, "@logged"),
        (Rule, "def __call__(self, model: Any) -> None: ..."),
        (Rule(), "def __call__(self, model: Any) -> None: ..."),
        (Network(), "def forward(self, features: Any) -> None: ..."),
        (Network, "def forward(self, features: Any) -> None: ..."),
        (Rule().value, "def value(self, sums: Any) -> None: ..."),
    ],
)
def test_a_fault_names_file_and_line(thing: Any, line: str) -> None:
    place = f"test_returned.py, line {LINES[line]}"
    assert str(Returned("key = 'x:y'", thing).fault("work")) == f"key = 'x:y': must work ({place}); correct it"


def in_cell(model: Any) -> None: ...


@pytest.mark.parametrize("file", ["/tmp/ipykernel_3/77.py", "<ipython-input-2-6>"])
def test_a_cell_that_another_process_numbers_is_a_cell(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_cell, "__code__", in_cell.__code__.replace(co_filename=file))
    line = LINES["def in_cell(model: Any) -> None: ..."]
    assert f"must work (a cell, line {line}); correct it" in str(Returned("key = 'x:y'", in_cell).fault("work"))


def test_a_place_needs_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    assert "(test_returned.py, line " in str(Returned("key = 'x:y'", in_cell).fault("work"))


@pytest.mark.parametrize("thing", [None, len, 3, Inherited()])
def test_a_thing_without_a_file_has_no_place(thing: Any) -> None:
    assert str(Returned("key = 'x:y'", thing).fault("work")) == "key = 'x:y': must work; correct it"


def test_a_weighting_of_one_s_own_is_placed() -> None:
    assert "weighting.py, line" in str(Returned("weighting", Samples()).fault("return numbers"))
