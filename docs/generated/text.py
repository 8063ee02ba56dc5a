"""Pieces of Markdown that read the same on a code host and on the site."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

CODE = re.compile(r"(`[^`]+`)")


@dataclass(frozen=True)
class Place:
    """Place of a documented name: a page, and an anchor in it, "" for its top."""

    page: str
    anchor: str = ""


@dataclass
class Names:
    """Documented names and their places.

    Args:
        places: place of each name, such as `local.lr` or `Rounds`.
    """

    places: dict[str, Place] = field(default_factory=dict)

    def link(self, name: str, page: str, shown: str = "") -> str:
        """Return a name as code that links to its place, if it has one elsewhere than at the top of this page."""
        place, text = self.places.get(name), f"`{shown or name}`"
        if place is None or place == Place(page):
            return text
        path = "" if place.page == page else os.path.relpath(place.page, Path(page).parent)
        return f"[{text}]({path}{'#' if place.anchor else ''}{place.anchor})"

    def text(self, text: str, page: str) -> str:
        """Return a docstring's prose as Markdown, with links from the documented names in it."""
        return "".join(self._piece(each, page) for each in CODE.split(text))

    def _piece(self, piece: str, page: str) -> str:
        if CODE.fullmatch(piece):
            return self.link(piece[1:-1], page) if piece[1:-1] in self.places else piece
        return escaped(piece)


def escaped(text: str) -> str:
    """Return a text in which nothing is markup."""
    return text.replace("*", "\\*").replace("](", "]\\(").replace("<", "&lt;")


def coded(kind: str) -> str:
    """Return a type with the values of TOML in it, names and truth values, as code."""
    return re.sub(r'"[^"]*"|\b(true|false)\b', lambda value: f"`{value[0]}`", kind)


def heading(level: int, text: str, anchor: str = "") -> str:
    """Return a heading; the hook of the site makes the anchor the heading's own."""
    return f"{'#' * level} " + (f'<a id="{anchor}"></a>' if anchor else "") + text


def joined(*parts: str) -> str:
    """Return parts of a page with an empty line between."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


Writer = Callable[[str, Names], str]
"""Function from a page's name and the documented names to the page, or to a part of it."""
