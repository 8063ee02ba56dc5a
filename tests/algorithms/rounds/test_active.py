"""Rounds with fewer active clients than are to be drawn: who is drawn, and what becomes of travelling models."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from algorithms import (
    Census,
    Importance,
    InputError,
    Local,
    Participation,
    PersonalLedger,
    Rounds,
    State,
    begin,
    current_model,
    fedavg,
    fedbn,
    next_round,
    radfed,
)
from algorithms.options.virtual_time import Joins
from algorithms.parts.option import Draft
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import clients, perceptron
from tests.kit.rounds import same

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.1, batch_size=4)
SOMETIMES = Participation(cohort=4, active=0.4)


def test_only_active_clients_are_drawn() -> None:
    every = np.arange(1000)
    sizes = [len(Participation(active=0.3).draw(every, 0, number)) for number in range(1, 50)]
    assert 250 < min(sizes) < max(sizes) < 350 and len(set(sizes)) > 5
    cohort = Participation(cohort=10, active=0.3).draw(every, 0, 1)
    assert set(cohort) <= set(Participation(active=0.3).draw(every, 0, 1)) and len(cohort) == 10
    assert len(Participation(cohort=10, active=0.001).draw(every, 0, 1)) < 10
    assert np.array_equal(
        Participation(cohort=10, active=1.0).draw(every, 0, 1), Participation(cohort=10).draw(every, 0, 1)
    )


def rounds(federation: Federation, fewer: str, count: int = 30) -> tuple[list[State], InlineFleet]:
    algorithm = radfed(SOMETIMES, LOCAL, aggregate_every=5, fewer=fewer)  # type: ignore[arg-type]
    fleet = federation(clients((9, 8, 7, 6, 5, 4)), perceptron())
    states = [begin(perceptron(), fleet, 0)]
    for _ in range(count):
        states.append(next_round(states[-1], algorithm, fleet))
    return states, fleet


def updated(state: State) -> int:
    assert state.report is not None
    return len(state.report.updates)


def test_models_wait_and_make_about_as_many_updates(federation: Federation) -> None:
    states, _ = rounds(federation, "wait")
    waited = 0
    for before, after in pairwise(states):
        if before.travelling_models and after.travelling_models:
            assert len(after.travelling_models) == len(before.travelling_models)
            waited += updated(after) < len(after.travelling_models)
            made = [traveller.updates for traveller in after.travelling_models]
            assert sum(made) == sum(t.updates for t in before.travelling_models) + updated(after)
            # Whoever has made fewest goes first, so no two are ever further apart than one client update.
            assert max(made) - min(made) <= 1
    assert waited > 3


def test_dropped_models_are_fewer_until_the_aggregate(federation: Federation) -> None:
    states, _ = rounds(federation, "drop")
    dropped = 0
    for before, after in pairwise(states):
        if before.travelling_models and after.travelling_models:
            assert len(after.travelling_models) == updated(after) <= len(before.travelling_models) or not updated(after)
            dropped += len(after.travelling_models) < len(before.travelling_models)
    assert dropped > 1


def test_a_round_without_anybody_drops_no_model(federation: Federation) -> None:
    algorithm = radfed(Participation(active=0.25), LOCAL, aggregate_every=6, fewer="drop")
    fleet = federation(clients((9, 8, 7, 6)), perceptron())
    state, empty = begin(perceptron(), fleet, 0), 0
    for _ in range(40):
        before, state = state, next_round(state, algorithm, fleet)
        if before.travelling_models and state.travelling_models and not updated(state):
            assert state.travelling_models == before.travelling_models
            empty += 1
    assert empty > 1


def test_chances_that_ran_out_make_smaller_cohorts() -> None:
    by = Importance(gamma=1.0)
    few = np.array([0.5, 0.0, 0.2, 0.0])
    assert Participation(cohort=3, by=by).draw(np.arange(4), 0, 9, few).tolist() == [0, 2]
    assert len(Participation(cohort=3, by="size", active=0.9).draw(np.arange(4), 0, 9, few)) <= 2
    # Where nobody has a chance, all have the same.
    for participation in (Participation(cohort=2, by=by), Participation(cohort=2, by="size", active=0.99)):
        assert len(participation.draw(np.arange(4), 0, 9, np.zeros(4))) == 2
    with pytest.raises(InputError, match="with a chance above 0"):
        Participation(cohort=3, by="size").draw(np.arange(4), 0, 9, few)


def test_models_that_wait_are_aggregated(federation: Federation) -> None:
    algorithm = radfed(SOMETIMES, LOCAL, aggregate_every=5)
    states, fleet = rounds(federation, "wait")
    models = [len(state.travelling_models) for state in states]
    # A round that leaves some without a client, and is not the one that aggregates anyway.
    number = next(n for n in range(1, 30) if models[n] and models[n + 1] and updated(states[n + 1]) < models[n])
    aggregated = next_round(states[number], algorithm, fleet, last=True)
    assert aggregated.report is not None and aggregated.report.aggregated and not aggregated.travelling_models
    going_on = next_round(states[number], algorithm, fleet)
    assert going_on.travelling_models
    np.testing.assert_allclose(
        aggregated.model.floats, current_model(going_on, algorithm, fleet).floats, rtol=1e-6, atol=1e-7
    )


def test_a_round_without_anybody_changes_nothing(federation: Federation) -> None:
    fleet = federation(clients((9, 8)), perceptron())
    for algorithm in (
        fedavg(Participation(active=1e-9), LOCAL),
        radfed(Participation(active=1e-9), LOCAL, aggregate_every=2),
    ):
        state = begin(perceptron(), fleet, 0)
        for _ in range(3):
            state = next_round(state, algorithm, fleet)
            assert state.report is not None and not len(state.report.updates) and state.report.bytes_up == 0
        assert state.round == 3 and same(state.model, begin(perceptron(), fleet, 0).model)


def test_the_same_clients_whatever_the_blocks(federation: Federation) -> None:
    found = []
    for block in (1, 4):
        fleet = federation(clients((9, 8, 7, 6, 5, 4)), perceptron(), block=block)
        algorithm = radfed(SOMETIMES, LOCAL, aggregate_every=4)
        state, seen = begin(perceptron(), fleet, 3), Counter()
        for _ in range(12):
            state = next_round(state, algorithm, fleet)
            assert state.report is not None
            seen.update(state.report.updates.clients.tolist())
        found.append(seen)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Participation(active=0.0), r"algorithm.active = 0.0: must be in \(0, 1\]"),
        (lambda: Participation(active=1.5), "algorithm.active = 1.5"),
        (lambda: Rounds(Participation(), 2, "stop"), "algorithm.fewer = 'stop'"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_a_client_that_joins_later_takes_the_shared_entries_and_learns_its_own(federation: Federation) -> None:
    """FedBN, appendix G: the first case."""
    data, algorithm = clients((9, 8, 7)), fedbn(Participation(), LOCAL)
    fleet = federation(data, perceptron(True), algorithm.sharing)
    fleet.census = Census(np.arange(3), np.array([9, 8, 7]), joins=np.array([1, 1, 4]))
    alone = federation(data[:2], perceptron(True), algorithm.sharing)
    state = begin(perceptron(True), fleet, 0)
    other = replace(state, personal=PersonalLedger())
    for number in range(1, 6):
        before, state = state, next_round(state, algorithm, fleet)
        assert updated(state) == (2 if number < 4 else 3)
        if number < 4:
            other = next_round(other, algorithm, alone)
            assert same(state.model, other.model)
    assert before.personal.latest(2, 3) is None and state.personal.latest(2, 4) is not None


def test_a_share_is_of_those_who_have_joined(federation: Federation) -> None:
    fleet = federation(clients([4] * 40), perceptron())
    fleet.census = replace(fleet.census, joins=np.array([1] * 10 + [5] * 30))
    state = begin(perceptron(), fleet, 0)

    def cohort(number: int, participation: Participation) -> int:
        draft = Draft.of(replace(state, round=number - 1), fedavg(participation, LOCAL), fleet)
        return len(Joins().attend(draft).attended().drawn)

    assert [cohort(number, Participation(fraction=0.5)) for number in (4, 5)] == [5, 20]
    assert cohort(4, Participation(cohort=12)) == 10
