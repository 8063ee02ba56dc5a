"""Signatures as their authors wrote them, taken from the source."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from enum import Enum
from types import FunctionType
from typing import Any, cast

WIDEST = 76
"""Most characters of a line of a signature: a code block of the site has as many."""


def unparsed(node: ast.AST) -> str:
    """Return the source of an expression, with the quotes that the packages' own source has."""
    return re.sub(r"'([^'\"\\]*)'", r'"\1"', ast.unparse(node))


def signature(subject: Any, name: str) -> str:
    """Return how a function or class is called; "" for a class that is not called with arguments of its own."""
    if inspect.isfunction(subject):
        return _of_function(subject, name)
    return _of_class(subject, name)


def _of_function(function: FunctionType, name: str) -> str:
    node = _definition(function)
    returned = f" -> {unparsed(node.returns)}" if node.returns else ""
    return _call(name, list(_parameters(node.args)), returned)


def _of_class(kind: type, name: str) -> str:
    if issubclass(kind, Enum):
        return "\n".join(f"{name}.{member.name}" for member in kind)
    if dataclasses.is_dataclass(kind) and "__init__" in vars(kind):
        fields = _fields(kind)
        return _call(name, [fields[each] for each in inspect.signature(kind).parameters if each in fields], "")
    init = next((vars(each)["__init__"] for each in kind.__mro__[:-1] if "__init__" in vars(each)), None)
    if not inspect.isfunction(init) or issubclass(kind, BaseException) or getattr(kind, "_is_protocol", False):
        return ""
    parameters = list(_parameters(_definition(init).args))
    return _call(name, parameters, "") if parameters else ""


def _definition(function: FunctionType) -> ast.FunctionDef:
    return cast(ast.FunctionDef, ast.parse(textwrap.dedent(inspect.getsource(function))).body[0])


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    """Yield parameters with annotation and default, `self` left out."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    for each, default in zip(positional, defaults, strict=True):
        if each.arg not in ("self", "cls"):
            yield _parameter(each, default)
    if arguments.vararg:
        yield f"*{_parameter(arguments.vararg, None)}"
    elif arguments.kwonlyargs:
        yield "*"
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(each, default)
    if arguments.kwarg:
        yield f"**{_parameter(arguments.kwarg, None)}"


def _parameter(each: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {unparsed(each.annotation)}" if each.annotation else ""
    equals = " = " if annotation else "="
    return each.arg + annotation + (f"{equals}{unparsed(default)}" if default else "")


def _fields(kind: type) -> dict[str, str]:
    """Return a dataclass's fields with annotation and default, those of its bases too."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        if not dataclasses.is_dataclass(each):
            continue
        body = cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]).body
        for node in body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                default = _default(node.value) if node.value else ""
                found[node.target.id] = f"{node.target.id}: {unparsed(node.annotation)}{default}"
    return found


def _default(value: ast.expr) -> str:
    """Return the default of a dataclass's field, without the call of `field`."""
    if isinstance(value, ast.Call) and unparsed(value.func).endswith("field"):
        given = {each.arg: each.value for each in value.keywords}
        if "default" in given:
            return f" = {unparsed(given['default'])}"
        if "default_factory" in given:
            return f" = {unparsed(given['default_factory'])}()"
        return ""
    return f" = {unparsed(value)}"


def _call(name: str, parameters: list[str], returned: str) -> str:
    line = f"{name}({', '.join(parameters)}){returned}"
    if len(line) <= WIDEST or not parameters:
        return line
    return "\n".join(
        [f"{name}(", *(f"    {each}," if each != "*" else "    *," for each in parameters), f"){returned}"]
    )
