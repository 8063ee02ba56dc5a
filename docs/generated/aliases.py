"""Names of types that are no classes, such as `Literal["a", "b"]`, and their definitions."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from docs.generated.signatures import unparsed

PACKAGES = ("algorithms", "partitioning", "raysim")
ROOT = Path(__file__).parents[2]
NAME = re.compile(r"(?<![\w.'\"])([A-Z]\w*[a-z]\w*)\b")


@cache
def sources() -> dict[Path, str]:
    """Return the source of every module of the packages."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {path: path.read_text(encoding="utf-8") for path in paths}


@cache
def _defined() -> tuple[dict[str, Path], dict[str, Path]]:
    """Return the first files that define each class, and each other capitalised name, in the order of the files."""
    classes: dict[str, Path] = {}
    others: dict[str, Path] = {}
    for path, text in sources().items():
        for name in re.findall(r"^class (\w+)", text, re.MULTILINE):
            classes.setdefault(name, path)
        for name in re.findall(r"^ *([A-Z]\w*[a-z]\w*)(?:: TypeAlias)? = ", text, re.MULTILINE):
            others.setdefault(name, path)
    return classes, others


@cache
def our_class(name: str) -> Any:
    """Return the class of the packages with a name; None if there is none."""
    path = _defined()[0].get(name)
    if path is None:
        return None
    return getattr(import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)), name)


@cache
def alias(name: str) -> str:
    """Return the definition of a type that is no class, such as `float | None`; "" if there is none."""
    path = None if our_class(name) else _defined()[1].get(name)
    for node in ast.walk(ast.parse(sources()[path])) if path else ():
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and target.id == name and value is not None:
            return _definition(value)
    return ""


def _definition(value: ast.expr) -> str:
    text = ast.literal_eval(value) if isinstance(value, ast.Constant) else unparsed(value)
    return "" if re.match(r"TypeVar|logging|re\.", str(text)) else str(text)


def with_choices(code: str) -> str:
    """Return a signature in which types that only name choices are written out."""
    return NAME.sub(lambda found: text if (text := alias(found[1])).startswith("Literal") else found[1], code)
