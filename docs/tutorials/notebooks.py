"""Write the tutorials as notebooks: `uv run python -m docs.tutorials.notebooks`.

The pages are the source. A code block with a title becomes a cell that writes the file, commands a cell of the shell,
and Python a cell of its own; all other text, and blocks that the tests do not run, stay text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TUTORIALS = ("first-run", "your-data", "your-algorithm", "study")
"""Tutorials that run on one machine."""

NOTE = re.compile(r"^\[This page as a notebook\]\([^)]*\)\n", re.MULTILINE)
FENCE = re.compile(
    r"^(?P<reason><!-- not run: [^\n]+ -->\n)?```(?P<language>[\w-]*)(?: title=\"(?P<title>[^\"]+)\")?\n"
    r"(?P<text>.*?)^```$\n?",
    re.MULTILINE | re.DOTALL,
)


def notebook(page: str) -> str:
    """Return the notebook of a page's text."""
    cells = [_cell(kind, text, number) for number, (kind, text) in enumerate(_parts(NOTE.sub("", page)))]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def _parts(page: str) -> Iterator[tuple[str, str]]:
    """Yield the kind ("markdown" or "code") and the text of each cell."""
    prose, end = "", 0
    for found in FENCE.finditer(page):
        prose += page[end : found.start()]
        end = found.end()
        code = "" if found["reason"] else _code(found["language"], found["title"], found["text"])
        if not code:
            prose += re.sub(r"^<!--.*-->\n", "", found[0]).replace("```sh", "```bash")
            continue
        if prose.strip():
            yield "markdown", prose.strip()
        prose = ""
        yield "code", code.strip()
    if (prose := prose + page[end:]).strip():
        yield "markdown", prose.strip()


def _code(language: str, title: str | None, text: str) -> str:
    """Return a block as a cell; empty if it is no code to run."""
    if title:
        return f"%%writefile {title}\n{text}"
    return {"sh": f"%%sh\n{text}", "python": text}.get(language, "")


def _cell(kind: str, text: str, number: int) -> dict[str, Any]:
    name = hashlib.sha256(f"{number} {text}".encode()).hexdigest()[:8]
    cell: dict[str, Any] = {"cell_type": kind, "id": name, "metadata": {}, "source": text.splitlines(keepends=True)}
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def main() -> None:
    """Write all notebooks."""
    for name in TUTORIALS:
        page = (HERE / f"{name}.md").read_text(encoding="utf-8")
        (HERE / f"{name}.ipynb").write_text(notebook(page), encoding="utf-8")


if __name__ == "__main__":
    main()
