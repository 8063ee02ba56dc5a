"""Rules of the house: rooms, imports without circles, unique names, docstrings in plain English."""

import ast
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.kit.sources import PACKAGES, ROOT, files, nodes_of, source_of

LOOSE = {"__init__.py", "__main__.py"}
EXCLUDED = "What|Who|How|Where|Whose|That|Those|Which|Within|The one|The same|As|So"
"""First words that CONTRIBUTING rules out, because a sentence behind them has to be read twice."""


def modules() -> dict[str, Path]:
    """All files by their dotted names; a package's is its `__init__`."""
    found = {}
    for path in (path for package in PACKAGES for path in files(package)):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: set[str]) -> Iterator[str]:
    """The modules of ours that a file imports, inside functions and for annotations too."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                if inside in known:
                    yield inside
                elif node.module in known:
                    yield node.module


def test_no_circle_of_imports_between_files() -> None:
    found = modules()
    known = set(found)
    try:
        TopologicalSorter({name: set(imports(path, known)) - {name} for name, path in found.items()}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("package", ["raysim", "partitioning"])
def test_every_file_lies_in_a_room(package: str) -> None:
    loose = {path.name for path in (ROOT / package).glob("*.py")} - LOOSE
    assert not loose, f"{sorted(loose)} must lie in a room of {package}/"


def test_only_methods_lie_at_the_top_of_algorithms() -> None:
    """A method's file defines an algorithm that the table of names has; the table lies beside them."""
    from algorithms import names

    methods = {function.__module__.rpartition(".")[2] for function in names.ALGORITHMS.values()}
    loose = {path.stem for path in (ROOT / "algorithms").glob("*.py")}
    assert loose == methods | {"__init__", "names"}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_class_name_stands_twice(package: str) -> None:
    places = defaultdict(list)
    for path in files(package):
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert not {name: where for name, where in places.items() if len(where) > 1}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_text_begins_with_an_excluded_word(package: str) -> None:
    """Neither a docstring nor a comment, nor a sentence in a docstring."""
    begins = re.compile(rf"(?:^|[.:!?]\s+)({EXCLUDED})\b")
    wrong = []
    for path in files(package):
        # A file is split into tokens, which takes long, only if a comment may begin so.
        said = comments(path) if re.search(rf"#.*\b({EXCLUDED})\b", source_of(path)) else ()
        for line, text in [*docstrings(path), *said]:
            if match := begins.search(text):
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {text[match.start() :][:60]!r}")
    assert not wrong, "\n".join(wrong)


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Every docstring, and the strings below constants, with their lines."""
    for node in nodes_of(path):
        for statement in getattr(node, "body", []) if not isinstance(node, ast.IfExp | ast.Lambda) else []:
            value = getattr(statement, "value", None)
            if isinstance(statement, ast.Expr) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.lineno, " ".join(value.value.split())


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Every first line of a comment."""
    with path.open("rb") as file:
        last = -1
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT:
                if token.start[0] != last + 1 or token.line[: token.start[1]].strip():
                    yield token.start[0], token.string.lstrip("# ")
                last = token.start[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_tests_mirror_the_rooms(package: str) -> None:
    rooms = {str(path.parent.relative_to(ROOT / package)) for path in (ROOT / package).rglob("*.py")}
    mirrored = {str(path.parent.relative_to(ROOT / "tests" / package)) for path in files(f"tests/{package}")}
    # Recipes are no code; their tests lie beside the others.
    assert mirrored <= rooms | {"recipes"}


PROGRAMS = ("kit", "fuzz", "matrix", "benchmarks", "mutants", "environments")
"""Folders of tests/ that hold other modules than tests: shared helpers, and programs with a command of their own."""


def is_test(name: str) -> bool:
    return name.startswith("test_") or name == "conftest"


def test_no_test_module_is_imported_by_another() -> None:
    paths = {path: path.relative_to(ROOT).with_suffix("").parts for path in files("tests")}
    known = {".".join(parts) for parts in paths.values()}
    tests = "|".join(parts[-1] for parts in paths.values() if is_test(parts[-1]))
    wrong = []
    for path, parts in paths.items():
        # A file is parsed, which takes long, only if it names a test module, or may have a relative import.
        if re.search(rf"\b({tests})\b|\bfrom +\.", source_of(path)):
            wrong += [f"{path}: {each}" for each in imports(path, known) if is_test(each.rpartition(".")[2])]
            wrong += [f"{path}: a relative import" for n in nodes_of(path) if isinstance(n, ast.ImportFrom) and n.level]
        if parts[1] not in PROGRAMS and not is_test(parts[-1]) and parts[-1] != "__init__":
            wrong.append(f"{path}: no test; what tests share lies in tests/kit/")
    assert not wrong, "\n".join(wrong)
