"""The part of a model that trains."""

from __future__ import annotations

from torch import nn

from algorithms import Layout, freeze
from raysim.common.errors import InputError, unknown

ALL = "all"

DEPTH = 2
"""Of the layers in layers whose names an error lists."""

SHOWN = 60
"""So many of them."""


def train_from(module: nn.Module, part: str) -> None:
    """Freeze all entries before the first one of a part.

    Args:
        module: is changed.
        part: "all", or a layer, or an entry, by the beginning of its name up to a dot: "features.17" is all of
            `features.17.conv.0.0.weight` and what follows it in the order of the module's layers.

    Raises:
        InputError: there is no such part, or nothing in it or behind it trains.
    """
    if part == ALL:
        return
    entries = Layout.of(module).entries
    first = next((i for i, e in enumerate(entries) if f"{e.name}.".startswith(f"{part}.")), None)
    if first is None:
        parts = {name[:at]: None for name in (e.name for e in entries) for at in _dots(name)}
        # In the model's order, for what follows a part trains, too; those inside of blocks would be hundreds.
        listed = [name for name in parts if name.count(".") < DEPTH]
        raise unknown(f"model.train = {part!r}", part, [ALL, *listed], most=SHOWN)
    if not any(entry.is_parameter for entry in entries[first:]):
        raise InputError(f'model.train = {part!r}: must have parameters in it or behind it; set model.train = "all"')
    freeze(module, {entry.name for entry in entries[:first]})


def _dots(name: str) -> list[int]:
    """Where the parts of an entry's name end, the whole name apart."""
    return [at for at, letter in enumerate(name) if letter == "."]
