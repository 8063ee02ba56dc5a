"""Notices of the user's own code: whose code runs, and state of its modules that no key seeds and no checkpoint has."""

from __future__ import annotations

import ast
import inspect
import random
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSequence, MutableSet
from types import ModuleType
from typing import Any

from raysim.config.own import OURS

CHANGING = (
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove"),
    *("setdefault", "subtract", "update"),
)
"""Methods of Python's containers that change them."""

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
"""Syntax whose name is a part of the paths of the functions in it."""

BODIES = (ast.stmt, ast.ExceptHandler, ast.match_case)
"""Syntax with statements in it; expressions have none, and may be nested too deeply for a recursion."""


def own_code_notices(names: Iterable[str]) -> list[str]:
    """Return a notice for each name of foreign code, so that the reader knows whose code runs."""
    own = [name for name in dict.fromkeys(names) if ":" in name and re.split(r"[.:]", name)[0] not in OURS]
    files = {name: getattr(sys.modules[name.partition(":")[0]], "__file__", None) for name in own}
    return [
        f"{name} is not part of raysim: the code of {file or 'this session'} runs here and in the actors, with all "
        "your permissions"
        for name, file in files.items()
    ]


def module_notices(modules: Iterable[ModuleType]) -> list[str]:
    """Return notices of the first random generator and of the first variable that the modules' functions change."""
    modules = list(modules)
    return [*_generator_notices(modules), *_variable_notices(modules)]


def _generator_notices(modules: Iterable[ModuleType]) -> list[str]:
    import numpy as np  # late, as torch: a wrong file is refused without them

    kinds: list[type] = [np.random.Generator, np.random.RandomState, random.Random]
    if (torch := sys.modules.get("torch")) is not None:
        kinds.append(torch.Generator)
    held = [(module, name) for module in modules for name, value in vars(module).items() if type(value) in kinds]
    return [
        f"{module.__name__}.{name} is a random generator that raysim does not seed: its draws may differ with the "
        "number of actors; make it where you draw: np.random.default_rng(np.random.randint(2**31, size=4))"
        for module, name in held[:1]
    ]


def _variable_notices(modules: Iterable[ModuleType]) -> list[str]:
    found = [(module.__name__, *change) for module in modules for change in _changes(module)]
    others = len({(module, name) for module, *_, name in found}) - 1
    return [
        f"{module}.{function} (line {line}) changes {module}.{name}, which is in no checkpoint, and which each actor "
        "has for itself: the result may differ with the number of actors and after a resume; keep it in context.state, "
        "or in the memory of a rule" + (f"; variables changed like this: {others} more" if others else "")
        for module, function, line, name in found[:1]
    ]


def _changes(module: ModuleType) -> Iterator[tuple[str, int, str]]:
    """Yield the path of a function of a module, its line, and a variable of the module that it changes."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):  # It has no source.
        return
    for path, function in _functions(tree):
        nodes = list(ast.walk(function))
        shared = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
        stored = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
        own = (stored | {node.arg for node in nodes if isinstance(node, ast.arg)}) - shared
        names = [*sorted(stored & shared), *(name for node in nodes if (name := _changed(node, vars(module))))]
        yield from ((path, function.lineno, name) for name in names if name not in own)


def _functions(node: ast.AST, above: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield the functions and methods below a node of the syntax, by names such as `Mine.update`."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{above}{each.name}", each
        if isinstance(each, BODIES):
            yield from _functions(each, f"{above}{each.name}." if isinstance(each, SCOPES) else above)


def _changed(node: ast.AST, variables: Mapping[str, Any]) -> str:
    """Return the name of the variable whose content a node of the syntax changes; "" if it changes none."""
    changed: ast.AST | None = None
    kinds: tuple[type, ...] = (object,)
    if isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
        changed = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
        changed, kinds = node.func.value, (MutableMapping, MutableSequence, MutableSet)
    while isinstance(changed, ast.Subscript | ast.Attribute):
        changed = changed.value
    name = changed.id if isinstance(changed, ast.Name) else ""
    value = variables.get(name)
    return name if name in variables and isinstance(value, kinds) and not isinstance(value, ModuleType) else ""
