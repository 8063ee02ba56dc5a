"""The global model between two rounds, as it is evaluated and written."""

from __future__ import annotations

from algorithms.core.fleet import Fleet
from algorithms.core.layout import Packed
from algorithms.core.rows import NO_ROWS
from algorithms.core.state import State
from algorithms.parts.algorithm import Algorithm
from algorithms.rounds.redistribution import sum_models
from algorithms.rounds.round import aggregate
from algorithms.training.statistics import with_statistics


def current_model(state: State, algorithm: Algorithm, fleet: Fleet) -> Packed:
    """Return the shared entries of the global model as it would be evaluated, and written, now.

    They are those of `aggregated_model`. If client updates track no batch-norm statistics, these come from a pass over
    the training clients' data (see `algorithms.staticbn`), except for the initial model.
    """
    model = aggregated_model(state, algorithm, fleet)
    if algorithm.phase(state.phase).local.statistics != "untracked" or not state.round:
        return model
    return with_statistics(model, state.average, fleet, state.round)


def aggregated_model(state: State, algorithm: Algorithm, fleet: Fleet) -> Packed:
    """Return the shared entries that an aggregation would give now; the workers sum travelling models."""
    if not state.travelling_models:
        return state.model
    updates = NO_ROWS if state.report is None else state.report.updates
    return aggregate(state, algorithm.phase(state.phase), fleet, sum_models(state.travelling_models, fleet), updates)[0]
