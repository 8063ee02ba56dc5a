"""The engine: one `step` is one round, of any algorithm, on any fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from algorithms.engine.client_update import BlockResult, ClientUpdates, RoundInput, SumModels, Task, UpdateRow
from algorithms.engine.fleet import Block, Fleet, Outcome, Reference, cut
from algorithms.engine.layout import Packed
from algorithms.engine.measures import batch_statistics, divergence
from algorithms.engine.state import RoundReport, State, TravellingModel
from algorithms.engine.statistics import statistics_of, with_statistics
from algorithms.engine.stopwatch import Stopwatch
from algorithms.engine.sums import Sum
from algorithms.engine.tree import Node, join_all
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.importance import Importance
from algorithms.parts.server import Memory, next_model


def run_round(
    state: State,
    algorithm: Algorithm,
    fleet: Fleet,
    *,
    last: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
) -> State:
    """Do one round, of the phase that is on; then ask whether the phase has ended.

    Args:
        state: the run so far.
        algorithm: the five parts.
        fleet: what runs the blocks.
        last: whether this is the run's last round, which always merges.
        meanwhile: the driver's other work, done once the visits are under way.
    """
    phase = algorithm.phase(state.phase)
    return _switched((phase.own_round or synchronous_round)(state, phase, fleet, last=last, meanwhile=meanwhile), phase)


def synchronous_round(
    state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool, meanwhile: Callable[[], None]
) -> State:
    """The engine's own step: sample a cohort, let every travelling model make one visit, merge or redistribute."""
    watch, number = Stopwatch(), state.round + 1
    aggregate = last or algorithm.rounds.aggregates(number)
    updates = client_updates(state, algorithm, fleet, aggregate)
    newcomer = fleet.layouts.begun(state.average) if algorithm.sharing.newcomer == "average" else state.initial
    start = fleet.put(RoundInput(None if state.travelling_models else state.model, newcomer))
    state, scored = _with_chances(state, algorithm, fleet, updates, start)
    cohort = cohort_of(state, algorithm, fleet)
    dealt, waiting = _deal(state, algorithm, len(cohort))
    blocks = blocks_of(state, fleet, cohort, dealt)
    watch.lap("sample")
    outcomes = fleet.map(updates, blocks, [start])
    watch.lap("send")
    meanwhile()
    watch.lap("meanwhile")

    whole, objects, machine = _together(updates, fleet, len(blocks), outcomes, watch)
    for row in whole.rows:
        if row.personal is not None:
            state.personal.add(number, row.client, row.personal)
    report = _report(state, algorithm, fleet, blocks, whole.rows, machine, aggregate, scored)
    before = state
    if whole.models is None:
        state = replace(state, round=number, travelling_models=_moved_on(dealt, objects, whole.rows) + waiting)
    else:
        models = whole.models.plus(_sum(waiting, fleet)) if waiting else whole.models
        model, memory = _aggregated(state, algorithm, fleet, models)
        average = whole.personal.mean() or state.average
        state = replace(state, round=number, model=model, memory=memory, average=average, travelling_models=())
    state = observed(before, replace(state, report=report), algorithm, fleet, whole)
    watch.lap("aggregate")
    report.seconds.update({"train": 0.0, **watch.seconds})
    return state


def client_updates(state: State, algorithm: Algorithm, fleet: Fleet, aggregate: bool) -> ClientUpdates:
    """The visits of the next round."""
    local = algorithm.local.fitted(fleet.census)
    needs = tuple(dict.fromkeys((*algorithm.needs, *(("bn_shift",) if "bn" in state.wanted else ()))))
    compares = "dl" in state.wanted
    return ClientUpdates(
        local, algorithm.weighting, state.seed, state.round + 1, aggregate, state.rounds, needs, compares
    )


def _together(
    updates: ClientUpdates, fleet: Fleet, blocks: int, outcomes: Iterator[Outcome], watch: Stopwatch
) -> tuple[BlockResult, list[Reference], list[dict[str, float]]]:
    """Join the outcomes as they arrive: their value, their objects, and the facts of the machine of each block."""
    machine: list[dict[str, float]] = []
    objects: list[Reference] = []

    def parts() -> Iterator[tuple[Node, BlockResult]]:
        for outcome in outcomes:
            watch.lap("train")
            machine.extend(outcome.machine)
            objects.extend(outcome.objects)
            yield outcome.node, outcome.value
            watch.lap("sum")

    whole = join_all(Node(0, blocks), parts(), updates.join) if blocks else updates.nothing(fleet.layouts)
    watch.lap("sum")
    return whole, objects, machine


