"""Benchmarks run by hand and seldom: that what they import is there is seen with all tests."""

import importlib
from pathlib import Path

import pytest

HERE = Path(__file__).parent


FILES = [path for folder in (HERE, HERE / "gpu") for path in folder.glob("[a-z]*.py") if "test_" not in path.name]


@pytest.mark.parametrize("name", sorted(".".join(path.relative_to(HERE).with_suffix("").parts) for path in FILES))
def test_a_benchmark_finds_what_it_imports(name: str) -> None:
    importlib.import_module(f"tests.benchmarks.{name}")
