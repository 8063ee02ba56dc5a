"""Rounds whose clients begin with several models: each group of the cohort trains one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithms.core.layout import Packed
from algorithms.core.report import UpdateRows
from algorithms.core.sums import Sum
from algorithms.parts.cohort import Training, blocks_of, client_updates
from algorithms.parts.option import Draft
from algorithms.parts.received import Received


def grouped(draft: Draft, models: Sequence[Packed], numbers: NDArray[np.int64]) -> list[Draft]:
    """Return the draft of each model's group.

    Args:
        draft: the round, with its cohort.
        models: models that the groups begin with.
        numbers: number of each client's model, int64 [m].
    """
    return [
        replace(draft, state=replace(draft.state, model=model), cohort=draft.drawn[numbers == number])
        for number, model in enumerate(models)
    ]


def start_groups(parts: Sequence[Draft]) -> Callable[[], list[Received]]:
    """Start the client updates of the groups of a cohort, side by side.

    Args:
        parts: draft of each group.

    Returns:
        Function that waits for the client updates, and returns what the server receives of each group.
    """
    trainings = [Training(part, part.wrapped(client_updates(part)), blocks_of(part, part.drawn)) for part in parts]
    return lambda: [part.reduced(each.received()) for part, each in zip(parts, trainings, strict=True)]


def joined(received: Sequence[Received]) -> Received:
    """Return what the server receives of all groups as one, in client-id order; the models are the first group's."""
    firsts = np.cumsum([0, *(len(each.machine) for each in received[:-1])]).tolist()
    facts = [
        (first + number, fact)
        for first, each in zip(firsts, received, strict=True)
        for number, fact in each.machine.items()
    ]
    rows = UpdateRows.joined([each.rows for each in received])
    order = np.argsort(rows.clients)
    return replace(
        received[0],
        rows=rows.ordered(order),
        personal=reduce(Sum.plus, (each.personal for each in received)),
        blocks=np.concatenate([each.blocks + first for first, each in zip(firsts, received, strict=True)])[order],
        machine=dict(facts),
        up=np.concatenate([each.up for each in received])[order],
        down=np.concatenate([each.down for each in received])[order],
        beside=reduce(_plus, (each.beside for each in received)),
    )


def _plus(one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    both = {name: value.plus(other[name]) for name, value in one.items() if name in other}
    return {**one, **other, **both}  # a group without a client has no sums
