"""Docstrings as Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from docs.generated.aliases import with_choices
from docs.generated.signatures import signature
from docs.generated.text import Names, heading, joined

SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields")
ITEM = re.compile(r"^    (\*{0,2}\w[\w, .]*): (.+(?:\n     +.+)*)", re.MULTILINE)
LABEL = re.compile(r"^(Paper|Papers|Deviation|Deviations|Example): ")


def parts(subject: Any) -> list[str]:
    """Return the blocks of a docstring: the summary, paragraphs, equations, and sections such as "Args:"."""
    blocks = re.split(r"\n\s*\n", inspect.getdoc(subject) or "")
    merged: list[str] = []
    for block in blocks:
        is_code, was_code = block.startswith("    "), bool(merged) and merged[-1].startswith("    ")
        if is_code and was_code:
            merged[-1] += f"\n\n{block}"
        else:
            merged.append(block)
    return merged


def section(block: str) -> str:
    """Return the name of a block's section; "" for other blocks."""
    name = block.partition(":\n")[0]
    return name if name in SECTIONS else ""


def markdown(block: str, page: str, names: Names) -> str:
    """Return a block of a docstring as Markdown."""
    name = section(block)
    if name:
        return _section(name, block.partition(":\n")[2], page, names)
    if block.startswith("    "):
        return f"```text\n{inspect.cleandoc(block)}\n```"
    if block.startswith("- "):
        items = re.split(r"^- ", block, flags=re.MULTILINE)[1:]
        return "\n".join(f"- {names.text(' '.join(item.split()), page)}" for item in items)
    label = LABEL.match(block)
    text = names.text(" ".join(block[label.end() if label else 0 :].split()), page)
    return f"**{label[1]}.** {text[:1].upper()}{text[1:]}" if label else text


def _section(name: str, body: str, page: str, names: Names) -> str:
    title = {"Args": "Arguments"}.get(name, name)
    if name in ("Returns", "Yields"):
        return f"**{title}.** {names.text(' '.join(body.split()), page)}"
    items = [(item[1], " ".join(item[2].split())) for item in ITEM.finditer(body)]
    return joined(f"**{title}**", "\n".join(f"- `{key}`: {names.text(text, page)}" for key, text in items))


def documented(subject: Any, title: str, anchor: str, page: str, names: Names, level: int = 3) -> str:
    """Return a function's or a class's section: heading, signature, docstring and methods."""
    called = title + with_choices(signature(subject, title).removeprefix(title))
    code = f"```python\n{called}\n```" if called != title else ""
    blocks = [markdown(block, page, names) for block in parts(subject)]
    return joined(heading(level, f"`{title}`", anchor), code, *blocks, _methods(subject, page, names))


def _methods(subject: Any, page: str, names: Names) -> str:
    """Return the public methods and properties of a class, with the first paragraph of each."""
    lines = [f"- `{called}`: {names.text(text, page)}" for called, text in _members(subject)]
    return joined("**Methods and properties**", "\n".join(lines)) if lines else ""


def _members(subject: Any) -> Iterator[tuple[str, str]]:
    """Yield each public method, with its parameters' names, and property, with its docstring's first paragraph."""
    for name, member in vars(subject).items() if inspect.isclass(subject) else ():
        bare = getattr(member, "__func__", getattr(member, "fget", getattr(member, "func", member)))
        if name.startswith("_") or not inspect.isfunction(bare) or not bare.__doc__:
            continue
        given = ", ".join(each for each in inspect.signature(bare).parameters if each not in ("self", "cls"))
        is_method = bare is getattr(member, "__func__", member)
        yield f"{name}({given})" if is_method else name, " ".join(parts(bare)[0].split())
