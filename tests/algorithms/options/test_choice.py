"""Power-of-choice: of some candidates, the clients with the largest losses train."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from algorithms import (
    Algorithm,
    Compute,
    DrawnDevices,
    InputError,
    Local,
    Participation,
    PowerOfChoice,
    State,
    begin,
    centralized,
    fedasync,
    fedavg,
    fedbn,
    fedtan,
    next_round,
    radfed,
    radfedi,
    scaffold,
    silobn,
    static_bn,
)
from algorithms.options.virtual_time import Joins
from algorithms.parts.option import Draft
from raysim.fleet.inline import InlineFleet
from tests.kit.reference import DATA, FP64, agree, drawn, engine, mean, module, sgd, train
from tests.kit.rounds import same

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.05, batch_size=4)
CHOICE = Participation(cohort=2, by=PowerOfChoice(4))
SIZES = np.array([len(y) for _, y in DATA])


def test_the_candidates_with_the_largest_losses_train(federation: Federation) -> None:
    state, fleet = engine(federation, fedavg(CHOICE, LOCAL, weighting="equal"), rounds=6)
    x, chosen = module(), set()
    for number in range(1, 7):
        candidates = Participation(cohort=4, by="size").draw(np.arange(6), 0, number, SIZES)
        losses = {}
        for client in candidates.tolist():
            with torch.no_grad():
                logits = deepcopy(x).eval()(DATA[client][0].double())
            losses[client] = cross_entropy(logits, DATA[client][1]).item()
        models = []
        for client in sorted(sorted(losses, key=losses.__getitem__)[-2:]):
            models.append(deepcopy(x))
            train(models[-1], DATA[client], drawn(LOCAL, DATA[client], number, client), sgd(LOCAL.lr))
            chosen.add(client)
        x.load_state_dict(mean(models, [1.0, 1.0]))
    agree(state, fleet, x.state_dict())
    assert len(chosen) > 2


@pytest.mark.parametrize("make", [fedavg, fedbn, scaffold])
def test_with_as_many_candidates_as_clients_in_a_cohort_it_is_sampling_by_size(
    make: Callable[..., Algorithm], federation: Federation
) -> None:
    by_size, choice = (make(replace(CHOICE, by=by), LOCAL) for by in ("size", PowerOfChoice(2)))
    (a, _), (b, _) = (engine(federation, algorithm, rounds=4) for algorithm in (by_size, choice))
    assert same(a.model, b.model) and same(a.average, b.average)


def run(federation: Federation, algorithm: Algorithm, devices: DrawnDevices | None = None) -> tuple[State, InlineFleet]:
    fleet = federation(DATA, module(), algorithm.sharing, compute=FP64)
    fleet.census = replace(fleet.census, devices=devices)
    state = begin(module(), fleet, 0)
    for _ in range(3):
        state = next_round(state, algorithm.computed(FP64), fleet)
    return state, fleet


def test_candidates_receive_the_model_once_and_send_a_number(federation: Federation) -> None:
    state, fleet = run(federation, fedavg(CHOICE, LOCAL))
    whole = fleet.layouts.shared.nbytes
    assert state.report is not None and state.report.exchanges == 2
    assert (state.report.bytes_down, state.report.bytes_up) == (4 * whole, 2 * whole + 4 * 8)


def test_new_candidates_receive_the_average_as_well(federation: Federation) -> None:
    algorithm = silobn(CHOICE, LOCAL, newcomer="average")
    fleet = federation(DATA, module(), algorithm.sharing, compute=FP64)
    state = next_round(begin(module(), fleet, 0), algorithm.computed(FP64), fleet)
    whole, own = fleet.layouts.shared.nbytes, fleet.layouts.personal.nbytes
    assert state.report is not None
    assert (state.report.bytes_down, state.report.bytes_up) == (4 * (whole + own), 2 * (whole + own) + 4 * 8)


def test_virtual_time_has_the_candidates_pass(federation: Federation) -> None:
    devices = DrawnDevices(compute=10.0, down=1e3, up=1e3)
    times = []
    for by in ("size", PowerOfChoice(2)):
        state, _ = run(federation, fedavg(Participation(cohort=2, by=by), LOCAL), devices)  # type: ignore[arg-type]
        assert state.report is not None
        times.append(state.report.measures["simulated_seconds"])
    assert times[1] > times[0] + SIZES.min() / 10


def test_losses_are_those_of_each_clients_own_model(federation: Federation) -> None:
    """Under FedBN each candidate's personal entries take part."""
    algorithm = fedbn(CHOICE, LOCAL)
    state, fleet = run(federation, algorithm)
    candidates = PowerOfChoice(4).drawn(Draft.of(state, algorithm, fleet))
    losses = {}
    for client in candidates.tolist():
        location = state.personal.latest(client, state.round)
        own = state.initial if location is None else fleet._worker.personal.read(location)
        x = module().eval()
        entries = fleet.layouts.model(state.model, own)
        x.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in entries.items()})
        with torch.no_grad():
            losses[client] = cross_entropy(x(DATA[client][0].double()), DATA[client][1]).item()
    after = next_round(state, algorithm.computed(FP64), fleet)
    assert after.report is not None
    assert after.report.updates.clients.tolist() == sorted(sorted(losses, key=losses.__getitem__)[-2:])


