"""The keys of `[algorithm]` that say how clients are drawn."""

from __future__ import annotations

from collections.abc import Mapping

from algorithms import PowerOfChoice
from algorithms.options.oort import Oort
from algorithms.options.own_selection import OwnSelection
from algorithms.parts.schedule import CohortRule
from raysim.common.errors import InputError
from raysim.config import own
from raysim.config.check import ConfigTable

SAMPLINGS: Mapping[str, str] = {name: name for name in ("uniform", "size", "poisson", "oort")}
"""Rules of `sampling` by name."""


class OortTable(ConfigTable):
    """`algorithm.oort`: settings of Oort, a selection of clients by utility."""

    exploration: float = Oort.exploration
    """First share of new clients in a cohort, from 0 to 1."""
    decay: float = Oort.decay
    """Factor of that share per round, in (0, 1]."""
    least: float = Oort.least
    """Least share of new clients, from 0 to 1."""
    alpha: float = Oort.alpha
    """Exponent of the penalty for clients that take longer than the preferred time."""
    cutoff: float = Oort.cutoff
    """Share of the last admitted client's utility above which others are drawn too, in (0, 1]."""
    pace: float = Oort.pace
    """Preferred time at first, as a percentile of the clients' times."""
    step: float = Oort.step
    """Percentiles by which the preferred time grows if utilities fall."""
    window: int = Oort.window
    """Rounds whose utilities are compared with those before."""


def cohort_rule(sampling: str, oort: OortTable, candidates: int | None) -> CohortRule:
    """Return the rule by which clients are drawn.

    Args:
        sampling: name of a rule, or of the user's own.
        oort: settings of Oort.
        candidates: number of candidates of power of choice; None without it.

    Raises:
        InputError: no such rule, or two of the keys contradict each other.
    """
    key, given = "algorithm.sampling", oort.beyond(ConfigTable)
    rule = own.resolve(key, sampling, SAMPLINGS)
    if sampling != "oort" and oort != OortTable():
        raise InputError(
            f'algorithm.oort with algorithm.sampling = "{sampling}": must be left out; set algorithm.sampling = "oort"'
        )
    if candidates is not None and sampling not in ("uniform", "size"):
        raise InputError(
            f'algorithm.candidates = {candidates} with algorithm.sampling = "{sampling}": must be left out, because '
            "candidates are drawn in proportion to their samples; remove one of the two"
        )
    if candidates is not None:
        return PowerOfChoice(candidates)
    if ":" in sampling:
        own.check_parameters(key, sampling, own.instance(key, sampling, rule), ("context",))
        return OwnSelection(sampling, rule)
    drawn: CohortRule = Oort(**given) if sampling == "oort" else rule
    return drawn
