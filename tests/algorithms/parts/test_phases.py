"""Phases: when they begin, and FedBS against its pseudo-code."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from algorithms import (
    AfterRound,
    ClientLoss,
    Compute,
    Equal,
    InputError,
    Local,
    LossAgreement,
    Memory,
    Mix,
    Participation,
    Purpose,
    Sharing,
    fedasync,
    fedavg,
    fedbn,
    fedbs,
    fedprox,
    fixbn,
    generator,
    next_round,
    phases,
    radfed,
)
from algorithms.core.state import begin
from algorithms.parts.arrivals import Dispatcher
from algorithms.parts.client_update import NO_INPUT
from algorithms.parts.cohort import client_updates
from algorithms.parts.option import Draft
from algorithms.parts.schedule import Reporting
from algorithms.parts.weighting import LossKind
from raysim.fleet.inline import InlineFleet
from tests.kit.arrivals import table
from tests.kit.federation import Samples, clients, perceptron
from tests.kit.rounds import SIZES, run, same, simulate

Federation = Callable[..., InlineFleet]
HALF = Participation(fraction=0.5)
LOCAL = Local(lr=0.1, batch_size=4)


def test_a_phase_that_never_ends_is_the_algorithm_itself(federation: Federation) -> None:
    data = clients(SIZES)
    plain, never = fedavg(HALF, LOCAL), phases(fedavg(HALF, LOCAL), (99, fedprox(HALF, LOCAL, proximal=5.0)))
    assert same(run(federation, plain, data).model, run(federation, never, data).model)


def test_phases_are_runs_one_after_the_other(federation: Federation) -> None:
    first, second = fedavg(HALF, LOCAL), fedprox(HALF, replace(LOCAL, lr=0.01), Mix(0.5), proximal=1.0)
    data, both = clients(SIZES), phases(fedavg(HALF, LOCAL), (2, second))
    fleet = federation(data, perceptron(True), first.sharing)
    state = begin(perceptron(True), fleet, 0)
    for number in range(1, 6):
        state = next_round(state, first if number <= 2 else second, fleet)
    found = run(federation, both, data, rounds=5)
    assert same(found.model, state.model)
    assert found.report is not None and (found.phase, found.report.phase) == (1, 1)


def test_a_phase_begins_at_a_aggregate(federation: Federation) -> None:
    algorithm = phases(radfed(HALF, LOCAL, aggregate_every=3), (2, replace(fedavg(HALF, LOCAL), weighting=Equal())))
    fleet = federation(clients(SIZES), perceptron(True), algorithm.sharing)
    state, found = begin(perceptron(True), fleet, 0), []
    for _ in range(5):
        state = next_round(state, algorithm, fleet)
        assert state.report is not None
        found.append((state.report.phase, state.report.aggregated))
    assert found == [(0, False), (0, False), (0, True), (1, True), (1, True)]


def test_a_rule_that_has_fired_waits_for_the_next_aggregation(federation: Federation) -> None:
    class Once:
        """Fires after the first round alone."""

        def __call__(self, number: int, rounds: int | None, reports: object, memory: Memory) -> tuple[bool, Memory]:
            return number == 1, memory

    equal = replace(fedavg(HALF, LOCAL), weighting=Equal())
    algorithm = phases(radfed(HALF, LOCAL, aggregate_every=3), (Once(), equal))
    fleet = federation(clients(SIZES), perceptron(True), algorithm.sharing)
    state, found = begin(perceptron(True), fleet, 0), []
    for _ in range(4):
        state = next_round(state, algorithm, fleet)
        found.append(state.phase)
    assert found == [0, 0, 1, 1] and not state.of("until")


def test_three_phases(federation: Federation) -> None:
    slow = [fedavg(HALF, replace(LOCAL, lr=lr)) for lr in (0.1, 0.01, 0.001)]
    algorithm = phases(slow[0], (1, slow[1]), (3, slow[2]))
    fleet = federation(clients(SIZES), perceptron(True), algorithm.sharing)
    state, found = begin(perceptron(True), fleet, 0), []
    for _ in range(5):
        state = next_round(state, algorithm, fleet)
        assert state.report is not None
        found.append(state.report.phase)
    assert found == [0, 1, 1, 2, 2]
    assert [phase.local.lr for phase in algorithm.phases] == [0.1, 0.01, 0.001]


def fires(rule: LossAgreement, rounds: list[list[float]]) -> list[bool]:
    memory, found = {}, []
    for number, losses in enumerate(rounds, start=1):
        fired, memory = rule(number, None, {client: {"loss": loss} for client, loss in enumerate(losses)}, memory)
        found.append(fired)
    return found


def test_calm_counts_rounds_in_a_row() -> None:
    calm, loud = [1.0, 1.1], [1.0, 2.0]
    assert fires(LossAgreement(0.1, 2), [calm, loud, calm, calm, calm]) == [False, False, False, True, True]
    assert fires(LossAgreement(0.06, 1), [[1.0, 1.1]]) == [True]  # std over m: 0.05
    assert fires(LossAgreement(0.06, 1, "sample"), [[1.0, 1.1]]) == [False]  # over m - 1: 0.0707
    assert fires(LossAgreement(0.1, 1), [[], [1.0], [1.0, 1.0]]) == [False, False, True]
    assert fires(LossAgreement(0.1, 1, "sample"), [[1.0]]) == [False]
    assert fires(LossAgreement(0.1, 1), [[float("nan"), 1.0]]) == [False]


def update(module: torch.nn.Module, data: Samples, number: int, client: int, proximal: float, of: str) -> float | None:
    """The mean loss of a client update's samples as they are trained on, or of all after it; None without samples."""
    x, y = data[0].double(), data[1]
    received = [parameter.detach().clone() for parameter in module.parameters()]
    optimiser, losses = torch.optim.SGD(module.parameters(), LOCAL.lr), []
    for rows in LOCAL.passes(len(y), generator(0, Purpose.BATCHES, number, client)):
        if len(rows) > 1:
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(module(x[rows]), y[rows])
            near = sum(((p - r) ** 2).sum() for p, r in zip(module.parameters(), received, strict=True))
            (loss + proximal / 2 * near).backward()
            optimiser.step()
            losses += [loss.item()] * len(rows)
    if of == "after" and losses:
        return torch.nn.functional.cross_entropy(module.eval()(x), y).item()
    return float(np.mean(losses)) if losses else None


