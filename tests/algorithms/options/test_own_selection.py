"""Selection by a user's own rule: what it sees, what it keeps, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from algorithms import (
    Algorithm,
    InputError,
    Local,
    OwnSelection,
    Participation,
    Purpose,
    SelectionContext,
    State,
    begin,
    fedasync,
    fedavg,
    fedbuff,
    generator,
    next_round,
    phases,
    radfed,
)
from algorithms.options.privacy import Privacy
from raysim.fleet.inline import InlineFleet
from tests.kit.reference import DATA, FP64, module
from tests.kit.rounds import same

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.05, batch_size=4)
SIZES = [len(y) for _, y in DATA]


def choosing(rule: Callable[[SelectionContext], Any], **keys: Any) -> Participation:
    return Participation(**{"cohort": 2, **keys}, by=OwnSelection("mine:rule", rule))


def run(federation: Federation, algorithm: Algorithm, rounds: int = 3) -> State:
    fleet = federation(DATA, module(), algorithm.sharing, compute=FP64)
    state = begin(module(), fleet, 0, rounds)
    for _ in range(rounds):
        state = next_round(state, algorithm.computed(FP64), fleet)
    return state


def test_a_rule_sees_clients_sizes_and_the_last_reports_and_keeps_its_memory(federation: Federation) -> None:
    seen: list[SelectionContext] = []

    def rule(context: SelectionContext) -> list[int]:
        seen.append(context)
        assert context.memory.get("round", 0) == context.round - 1
        context.memory["round"] = np.array(context.round)
        return [5, 0, 3]

    rule.needs = ("change",)  # type: ignore[attr-defined]
    state = run(federation, fedavg(choosing(rule), LOCAL))
    first, second, third = seen
    assert (first.round, first.size, first.clients.tolist()) == (1, 2, [0, 1, 2, 3, 4, 5])
    assert first.samples.tolist() == SIZES and first.available.all() and not first.reports
    assert third.reports["client"].tolist() == [0, 3, 5] and third.reports["samples"].tolist() == [11, 23, 7]
    assert (second.reports["change"] > 0).all() and np.isfinite(second.reports["loss"]).all()
    assert second.rng.random() == generator(0, Purpose.OWN_SELECTION, 2).random()
    assert state.of("own-selection")["memory"]["round"] == 3
    assert state.report is not None and state.report.updates.clients.tolist() == [0, 3, 5]


def test_a_rule_that_draws_as_raysim_does_is_uniform_sampling(federation: Federation) -> None:
    def uniform(context: SelectionContext) -> np.ndarray:
        return Participation(cohort=context.size).draw(context.clients, 0, context.round)

    own, plain = (run(federation, fedavg(by, LOCAL)) for by in (choosing(uniform), Participation(cohort=2)))
    assert same(own.model, plain.model)


def test_a_class_is_made_anew_for_each_round_so_only_its_memory_lasts(federation: Federation) -> None:
    class Rule:
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, context: SelectionContext) -> list[int]:
            self.calls += 1
            assert self.calls == 1
            return [0]

    run(federation, fedavg(choosing(Rule), LOCAL))


def test_a_rule_cannot_change_what_others_see(federation: Federation) -> None:
    def rule(context: SelectionContext) -> list[int]:
        for values in (context.clients, context.samples, context.available):
            with pytest.raises(ValueError, match="read-only"):
                values[0] = 7
        return [0]

    run(federation, fedavg(choosing(rule), LOCAL), rounds=1)


def test_inactive_clients_are_not_available(federation: Federation) -> None:
    seen: list[list[bool]] = []

    def rule(context: SelectionContext) -> list[int]:
        seen.append(context.available.tolist())
        return context.clients[context.available].tolist()

    state = run(federation, fedavg(choosing(rule, active=0.5), LOCAL), rounds=6)
    assert seen[-1] == (generator(0, Purpose.ACTIVE, 6).random(6) < 0.5).tolist()
    assert len({tuple(each) for each in seen}) > 1
    assert state.report is not None and state.report.updates.clients.tolist() == np.flatnonzero(seen[-1]).tolist()


def test_the_active_clients_after_arrivals_have_draws_of_their_own(federation: Federation) -> None:
    seen: list[list[bool]] = []

    def rule(context: SelectionContext) -> list[int]:
        seen.append(context.available.tolist())
        return context.clients[context.available].tolist()

    arrivals = fedasync(Participation(), LOCAL, concurrency=2)
    state = run(federation, phases(arrivals, (2, fedavg(choosing(rule, active=0.5), LOCAL))), rounds=4)
    assert seen[-1] == (generator(0, Purpose.ACTIVE, state.dispatches + 4).random(6) < 0.5).tolist()


def test_as_many_clients_as_models_travel_are_chosen(federation: Federation) -> None:
    sizes: list[int] = []

    def rule(context: SelectionContext) -> list[int]:
        sizes.append(context.size)
        return [0, 1, 2] if context.round == 1 else [4, 5]

    run(federation, radfed(choosing(rule), LOCAL, aggregate_every=3))
    assert sizes == [2, 2, 2]
    with pytest.raises(InputError, match=r"choose 1 to 2 clients, .*, and chooses 3 in round 2 \(.*\); correct it"):
        run(
            federation,
            radfed(choosing(lambda c: [0, 1] if c.round == 1 else [0, 1, 2]), LOCAL, aggregate_every=3),
        )


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([99], "choose available clients, and 99 is no training client in round 1"),
        ([-1], "choose available clients, and -1 is no training client in round 1"),
        ([1, 0, 1], "choose each client once, and chooses 1 twice in round 1"),
        ([], "choose 1 to 6 clients, as many as are available, or as models travel, and chooses 0 in round 1"),
        (None, "return a list or an array of ids, whole numbers, and returns a NoneType in round 1"),
        (3, "return a list or an array of ids, whole numbers, and returns a int in round 1"),
        ([True], "return a list or an array of ids, whole numbers, and returns a bool in round 1"),
        ([1.0], "return a list or an array of ids, whole numbers, and returns a float in round 1"),
        (np.ones((2, 1), int), "return a list or an array of ids, whole numbers, and returns a list in round 1"),
        ({"a": 1}, "return a list or an array of ids, whole numbers, and returns a dict in round 1"),
        (["0"], "return a list or an array of ids, whole numbers, and returns a str in round 1"),
    ],
)
def test_an_impossible_choice_is_refused(federation: Federation, found: Any, text: str) -> None:
    with pytest.raises(InputError) as error:
        run(federation, fedavg(choosing(lambda context: found), LOCAL))
    message, _, place = str(error.value).rpartition(" (")
    assert message == f"algorithm.sampling = 'mine:rule': must {text}"
    assert re.fullmatch(r"test_own_selection.py, line \d+\); correct it", place)


def test_a_client_that_is_not_available_is_refused(federation: Federation) -> None:
    with pytest.raises(InputError, match=r"must choose available clients, and \d is not available in round 1"):
        run(federation, fedavg(choosing(lambda context: context.clients, active=0.3), LOCAL))


@pytest.mark.parametrize("value", [np.array(["a"]), [1, 2], None, np.array([1j])])
def test_a_memory_that_no_checkpoint_holds_is_refused(federation: Federation, value: Any) -> None:
    def rule(context: SelectionContext) -> list[int]:
        context.memory["x"] = value
        return [0]

    with pytest.raises(InputError, match=r"leave context.memory with arrays of numbers by names.*'x' is a "):
        run(federation, fedavg(choosing(rule), LOCAL))


def test_it_is_refused_where_a_choice_makes_no_sense() -> None:
    by = choosing(lambda context: [0], cohort=None, fraction=0.5)
    private = fedavg(by, LOCAL, weighting="equal")
    with pytest.raises(InputError, match=r"algorithm.sampling = 'mine:rule' with .*privacy.*: must be \"poisson\""):
        private.having(Privacy(1.0, 0.1))
    with pytest.raises(InputError, match=r'algorithm\.sampling = "mine:rule" with asynchronous arrivals'):
        fedbuff(by, LOCAL)
    assert replace(private, options=()).needs == ()
