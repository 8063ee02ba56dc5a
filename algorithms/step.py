"""The engine: one `step` is one round, of any algorithm, on any fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.algorithm import Algorithm
from algorithms.fleet import Block, Fleet, Outcome, Reference
from algorithms.kept import KeptLedger
from algorithms.layout import Packed
from algorithms.merge import Sum
from algorithms.server import Memory
from algorithms.statistics import statistics_of, with_statistics
from algorithms.stopwatch import Stopwatch
from algorithms.tree import Node, join_all
from algorithms.visit import BlockOfVisits, Start, SumOfTravelling, Task, VisitRow, Visits


@dataclass(frozen=True)
class Traveller:
    """A model between two merges: where it is, and its weight if it were merged now."""

    reference: Reference
    weight: float


Visited = tuple[int, VisitRow, dict[str, float]]
"""A visit: its block, its row, and facts of the machine."""


@dataclass(frozen=True)
class RoundReport:
    """What the last round did.

    Args:
        visits: every visit, in client-id order.
        merged: whether it ended in a merge.
        bytes_up: what a real federation's clients would have sent to its server.
        bytes_down: what they would have received from it.
        phase: which of the algorithm's phases was on, the first being 0.
        exchanges: how often in turn the clients and the server waited for each other: once, in most algorithms.
        measures: further numbers, by their names; those of `State.wanted`, and an algorithm's own.
        seconds: of its stages, as the driver saw them: sample, send, meanwhile, train (what was left of it to wait
            for), sum, merge.
    """

    visits: tuple[Visited, ...]
    merged: bool
    bytes_up: int
    bytes_down: int
    phase: int = 0
    exchanges: int = 1
    measures: Mapping[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class State:
    """A run between two rounds.

    Args:
        seed: the run's seed.
        round: rounds done.
        model: the travelling entries of the global model, as the last merge left them.
        initial: the kept entries that the model was made with.
        average: the mean of the kept entries of the last merged cohort; `initial` before the first.
        travellers: the models on their way between two merges; empty after a merge.
        memory: what the server's rule remembers from merge to merge.
        phase: which of the algorithm's phases is on, the first being 0.
        watched: what the rule that ends the phase remembers.
        kept: where every client's kept entries stand.
        rounds: how many the run has, where that is known.
        wanted: the measures to take of each round.
        own: what an algorithm's own step remembers.
        report: what the last round did.
    """

    seed: int
    round: int
    model: Packed
    initial: Packed
    average: Packed
    travellers: tuple[Traveller, ...] = ()
    memory: Memory = field(default_factory=dict)
    phase: int = 0
    watched: Memory = field(default_factory=dict)
    kept: KeptLedger = field(default_factory=KeptLedger)
    rounds: int | None = None
    wanted: tuple[str, ...] = ()
    own: Any = None
    report: RoundReport | None = None


def begin(
    module: torch.nn.Module, fleet: Fleet, seed: int, rounds: int | None = None, wanted: Sequence[str] = ()
) -> State:
    """The state before the first round.

    Args:
        module: has the initial entries.
        fleet: what will run the blocks.
        seed: the run's.
        rounds: how many there will be, which only what is a share of them needs to know.
        wanted: the measures to take of each round.
    """
    values = module.state_dict()
    initial = fleet.placement.kept.pack(values)
    return State(
        seed, 0, fleet.placement.travelling.pack(values), initial, initial, rounds=rounds, wanted=tuple(wanted)
    )


def step(
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
    return _switched((phase.own_step or do_round)(state, phase, fleet, last=last, meanwhile=meanwhile), phase)


def do_round(state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool, meanwhile: Callable[[], None]) -> State:
    """The engine's own step: sample a cohort, let every travelling model make one visit, merge or redistribute."""
    watch, number = Stopwatch(), state.round + 1
    merge = last or algorithm.rounds.merges(number)
    cohort = algorithm.schedule.sample.draw(fleet.census.clients, state.seed, number, fleet.census.samples)
    blocks = _deal(state, algorithm, fleet, cohort)
    watch.lap("sample")
    newcomer = state.average if algorithm.place.newcomer == "average" else state.initial
    start = fleet.put(Start(None if state.travellers else state.model, newcomer))
    visits = Visits(algorithm.local, algorithm.weigh, state.seed, number, merge)
    outcomes = fleet.map(visits, blocks, [start])
    watch.lap("send")
    meanwhile()
    watch.lap("meanwhile")

    whole, objects, machine = _together(visits, len(blocks), outcomes, watch)
    for row in whole.rows:
        if row.kept is not None:
            state.kept.add(number, row.client, row.kept)
    report = _report(algorithm, fleet, blocks, whole.rows, machine, merge, state.phase)
    if whole.models is None:
        travellers = tuple(Traveller(at, row.weight) for at, row in zip(objects, whole.rows, strict=True))
        state = replace(state, round=number, travellers=travellers, report=report)
    else:
        model, memory = _merged(state, algorithm, fleet, whole.models)
        average = whole.kept.mean() or state.average
        state = replace(state, round=number, model=model, memory=memory, average=average, travellers=(), report=report)
    watch.lap("merge")
    report.seconds.update(watch.seconds)
    return state


