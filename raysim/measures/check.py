"""Checks that measures apply to an algorithm."""

from collections.abc import Mapping, Sequence

from algorithms import Algorithm, BatchStatistics, Divergence, Kind, Layouts, Option, Rounds
from raysim.common.errors import InputError
from raysim.measures.columns import TWINS
from raysim.measures.evaluate import Targets

MEASURING: Mapping[str, type[Option]] = {"dl": Divergence, "bn": BatchStatistics}
"""Options of the engine that take a measure."""


def measuring(measures: Sequence[str]) -> list[Option]:
    """Return the options of the engine that take some measures."""
    return [MEASURING[name]() for name in measures if name in MEASURING]


def check_measures(
    measures: Sequence[str], targets: Targets, every: int, algorithm: Algorithm, layouts: Layouts
) -> None:
    """Check that measures apply to an algorithm.

    Args:
        measures: names of measures.
        targets: data to evaluate on.
        every: rounds between two evaluations.
        algorithm: parts of the algorithm.
        layouts: division of the model's entries.

    Raises:
        InputError: there is nothing to measure, clients have personal entries, or the test loss is not measured in
            every round; or models cannot be fine-tuned.
    """
    _check_rounds(measures, algorithm, layouts)
    if targets.finetuning is not None:
        targets.finetuning.check(algorithm, layouts)
    wanted = [name for name in TWINS if name in measures]
    if wanted and not layouts.has_one_model:
        raise InputError(
            f"evaluate.measures = {wanted[0]!r} with personal entries: must be left out, because client updates start "
            "from different models and the twin has one; remove it, or the algorithm"
        )
    if "concordance" not in measures:
        return
    if not any(target.name == "test" for target in targets.targets) or "loss" not in targets.names:
        raise InputError(
            "evaluate.measures = 'concordance' without a loss on a global test set: must have one; set data.test, and "
            'name "test" in evaluate.on and "loss" in evaluate.metrics'
        )
    if every != 1:
        raise InputError(
            f"evaluate.every = {every} with evaluate.measures = 'concordance': must be 1, because it compares the "
            "losses of every round; set evaluate.every = 1"
        )


def _check_rounds(measures: Sequence[str], algorithm: Algorithm, layouts: Layouts) -> None:
    of_rounds = [name for name in ("dl", "bn") if name in measures]
    if of_rounds and not isinstance(algorithm.schedule, Rounds):
        raise InputError(
            f"evaluate.measures = {of_rounds[0]!r} with an asynchronous algorithm: must be left out, because its "
            "models arrive one by one; remove it, or the algorithm"
        )
    if "dl" in measures and not any(entry.is_parameter for entry in layouts.shared.entries):
        raise InputError(
            "evaluate.measures = 'dl' without shared parameters: must be left out, because clients send no weights; "
            "remove it, or the algorithm"
        )
    untracked = all(phase.local.statistics == "untracked" for phase in algorithm.phases)
    has_any = any(entry.kind is Kind.STATISTIC for entry in layouts.shared.entries)
    if "bn" in measures and (untracked or not has_any):
        raise InputError(
            "evaluate.measures = 'bn' without tracked and shared batch-norm statistics: must be left out, because "
            "nothing changes; remove it, or the algorithm"
        )
