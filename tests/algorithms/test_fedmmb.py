"""FedMMB against its Algorithm 1, and what rotating batches promise."""

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from math import ceil

import numpy as np
import pytest
import torch

from algorithms import (
    Compute,
    InputError,
    Local,
    Participation,
    Purpose,
    begin,
    fedbn,
    fedmmb,
    fedsmb,
    generator,
    next_round,
)
from algorithms.core.finite import Nonfinite
from algorithms.training.local import Execution
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import clients, perceptron
from tests.kit.reference import DATA, agree, engine, mean, module, sgd, train
from tests.kit.rounds import run, same

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.1, batch_size=4)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_fedmmb_matches_its_algorithm(federation: Federation, count: int) -> None:
    participation = Participation(fraction=0.5)
    state, fleet = engine(federation, fedmmb(participation, LOCAL, batches=count), rounds=9)

    def shuffled(client: int, passes: int) -> list[np.ndarray]:
        order = generator(0, Purpose.BATCHES, passes, client).permutation(len(DATA[client][1]))
        return [order[start : start + 4] for start in range(0, len(order), 4)]

    model = module()
    updates, beta = [0] * 6, [shuffled(client, 0) for client in range(6)]
    for number in range(1, 10):
        cohort = participation.draw(np.arange(6), 0, number)
        models, used = [deepcopy(model) for _ in cohort], []
        for w, client in zip(models, cohort, strict=True):
            t, i = len(beta[client]), updates[client]
            f = ceil(t / count)
            p = (i % f) * count
            batches = [b for b in beta[client][p : min(p + count - 1, t - 1) + 1] if len(b) > 1]
            train(w, DATA[client], batches, sgd(0.1))
            used.append(sum(map(len, batches)))
            updates[client] += 1
            if (i + 1) % f == 0:
                beta[client] = shuffled(client, updates[client] // f)
        model.load_state_dict(mean(models, used))
    assert max(updates) > 3
    agree(state, fleet, model.state_dict())


def test_fedsmb_is_fedmmb_with_one_batch(federation: Federation) -> None:
    data = clients((11, 4, 1, 23, 0, 8))
    one, more = (run(federation, fedmmb(Participation(), LOCAL, batches=count), data, rounds=4) for count in (1, 2))
    assert same(run(federation, fedsmb(Participation(), LOCAL), data, rounds=4).model, one.model)
    assert not same(one.model, more.model)


def test_a_pass_goes_over_every_sample_once() -> None:
    def draw(counter: int) -> np.random.Generator:
        return np.random.default_rng(counter)

    local = Local(batches=2, batch_size=3)
    updates = [local.plan(14, 99, update, draw) for update in range(6)]
    assert [[len(rows) for rows in update] for update in updates] == [[3, 3], [3, 3], [2]] * 2
    first, second = (
        np.concatenate([rows for update in part for rows in update]) for part in (updates[:3], updates[3:])
    )
    assert sorted(first) == sorted(second) == list(range(14))
    assert not np.array_equal(first, second)
    assert local.plan(0, 1, 5, draw) == []
    assert [rows.tolist() for rows in Local(batches=3, batch_size="full").plan(1, 1, 4, draw)] == [[0]]


def test_a_client_that_was_away_goes_on_where_it_stopped(federation: Federation) -> None:
    algorithm = fedmmb(Participation(cohort=1), LOCAL, batches=1)
    state = run(federation, algorithm, clients((12, 12, 12)), rounds=7, norm=False)
    counters = [state.personal.latest(client, 7) for client in range(3)]
    assert sum(location is not None for location in counters) >= 2
    assert state.average.integers[0] in range(1, 8)


def test_a_newcomer_begins_its_own_order(federation: Federation) -> None:
    algorithm = fedbn(Participation(cohort=1), Local(lr=0.1, batch_size=4, batches=1), newcomer="average")
    fleet = federation(clients((12, 12, 12)), perceptron(True), algorithm.sharing)
    state, made = begin(perceptron(True), fleet, 0), Counter()
    for number in range(1, 10):
        state = next_round(state, algorithm, fleet)
        assert state.report is not None
        client = int(state.report.updates.clients[0])
        made[client] += 1
        location = state.personal.latest(client, number)
        assert location is not None
        personal = fleet.layouts.personal.unpack(fleet._worker.personal.read(location))
        assert personal["batches/updates"] == made[client]
    assert len(made) == 3


def test_a_batch_that_batch_norm_refuses_is_passed_over_once(federation: Federation) -> None:
    state = run(federation, fedmmb(Participation(), LOCAL, batches=1), clients((5, 8)), rounds=3)
    assert state.report is not None
    # Client 0 has batches of 4 and 1: the second update trains on nothing, the third begins a new pass.
    assert state.report.updates.report["used"].tolist() == [4, 4]


@pytest.mark.parametrize("way", ["sequential", "vectorised", "fused", "low-rank"])
@pytest.mark.parametrize(("nonfinite", "steps"), [("leave-out", [1, 0, 1]), ("last", [1, 1, 1])])
def test_a_batch_that_is_not_finite_is_passed_over_once(
    nonfinite: Nonfinite, steps: list[int], way: Execution, federation: Federation
) -> None:
    ((x, y),) = clients((12,))
    x[generator(0, Purpose.BATCHES, 0, 0).permutation(12)[4]] = torch.nan  # in the second batch of the first pass
    algorithm = fedsmb(Participation(), replace(LOCAL, nonfinite=nonfinite, compute=Compute(way)))
    fleet = federation([(x, y)], perceptron(), algorithm.sharing, compute=Compute(way))
    state, taken, finite = begin(perceptron(), fleet, 0), list[int](), list[bool]()
    for _ in range(3):
        state = next_round(state, algorithm, fleet)
        assert state.report is not None
        taken += state.report.updates.report["steps"].astype(int).tolist()
        finite += state.report.updates.finite.tolist()
    assert (taken, finite) == (steps, [True, False, True])


@pytest.mark.parametrize(
    ("local", "batches", "message"),
    [
        (Local(epochs=5), None, "must be left out for fedmmb"),
        (Local(steps=5), None, "must be left out for fedmmb"),
        (Local(batches=2), 3, "algorithm.batches, local.batches = .3, 2.: must be the same"),
        (LOCAL, 0, "local.batches = 0: must be a whole number >= 1"),
    ],
)
def test_lengths_that_contradict_are_refused(local: Local, batches: int | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fedmmb(Participation(), local, batches=batches)


def test_the_length_may_stand_in_local() -> None:
    assert fedmmb(Participation(), Local(batches=3)) == fedmmb(Participation(), Local(), batches=3)