@pytest.mark.parametrize("of", ["training", "after"])
def test_fedbs_matches_its_pseudo_code_in_float64(federation: Federation, of: LossKind) -> None:
    data, epsilon, patience = clients((11, 4, 9, 23, 6, 7), seed=1), 0.4, 2
    algorithm = fedbs(HALF, LOCAL, epsilon=epsilon, patience=patience, proximal=0.5, loss=of)
    module = perceptron(True).double()
    fleet = federation(data, module, algorithm.sharing, compute=Compute("sequential", precision="fp64"))
    state = simulate(algorithm, fleet, module, rounds=8)

    module, row, warm, switched = perceptron(True).double(), 0, True, 0
    for number in range(1, 9):
        cohort = [int(client) for client in HALF.draw(np.arange(6), 0, number)]
        models = [deepcopy(module).train() for _ in cohort]
        losses = [
            update(model, data[client], number, client, 0.0 if warm else 0.5, of)
            for model, client in zip(models, cohort, strict=True)
        ]
        weights = np.array(losses if warm else [1.0] * len(cohort))
        weights /= weights.sum()
        states = [model.state_dict() for model in models]
        module.load_state_dict(
            {
                name: sum(w * s[name] for w, s in zip(weights, states, strict=True))
                if value.is_floating_point()
                else max(s[name] for s in states)
                for name, value in states[0].items()
            }
        )
        row = row + 1 if np.std(losses) <= epsilon else 0
        if warm and row >= patience:
            warm, switched = False, number
    assert 2 <= switched < 7  # both phases are long enough to tell
    assert state.phase == 1
    for entry, value in fleet.layouts.shared.unpack(state.model).items():
        np.testing.assert_allclose(value, module.state_dict()[entry].numpy(), rtol=1e-9, atol=1e-11, err_msg=entry)


def test_a_share_of_rounds_needs_to_know_how_many(federation: Federation) -> None:
    algorithm = fixbn(HALF, LOCAL)
    fleet = federation(clients(SIZES), perceptron(True), algorithm.sharing)
    with pytest.raises(InputError, match=r"a share of the rounds, 0.5, and the number of rounds is unknown"):
        next_round(begin(perceptron(True), fleet, 0), algorithm, fleet)


@pytest.mark.parametrize("returned", [True, (True, 3), (True,), None])
def test_a_rule_of_ones_own_is_checked(federation: Federation, returned: object) -> None:
    class Mine:
        def __call__(self, *_: object) -> object:
            return returned

    algorithm = phases(fedavg(HALF, LOCAL), (Mine(), fedavg(HALF, LOCAL)))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"until = .*Mine': must return whether it fires, and its memory by name, and"):
        run(federation, algorithm, clients(SIZES), rounds=1)