def current(state: State, algorithm: Algorithm, fleet: Fleet) -> Packed:
    """The travelling entries of the global model as it would be evaluated, and written, now.

    They are what a merge would give; where visits leave no batch-norm statistics, these come from a pass over the
    training clients' data (see `algorithms.staticbn`), but for the initial model.
    """
    model = aggregated(state, algorithm, fleet)
    if algorithm.phase(state.phase).local.statistics != "untracked" or not state.round:
        return model
    return with_statistics(model, state.average, fleet, state.round)


def aggregated(state: State, algorithm: Algorithm, fleet: Fleet) -> Packed:
    """The travelling entries of the global model as a merge would give them now, summed where the models are."""
    if not state.travelling_models:
        return state.model
    models = _sum(state.travelling_models, fleet)
    return _aggregated(state, algorithm.phase(state.phase), fleet, models)[0]


def _sum(travelling_models: Sequence[TravellingModel], fleet: Fleet) -> Sum:
    """The sum of travelling models, each with its weight, added up where they are."""
    size = fleet.block_size(len(travelling_models))
    blocks: list[Block] = []
    for number, start in enumerate(range(0, len(travelling_models), size)):
        part = travelling_models[start : start + size]
        tasks = tuple(Task(None, traveller.weight) for traveller in part)
        references = tuple(traveller.reference for traveller in part)
        clients = tuple(range(start, start + len(part)))
        blocks.append(Block(number, clients, len(part), tasks, references))
    function = SumModels()
    parts = ((outcome.node, outcome.value) for outcome in fleet.map(function, blocks))
    models: Sum = join_all(Node(0, len(blocks)), parts, function.join)
    return models


def _with_chances(
    state: State, algorithm: Algorithm, fleet: Fleet, updates: ClientUpdates, start: Reference
) -> tuple[State, bool]:
    """The state with the clients' chances to be drawn; whether all clients were scored for them."""
    by = algorithm.schedule.sample.by
    if not isinstance(by, Importance) or state.importance is not None:
        return state, False
    return replace(state, importance=by.initial(updates, fleet, start)), by.start == "score"


def cohort_of(state: State, algorithm: Algorithm, fleet: Fleet) -> NDArray[np.int64]:
    """The clients of the next round, in id order: where models travel, no more than there are models."""
    sample = algorithm.schedule.sample
    weights = fleet.census.samples if sample.by == "size" else state.importance
    most = len(state.travelling_models) or None
    census = fleet.census
    return sample.draw(census.clients, state.seed, state.round + 1, weights, most, census.joins)


def _deal(
    state: State, algorithm: Algorithm, clients: int
) -> tuple[Sequence[TravellingModel], tuple[TravellingModel, ...]]:
    """Which travelling model each client of the cohort gets, and those for which there is no client this time.

    The models that have made fewest visits go first, so that all have made about as many when they merge. Where models
    are dropped, nobody waits, but for rounds without any client: they are no reason to lose all.
    """
    models = state.travelling_models
    if not models or not clients:
        return (), models
    order = algorithm.rounds.deal(len(models), state.seed, state.round + 1)
    going = set(sorted(order, key=lambda i: models[i].updates)[:clients])
    dealt = [models[i] for i in order if i in going]
    if algorithm.rounds.fewer == "drop":
        return dealt, ()
    return dealt, tuple(models[i] for i in order if i not in going)


def blocks_of(state: State, fleet: Fleet, cohort: NDArray[np.int64], dealt: Sequence[TravellingModel]) -> list[Block]:
    """Cut the cohort into blocks, each client with its kept entries and, where models travel, its model."""
    samples, sites = fleet.census.of(cohort), fleet.census.sites_of(cohort)
    blocks: list[Block] = []
    for part in cut(len(cohort), fleet.block_size(len(cohort)), sites):
        clients = tuple(int(client) for client in cohort[part])
        weights = [traveller.weight for traveller in dealt[part]] or [0.0] * len(clients)
        personal = [state.personal.latest(client, state.round) for client in clients]
        tasks = tuple(Task(where, weight) for where, weight in zip(personal, weights, strict=True))
        references = tuple(traveller.reference for traveller in dealt[part])
        site = None if sites is None else int(sites[part.start])
        blocks.append(Block(len(blocks), clients, int(samples[part].sum()), tasks, references, site))
    return blocks


