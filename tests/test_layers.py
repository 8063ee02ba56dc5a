"""Imports point down only: what each package needs, seen from a process of its own."""

import ast
import subprocess
import sys

import pytest

from tests.kit.sources import ROOT, files, nodes_of, source_of

FORBIDDEN = {
    "partitioning": {"torch", "ray", "algorithms", "raysim"},
    "algorithms": {"ray", "raysim", "partitioning"},
}


@pytest.mark.parametrize("package", FORBIDDEN)
def test_lower_packages_import_nothing_from_above(package: str) -> None:
    for path in files(package):
        for node in nodes_of(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & FORBIDDEN[package], path


@pytest.mark.parametrize("package", FORBIDDEN)
def test_importing_a_lower_package_loads_nothing_from_above(package: str) -> None:
    code = f"import sys, {package}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & FORBIDDEN[package]


def test_only_fleets_know_ray() -> None:
    for path in files("raysim"):
        if path.relative_to(ROOT).parts[1] not in ("fleet", "cluster"):
            text = source_of(path)
            assert "import ray\n" not in text and "from ray " not in text, path


def test_a_report_is_written_without_torch() -> None:
    code = "import sys, raysim.report; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"torch", "ray"}


FLOORS = ("core", "training", "parts", "options", "rounds")
"""Rooms of `algorithms`, from the lowest; the methods stand on the highest."""


def test_the_floors_of_algorithms_import_only_lower_ones() -> None:
    above = {}
    for number, room in enumerate(FLOORS):
        for path in (ROOT / "algorithms" / room).glob("*.py"):
            modules = {node.module or "" for node in nodes_of(path) if isinstance(node, ast.ImportFrom)}
            inner = {module.removeprefix("algorithms.") for module in modules if module.startswith("algorithms")}
            higher = {name for name in inner if name.partition(".")[0] not in FLOORS[: number + 1]}
            if higher:
                above[f"{room}.{path.stem}"] = higher
    assert not above
