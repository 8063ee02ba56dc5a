"""Numbers that are none: NaN and infinity, looked for where a model is taken over."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.engine.errors import DivergedError, InputError
from algorithms.engine.layout import Layout, Packed

Nonfinite = Literal["stop", "leave-out", "last"]
"""What becomes of a visit whose result is not finite; see `Local`."""


def first_nonfinite(layout: Layout, packed: Packed) -> str | None:
    """The first entry that holds NaN or infinity, in words; None where all are finite."""
    for entry, place in layout.places():
        if not entry.integer and not is_finite(packed.floats[place]):
            return f"entry {entry.name!r}"
    return None


def is_finite(values: NDArray[np.floating[Any]]) -> bool:
    """Whether all are numbers. Their sum tells that they are; only one that may have overflowed is looked into."""
    with np.errstate(over="ignore", invalid="ignore"):
        return isfinite(values.sum()) or bool(np.isfinite(values).all())


def require_finite(
    model: Packed, layout: Layout, number: int, memory: Mapping[str, NDArray[np.float64]] | None = None
) -> None:
    """Refuse what a merge has made where it is not finite.

    Args:
        model: the travelling entries of the next global model.
        layout: of the model.
        number: the round.
        memory: what the server's rule remembers.

    Raises:
        DivergedError: it names the round, and the first entry.
    """
    what = None if is_finite(model.floats) else first_nonfinite(layout, model)
    for name, array in (memory or {}).items():
        if what is None and not is_finite(array):
            what = f"{name!r} of the server's memory"
    if what is not None:
        raise DivergedError(
            f"the merged model of round {number}: {what} is not finite; lower server.lr, server.alpha or local.lr"
        )


def check_initial(values: Mapping[str, torch.Tensor]) -> None:
    """Refuse a model that begins with numbers that are none.

    Args:
        values: the module's state.

    Raises:
        InputError: an entry has NaN or infinity; it is named.
    """
    for name, value in values.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise InputError(
                f"model entry {name!r}: must be finite at the start, and holds NaN or infinity; give other "
                "model.weights or model.init, and keep masks out of the state (persistent=False)"
            )
