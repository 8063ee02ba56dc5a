"""Studies: algorithms x data sets x seeds x folds x grid; called, the module is `raysim.study.studying.study`."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it brings torch
    from raysim.study.studying import Studied

__all__ = ["conclude"]


class _Study(ModuleType):
    """The package and, like `raysim.run`, a function: both have the one name that says what they are."""

    def __call__(self, *given: Any, **named: Any) -> Studied:
        from raysim.study.studying import study

        return study(*given, **named)


sys.modules[__name__].__class__ = _Study


def conclude(folder: Path) -> None:
    """Write what the trials of a study come to."""