def _together(
    visits: Visits, blocks: int, outcomes: Iterator[Outcome], watch: Stopwatch
) -> tuple[BlockOfVisits, list[Reference], list[dict[str, float]]]:
    """Join the outcomes as they arrive: their value, their objects, and the facts of the machine of each block."""
    machine: list[dict[str, float]] = []
    objects: list[Reference] = []

    def parts() -> Iterator[tuple[Node, BlockOfVisits]]:
        for outcome in outcomes:
            watch.lap("train")
            machine.extend(outcome.machine)
            objects.extend(outcome.objects)
            yield outcome.node, outcome.value
            watch.lap("sum")

    whole = join_all(Node(0, blocks), parts(), visits.join)
    watch.lap("sum")
    return whole, objects, machine


def current(state: State, algorithm: Algorithm, fleet: Fleet) -> Packed:
    """The travelling entries of the global model as it would be evaluated, and written, now.

    They are what a merge would give; where visits leave no batch-norm statistics, these come from a pass over the
    training clients' data (see `algorithms.staticbn`), but for the initial model.
    """
    model = merged(state, algorithm, fleet)
    if algorithm.phase(state.phase).local.statistics != "untracked" or not state.round:
        return model
    return with_statistics(model, state.average, fleet)


def merged(state: State, algorithm: Algorithm, fleet: Fleet) -> Packed:
    """The travelling entries of the global model as a merge would give them now, summed where the models are."""
    if not state.travellers:
        return state.model
    algorithm = algorithm.phase(state.phase)
    size = fleet.block_size(len(state.travellers))
    blocks: list[Block] = []
    for number, start in enumerate(range(0, len(state.travellers), size)):
        part = state.travellers[start : start + size]
        tasks = tuple(Task(None, traveller.weight) for traveller in part)
        references = tuple(traveller.reference for traveller in part)
        clients = tuple(range(start, start + len(part)))
        blocks.append(Block(number, clients, len(part), tasks, references))
    function = SumOfTravelling()
    parts = ((outcome.node, outcome.value) for outcome in fleet.map(function, blocks))
    return _merged(state, algorithm, fleet, join_all(Node(0, len(blocks)), parts, function.join))[0]


def _deal(state: State, algorithm: Algorithm, fleet: Fleet, cohort: NDArray[np.int64]) -> list[Block]:
    """Cut the cohort into blocks, and deal the travelling models to it."""
    number = state.round + 1
    samples = fleet.census.of(cohort)
    dealt: Sequence[Traveller] = ()
    if state.travellers:
        order = algorithm.rounds.deal(len(cohort), state.seed, number)
        dealt = [state.travellers[i] for i in order]
    blocks: list[Block] = []
    size = fleet.block_size(len(cohort))
    for start in range(0, len(cohort), size):
        part = slice(start, start + size)
        clients = tuple(int(client) for client in cohort[part])
        weights = [traveller.weight for traveller in dealt[part]] or [0.0] * len(clients)
        kept = [state.kept.latest(client, state.round) for client in clients]
        tasks = tuple(Task(where, weight) for where, weight in zip(kept, weights, strict=True))
        references = tuple(traveller.reference for traveller in dealt[part])
        blocks.append(Block(len(blocks), clients, int(samples[part].sum()), tasks, references))
    return blocks


def _merged(state: State, algorithm: Algorithm, fleet: Fleet, models: Sum) -> tuple[Packed, Memory]:
    mean = models.mean()
    if mean is None:  # no visit had a sample to train on: the model stays
        return state.model, state.memory
    return algorithm.server(state.model, mean, models.total, state.memory, fleet.placement.travelling)


def _switched(state: State, algorithm: Algorithm) -> State:
    """Ask the phase's rule whether it has ended; the next one begins at a merge, with the server's memory."""
    if algorithm.switch is None or state.report is None:
        return state
    reports = {row.client: row.report for _, row, _ in state.report.visits if row.report["steps"]}
    ended, watched = algorithm.switch.when(state.round, state.rounds, reports, state.watched)
    if ended and not state.travellers:
        return replace(state, phase=state.phase + 1, watched={})
    return replace(state, watched=watched)


def _report(
    algorithm: Algorithm,
    fleet: Fleet,
    blocks: Sequence[Block],
    rows: Sequence[VisitRow],
    machine: Sequence[dict[str, float]],
    merged: bool,
    phase: int,
) -> RoundReport:
    """Report the visits, and count the protocol's bytes: each visit one model down and one up."""
    owners = (block.number for block in blocks for _ in block.clients)
    visited = [(number, row, machine[number]) for number, row in zip(owners, rows, strict=True)]
    # Statistics that nobody tracks are not sent.
    untracked = statistics_of(fleet.placement.travelling).nbytes if algorithm.local.statistics == "untracked" else 0
    up = down = len(visited) * (fleet.placement.travelling.nbytes - untracked)
    if algorithm.place.newcomer == "average":
        newcomers = sum(task.kept is None for block in blocks for task in block.rows)
        up += len(visited) * fleet.placement.kept.nbytes
        down += newcomers * fleet.placement.kept.nbytes
    return RoundReport(tuple(visited), merged, up, down, phase)