def test_a_rule_reads_no_late_updates(federation: Federation) -> None:
    """They began with an older model. The slow client 1 reports in the round after its own, outside the deadline."""
    seen: list[list[int]] = []

    class Sees:
        def __call__(self, _: int, __: object, reports: Mapping[int, object], memory: Memory) -> tuple[bool, Memory]:
            seen.append(list(reports))
            return False, memory

    participation = Participation(reporting=Reporting(deadline=1.0, late="stale"))
    algorithm = phases(fedavg(participation, LOCAL), (Sees(), fedavg(participation, LOCAL)))
    fleet = federation(clients((10, 10)), perceptron(True), algorithm.sharing)
    fleet.census = replace(fleet.census, devices=table([10.0, 4.0]))
    state = begin(perceptron(True), fleet, 0)
    for _ in range(3):
        state = next_round(state, algorithm, fleet)
    assert state.report is not None and state.report.updates.column("staleness").max() > 0
    assert 1 not in {client for clients in seen for client in clients} and seen[0] == [0]


def test_a_later_phase_of_arrivals_has_draws_of_its_own(federation: Federation) -> None:
    """Its dispatches are numbered on after those before, and after rounds, because these numbers key the draws."""
    for first in (fedasync(HALF, LOCAL, concurrency=2), fedavg(HALF, LOCAL)):
        algorithm = phases(first, (2, fedasync(HALF, LOCAL, concurrency=3)))
        fleet = federation(clients(SIZES), perceptron(True), algorithm.sharing)
        state, memories = begin(perceptron(True), fleet, 0), []
        for _ in range(4):
            state = next_round(state, algorithm, fleet)
            memories.append(state.of("arrivals"))
        _, last, *others = memories
        assert {each["before"] for each in others} == {last["timeline"].known if last else 2}
    later, first = (Dispatcher(0, np.arange(9), 3, float, before=before) for before in (4, 0))
    assert later.rng(3).random() == first.rng(7).random()


def test_rounds_after_arrivals_have_draws_of_their_own(federation: Federation) -> None:
    """Their numbers would key the draws of earlier dispatches again: a client would train on the same batches."""
    arrivals = fedasync(HALF, LOCAL, concurrency=2)
    algorithm = phases(arrivals, (2, fedavg(HALF, LOCAL)), (3, arrivals))
    fleet = federation(clients(SIZES), perceptron(True), algorithm.sharing)
    state = begin(perceptron(True), fleet, 0)
    for _ in range(2):
        state = next_round(state, algorithm, fleet)
    known = state.of("arrivals")["timeline"].known
    draft = Draft.of(state, algorithm.phase(1), fleet).attended()
    assert draft.drawn.tolist() == HALF.draw(np.arange(len(SIZES)), 0, known + 3).tolist()
    assert client_updates(draft).counter(NO_INPUT) == known + 3
    for _ in range(2):
        state = next_round(state, algorithm, fleet)
    assert state.of("arrivals")["before"] == known + 3


def test_weighing_by_loss() -> None:
    assert ClientLoss()({"loss": 2.5, "samples": 7.0}) == 2.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: phases(fedavg(HALF, LOCAL), (3, fedbn(HALF, LOCAL))), "sharing = Sharing.* in a later phase: must be"),
        (
            lambda: phases(fedavg(HALF, LOCAL), (3, fedavg(HALF, Local(compute=Compute("vectorised"))))),
            "local.compute = .* in a later phase",
        ),
        (lambda: AfterRound(0), "must be a whole number >= 1"),
        (lambda: AfterRound(1.5), "must be a whole number >= 1, or a share"),
        (lambda: fixbn(HALF, LOCAL, fix_after=-1), "algorithm.fix_after = -1: must be a whole number >= 1, a share"),
        (lambda: LossAgreement(epsilon=0.0), "algorithm.epsilon = 0.0: must be a number > 0"),
        (lambda: LossAgreement(patience=0), "algorithm.patience = 0"),
        (lambda: LossAgreement(deviation="both"), "algorithm.deviation = 'both'"),  # type: ignore[arg-type]
    ],
)
def test_phases_that_make_no_sense_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_places_are_compared_by_value() -> None:
    same_place = replace(fedprox(HALF, LOCAL), sharing=Sharing())
    assert phases(fedavg(HALF, LOCAL), (1, same_place)).phase(1) == same_place
