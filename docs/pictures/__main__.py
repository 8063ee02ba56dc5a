"""Write the pages' own pictures: `uv run python -m docs.pictures`, or with names of groups, such as `rounds`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from docs.pictures.curves import first
from docs.pictures.recipes import recipes
from docs.pictures.rounds import rounds
from docs.pictures.schemes import schemes

ASSETS = Path(__file__).parents[1] / "assets"
GROUPS: Mapping[str, Callable[[], dict[str, str]]] = {
    "first": first,
    "recipes": recipes,
    "rounds": rounds,
    "schemes": schemes,
}


def main(names: list[str]) -> None:
    """Write the pictures of some groups, or of all."""
    for name in names or list(GROUPS):
        for file, picture in GROUPS[name]().items():
            (ASSETS / file).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
