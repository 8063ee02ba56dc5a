"""Phases: an algorithm that becomes another one at an aggregation, after a round or when a rule fires."""

from __future__ import annotations

from dataclasses import replace

from algorithms.core.errors import InputError
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.clustered import Clustered
from algorithms.parts.rules import AfterRound, Rule


def phases(first: Algorithm, *following: tuple[int | float | Rule, Algorithm]) -> Algorithm:
    """Compose an algorithm of phases: each begins at the first aggregation after its rule has fired.

    Args:
        first: first phase.
        following: for each later phase its parts, preceded by a rule or the last round before it (see `AfterRound`).

    Raises:
        InputError: two phases share the model's entries differently, or are computed differently, or a phase has other
            clusters than the one before it.
    """
    if not following:
        return first
    (rule, then), *rest = following
    for name, one, other in (
        ("sharing", first.sharing, then.sharing),
        ("local.compute", first.local.compute, then.local.compute),
    ):
        if one != other:
            raise InputError(
                f"{name} = {other} in a later phase: must be {one} as in the first, because models and personal state "
                "go on; give both phases the same"
            )
    own = first.own_round
    if isinstance(own, Clustered) and then.own_round != own:
        raise InputError(
            f"a phase after one of {own.clusters} clusters: must have as many, because the models of all clusters go "
            f"on; use ifca with clusters = {own.clusters} in the later phase"
        )
    return replace(first, until=AfterRound(rule) if isinstance(rule, int | float) else rule, then=phases(then, *rest))
