"""Benchmarks run by hand and seldom: that what they import is there is seen with all tests."""

import importlib
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", sorted(path.stem for path in HERE.glob("[a-z]*.py") if "test_" not in path.name))
def test_a_benchmark_finds_what_it_imports(name: str) -> None:
    importlib.import_module(f"tests.benchmarks.{name}")