def test_equal_losses_go_by_id_and_nan_comes_last() -> None:
    by, ids = PowerOfChoice(4), np.array([2, 5, 7, 9])
    assert by.largest(ids, np.array([1.0, 1.0, 0.5, 1.0]), 2).tolist() == [2, 5]
    assert by.largest(ids, np.array([np.nan, 0.0, np.inf, np.nan]), 2).tolist() == [5, 7]
    assert by.largest(ids, np.array([0.1, 0.2, 0.3, 0.4]), 9).tolist() == ids.tolist()


def test_candidates_are_drawn_among_active_clients_that_have_joined(federation: Federation) -> None:
    fleet = federation(DATA, module())
    fleet.census = replace(fleet.census, joins=np.array([1, 1, 1, 9, 9, 9]))
    state = begin(module(), fleet, 0)

    def candidates(number: int, participation: Participation) -> list[int]:
        draft = Draft.of(replace(state, round=number), fedavg(participation, LOCAL), fleet)
        return PowerOfChoice(4).drawn(Joins().attend(draft)).tolist()

    assert candidates(0, CHOICE) == [0, 1, 2]
    drawn_ = [candidates(number, replace(CHOICE, active=0.5)) for number in range(20)]
    assert {len(each) for each in drawn_} > {1, 2}


def test_a_share_of_the_clients_that_have_joined_may_have_fewer_than_the_candidates(federation: Federation) -> None:
    fleet = federation(DATA, module())
    fleet.census = replace(fleet.census, joins=np.array([1, 1, 1, 9, 9, 9]))
    algorithm = fedavg(Participation(fraction=0.7, by=PowerOfChoice(6)), LOCAL)
    after = next_round(begin(module(), fleet, 0), algorithm.computed(FP64), fleet)
    assert after.report is not None and len(after.report.updates) == 2  # 0.7 of three


def test_all_clients_with_samples_are_candidates_if_there_are_too_few(federation: Federation) -> None:
    fleet = federation([DATA[0], *[tuple(each[:0] for each in DATA[1])] * 3, DATA[3], DATA[5]], module())
    algorithm = fedavg(Participation(cohort=2, by=PowerOfChoice(5)), LOCAL)
    draft = Draft.of(begin(module(), fleet, 0), algorithm, fleet)
    assert PowerOfChoice(5).drawn(draft).tolist() == [0, 4, 5]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PowerOfChoice(0), "algorithm.candidates = 0: must be a whole number >= 1"),
        (lambda: CHOICE.size(3), "algorithm.candidates = 4: must be from 2, the cohort, to 3, the number of training"),
        (
            lambda: Participation(by=PowerOfChoice(4)).size(6),
            "algorithm.candidates = 4: must be from 6, the cohort, to 6",
        ),
        (lambda: radfed(CHOICE, LOCAL), "aggregate_every = 15 with algorithm.candidates: must be 1"),
        (lambda: static_bn(CHOICE, LOCAL), "local.statistics = .untracked. with algorithm.candidates: must be"),
        (lambda: fedasync(CHOICE, LOCAL), "PowerOfChoice.* with asynchronous arrivals: must be"),
        (lambda: radfedi(CHOICE, LOCAL), "PowerOfChoice.*: must be left out for radfedi"),
        (lambda: fedtan(CHOICE, LOCAL), "PowerOfChoice.*: must be 'uniform' or 'size' for fedtan"),
        (lambda: centralized(Participation(by=PowerOfChoice(4)), LOCAL), "must be left out for united data"),
    ],
)
def test_choices_that_make_no_sense_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_blocks_and_stacks_choose_alike(federation: Federation) -> None:
    algorithm, models = fedbn(CHOICE, LOCAL), []
    for block, compute in ((1, FP64), (3, FP64), (3, Compute("vectorised", "fp64"))):
        fleet = federation(DATA, module(), algorithm.sharing, block, compute, 3)
        state = begin(module(), fleet, 0)
        for _ in range(4):
            state = next_round(state, algorithm.computed(compute), fleet)
        models.append(state.model.floats)
    np.testing.assert_allclose(models[1], models[0], rtol=1e-12)
    np.testing.assert_allclose(models[2], models[0], rtol=1e-9, atol=1e-12)
