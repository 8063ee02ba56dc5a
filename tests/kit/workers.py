"""Distribution of the tests to the workers of pytest: all with Ray to one, the others module by module."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

OWN_RAY = frozenset({"own_ray"})
RAY = OWN_RAY | {"shared_ray", "two_actors"}
"""Fixtures that start Ray, or end it."""

ROOT = Path(__file__).parents[2]


def module_of(nodeid: str) -> str:
    """Return the path of a test's module, relative to the root."""
    return nodeid.partition("::")[0]


@cache
def users(module: str, fixtures: frozenset[str]) -> frozenset[str]:
    """Return the tests and fixtures of a module that use one of the fixtures, also by way of each other.

    The source decides, because the process that hands the tests out collects none.

    Args:
        module: path of the module, relative to the root.
        fixtures: names of the fixtures.
    """
    text = (ROOT / module).read_text(encoding="utf-8")
    if not any(name in text for name in fixtures):
        return frozenset()  # at once: there are some 300 modules, and every worker asks
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    marks = [node for node in tree.body if isinstance(node, ast.Assign) and _names(node) & {"pytestmark"}]
    if any(_names(mark) & fixtures for mark in marks):
        return frozenset(function.name for function in functions)
    found: set[str] = set()
    while more := {each.name for each in functions if each.name not in found and _asked(each) & (fixtures | found)}:
        found |= more
    return frozenset(found)


def _asked(function: ast.FunctionDef) -> set[str]:
    """Return the names of a function's arguments and in its decorators."""
    return {each.arg for each in function.args.args} | {
        name for each in function.decorator_list for name in _names(each)
    }


def _names(tree: ast.AST) -> set[str]:
    """Return the names and texts in a piece of source."""
    nodes = list(ast.walk(tree))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return texts | {node.id for node in nodes if isinstance(node, ast.Name)}


def uses(nodeid: str, fixtures: frozenset[str]) -> bool:
    """Return whether a test uses one of the fixtures."""
    return nodeid.rpartition("::")[2].partition("[")[0] in users(module_of(nodeid), fixtures)


class RayTogether(LoadScopeScheduling):  # type: ignore[misc]
    """Scheduler that keeps all tests with Ray together, and the others of a module, which share what fixtures ran."""

    def _split_scope(self, nodeid: str) -> str:
        return "ray" if uses(nodeid, RAY) else module_of(nodeid)
