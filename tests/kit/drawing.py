"""Pictures in tests: empty by default, because drawing takes most of a report's time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from matplotlib import cbook
from matplotlib.backends.backend_svg import FigureCanvasSVG

DRAW: Callable[..., None] = FigureCanvasSVG.print_svg
"""Function of matplotlib that draws a picture as an SVG file."""


def empty_svg(_: FigureCanvasSVG, place: Any, **__: object) -> None:
    """Write an empty picture; only a figure whose size is given can be left empty."""
    with cbook.open_file_cm(place, "w", encoding="utf-8") as file:
        file.write("<svg></svg>" if cbook.file_requires_unicode(file) else b"<svg></svg>")


@contextmanager
def writing_svg(write: Callable[..., None]) -> Iterator[None]:
    """Have matplotlib write SVG files by a function."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FigureCanvasSVG, "print_svg", write)
        yield
