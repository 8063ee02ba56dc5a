"""Types that signatures and docstrings name and the packages do not export: their definitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from docs.generated.aliases import NAME, alias, our_class
from docs.generated.docstrings import documented
from docs.generated.text import Names, heading, joined


def named_in(text: str) -> set[str]:
    """Return the names of types in the code of a page's text."""
    code = [*re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL), *re.findall(r"`([^`\n]+)`", text)]
    return {name for each in code for name in NAME.findall(each)}


def missing(subjects: Iterable[Any], documented_names: set[str]) -> Iterator[str]:
    """Yield the names that subjects use, and that are documented nowhere, and those that these use."""
    texts, seen = [documented(each, "", "", "", Names()) for each in subjects], set(documented_names)
    while texts:
        for name in sorted(named_in(texts.pop(0)) - seen):
            seen.add(name)
            if our_class(name) is not None or alias(name):
                texts.append(section(name, "", Names()))
                yield name


def section(name: str, page: str, names: Names) -> str:
    """Return the section of a type that is not exported."""
    kind = our_class(name)
    if kind is not None:
        return documented(kind, name, f"type.{name}", page, names)
    return joined(heading(3, f"`{name}`", f"type.{name}"), f"```python\n{name} = {alias(name)}\n```")
