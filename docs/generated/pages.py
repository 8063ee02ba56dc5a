"""The generated pages, and the generated parts of written pages.

`uv run python -m docs.generated` writes them; the site is built from what is written. In a page of prose, a generated
part stands between `<!-- generated: NAME -->` and `<!-- end of NAME -->`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

from algorithms.names import ALGORITHMS
from docs.generated import algorithm_pages, keys, lists, python_pages
from docs.generated.command_pages import commands
from docs.generated.marks import NOTE, PART
from docs.generated.text import Names, Writer

DOCS = Path(__file__).parents[1]

PARTS: Mapping[str, Writer] = {
    "algorithms": algorithm_pages.families,
    "commands": commands,
    "conflicts": algorithm_pages.conflicts,
    "datasets": lists.datasets,
    "engine": python_pages.package_text,
    "models": partial(keys.named, "model.name"),
    "partitioner": python_pages.package_text,
    "parts": python_pages.parts,
    "recipes": lists.recipe_list,
    "runs": python_pages.package_text,
    "schemes": partial(keys.named, "partition.scheme"),
    "study": keys.study,
    "tables": keys.index,
    "top": keys.top,
}
"""The generated parts of written pages, by the name that marks them."""


def whole_pages() -> Mapping[str, Writer]:
    """Return the pages that are generated as a whole, by their path in `docs`."""
    tables = {keys.table_page(name): partial(keys.table_text, name) for name in keys.TABLES}
    return tables | {algorithm_pages.page_of(name): partial(algorithm_pages.page_text, name) for name in ALGORITHMS}


@cache
def names() -> Names:
    """Return every documented name and its place."""
    return Names({**dict(keys.places()), **dict(python_pages.places()), **dict(algorithm_pages.places())})


def filled(text: str, page: str) -> str:
    """Return a page of prose with its generated parts written anew.

    Raises:
        KeyError: a mark names no part.
    """
    return PART.sub(lambda found: f"{found[1]}\n{PARTS[found[2]](page, names())}\n{found[3]}", text)


def pages() -> dict[str, str]:
    """Return the text of every page with generated text, by its path in `docs`."""
    found = {page: NOTE + writer(page, names()) for page, writer in whole_pages().items()}
    for path in sorted(DOCS.rglob("*.md")):
        page, text = path.relative_to(DOCS).as_posix(), path.read_text(encoding="utf-8")
        if page not in found and "<!-- generated: " in text:
            found[page] = filled(text, page)
    return found


def left_over() -> list[Path]:
    """Return the files in the folders of generated pages that no page is written to any more."""
    written = {DOCS / page for page in whole_pages()}
    return [path for folder in {path.parent for path in written} for path in folder.glob("*.md") if path not in written]
