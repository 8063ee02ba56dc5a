"""NaN and infinity: the checks of a model before it counts."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from algorithms.core.errors import DivergedError, InputError
from algorithms.core.layout import Layout, Packed

if TYPE_CHECKING:
    import torch

Nonfinite = Literal["stop", "leave-out", "last"]
"""Action if the result of a client update is not finite; see `Local`."""


def first_nonfinite(layout: Layout, packed: Packed) -> str | None:
    """Name the first entry that holds NaN or infinity; None if all are finite."""
    for entry, place in layout.places():
        if not entry.integer and not is_finite(packed.floats[place]):
            return f"entry {entry.name!r}"
    return None


def is_finite(values: NDArray[np.floating[Any]]) -> bool:
    """Return whether all values are finite; a finite sum shows it, and otherwise each value is checked."""
    with np.errstate(over="ignore", invalid="ignore"):
        return isfinite(values.sum()) or bool(np.isfinite(values).all())


def require_finite(
    model: Packed, layout: Layout, round_number: int, memory: Mapping[str, NDArray[np.float64]] | None = None
) -> None:
    """Refuse an aggregated model that is not finite.

    Args:
        model: shared entries of the next global model.
        layout: layout of the model.
        round_number: round.
        memory: memory of the server's rule.

    Raises:
        DivergedError: the model or the memory is not finite; the error names the round and the first bad entry.
    """
    wrong = [f"{name!r} of the server's memory" for name, array in (memory or {}).items() if not is_finite(array)]
    if not is_finite(model.floats):
        wrong.insert(0, first_nonfinite(layout, model) or "the model")
    if wrong:
        raise DivergedError(
            f"the aggregated model of round {round_number}: {wrong[0]} is not finite; lower server.lr, server.alpha or "
            "local.lr"
        )


def check_initial(values: Mapping[str, torch.Tensor]) -> None:
    """Refuse an initial model that is not finite.

    Args:
        values: state of the module.

    Raises:
        InputError: an entry holds NaN or infinity; the error names it.
    """
    for name, value in values.items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise InputError(
                f"model entry {name!r}: must be finite at the start, and holds NaN or infinity; give other "
                "model.weights or model.init, and keep masks out of the state (persistent=False)"
            )