def _moved_on(
    dealt: Sequence[TravellingModel], objects: Sequence[Reference], rows: Sequence[UpdateRow]
) -> tuple[TravellingModel, ...]:
    """The travelling models after their visits; they begin to travel where none did."""
    made = [traveller.updates for traveller in dealt] or [0] * len(rows)
    return tuple(TravellingModel(at, row.weight, n + 1) for at, row, n in zip(objects, rows, made, strict=True))


def observed(before: State, state: State, algorithm: Algorithm, fleet: Fleet, whole: BlockResult) -> State:
    """Take the measures that are wanted of a round, and move the clients' chances by their scores."""
    measures, measured = dict(divergence(whole.directions)), state.measured
    if "bn" in state.wanted:
        layout = fleet.layouts.shared
        found, measured = batch_statistics(whole.rows, before.model, state.model, layout, measured)
        measures |= found
    by, p = algorithm.schedule.sample.by, state.importance
    if isinstance(by, Importance) and p is not None:
        p = by.moved(p, fleet.census, whole.rows)
    report = state.report and replace(state.report, measures={**state.report.measures, **measures})
    return replace(state, measured=measured, importance=p, report=report)


def _aggregated(state: State, algorithm: Algorithm, fleet: Fleet, models: Sum) -> tuple[Packed, Memory]:
    mean = models.mean()
    if mean is None:  # no visit had a sample to train on: the model stays
        return state.model, state.memory
    layout = fleet.layouts.shared
    return next_model(algorithm.server, state.model, mean, models.total, state.memory, layout, state.round + 1)


def _switched(state: State, algorithm: Algorithm) -> State:
    """Ask the phase's rule whether it has ended; the next one begins at a merge, with the server's memory."""
    if algorithm.switch is None or state.report is None:
        return state
    reports = {row.client: row.report for _, row, _ in state.report.updates if row.trained}
    ended, watched = algorithm.switch.when(state.round, state.rounds, reports, state.watched)
    if ended and not state.travelling_models:
        return replace(state, phase=state.phase + 1, watched={})
    return replace(state, watched=watched)


def _report(
    state: State,
    algorithm: Algorithm,
    fleet: Fleet,
    blocks: Sequence[Block],
    rows: Sequence[UpdateRow],
    machine: Sequence[dict[str, float]],
    aggregated: bool,
    scored: bool,
) -> RoundReport:
    """Report the visits, and count the protocol's bytes: each visit one model down and one up."""
    owners = (block.number for block in blocks for _ in block.clients)
    updated = [(number, row, machine[number]) for number, row in zip(owners, rows, strict=True)]
    # Statistics that nobody tracks are not sent.
    untracked = statistics_of(fleet.layouts.shared).nbytes if algorithm.local.statistics == "untracked" else 0
    shared = fleet.layouts.shared.nbytes - untracked
    tasks = [task for block in blocks for task in block.rows]
    average = fleet.layouts.personal.nbytes if algorithm.sharing.newcomer == "average" else 0
    up = [shared + average for _ in tasks]
    down = [shared + (average if task.personal is None else 0) for task in tasks]
    measures = {}
    if state.devices is not None:
        made = [(row.client, row.report["used"], d, u) for row, d, u in zip(rows, down, up, strict=True)]
        measures["simulated_seconds"] = state.devices.round(state.seed, made)
    if scored:  # all clients received the model once more, passed their samples through it, and sent a number
        census, number = fleet.census, 8
        up, down = [*up, number * len(census.clients)], [*down, shared * len(census.clients)]
        if state.devices is not None:
            asked = zip(census.clients.tolist(), census.samples.tolist(), strict=True)
            passed = ((client, samples, shared, number) for client, samples in asked)
            measures["simulated_seconds"] += state.devices.round(state.seed, passed)
    return RoundReport(tuple(updated), aggregated, sum(up), sum(down), state.phase, 1 + scored, measures)
