"""Settings of matplotlib for texts that may hold anything."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

PLAIN_TEXT: Mapping[Any, Any] = MappingProxyType({"text.parse_math": False})
"""matplotlib's settings that give `$` no meaning; texts keep the settings that they were made with."""


@contextmanager
def missing_glyphs_shown() -> Iterator[None]:
    """Let figures that are written in the context show a box for a glyph that the font lacks, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from font")
        yield


@contextmanager
def plain_text() -> Iterator[None]:
    """Draw in the context without mathematical text."""
    import matplotlib as mpl

    with mpl.rc_context(dict(PLAIN_TEXT)):
        yield
