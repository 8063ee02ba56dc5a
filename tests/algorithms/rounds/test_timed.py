"""Synchronous rounds in virtual time: a round by hand, identities, properties of drawn traces, and late updates."""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from algorithms import (
    Algorithm,
    Compute,
    DeviceTable,
    Downlink,
    InputError,
    Layout,
    Local,
    Participation,
    Sign,
    State,
    begin,
    fedavg,
    fedbn,
    next_round,
    phases,
    radfed,
    radfedi,
    scaffold,
)
from algorithms.options.attendance import LateUpdate, attend
from algorithms.options.oort import Oort
from algorithms.parts.option import Draft
from algorithms.parts.schedule import Reporting
from algorithms.rounds.timed import check_virtual_time
from raysim.fleet.inline import InlineFleet
from tests.kit.arrivals import table
from tests.kit.federation import clients, perceptron
from tests.kit.rounds import same

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.05, batch_size=4)


def run(
    federation: Federation, algorithm: Algorithm, sizes: list[int], devices: DeviceTable | None, rounds: int
) -> list[State]:
    """Return the states of a run, the first one included."""
    compute = Compute("sequential", "fp64")
    fleet = federation(clients(sizes), perceptron(True).double(), algorithm.sharing, compute=compute)
    fleet.census = replace(fleet.census, devices=devices)
    check_virtual_time(algorithm, devices)
    states = [begin(perceptron(True).double(), fleet, 3, rounds)]
    for number in range(1, rounds + 1):
        states.append(next_round(states[-1], algorithm.computed(compute), fleet, last=number == rounds))
    return states


TEN = [10] * 10
SPEEDS = [10.0, 5.0, 2.0, 1.0, 10 / 3, 10 / 6, 10 / 7, 10 / 8, 10 / 9, 0.1]
"""Clients of ten samples take 1, 2, 5, 10, 3, 6, 7, 8, 9 and 100 seconds."""


def test_ten_clients_by_hand(federation: Federation) -> None:
    always, short = [(0.0, inf)], [(0.0, 2.5)]
    # Client 2 (5 s) vanishes at 2.5 s, client 4 (3 s) is absent until 100 s.
    intervals = [always, always, short, always, [(100.0, inf)], *[always] * 5]
    devices = table(SPEEDS, intervals)
    algorithm = fedavg(Participation(cohort=5, reporting=Reporting(over=2.0, deadline=20.0)), LOCAL)
    (_, state) = run(federation, algorithm, TEN, devices, 1)
    # Nine are selected; they report at 1, 2, never, 10, 6, 7, 8, 9 and 100 s. The fifth report is that of client 7.
    assert state.report is not None and state.report.dropped is not None
    assert state.report.updates.clients.tolist() == [0, 1, 5, 6, 7]
    assert state.now == pytest.approx(8.0) == state.report.measures["simulated_seconds"]
    dropped = state.report.dropped
    assert dict(zip(dropped.clients.tolist(), dropped.outcomes, strict=True)) == {
        2: "vanished",
        3: "late",
        8: "late",
        9: "late",
    }
    np.testing.assert_allclose(dropped.seconds, [2.5, 8, 8, 8])
    np.testing.assert_allclose(dropped.samples, [5, 8, 80 / 9, 0.8])
    assert state.report.bytes_up > 0 and 5 * state.report.bytes_down == 9 * state.report.bytes_up


def test_a_deadline_ends_the_round(federation: Federation) -> None:
    algorithm = fedavg(Participation(reporting=Reporting(deadline=5.5)), LOCAL)
    states = run(federation, algorithm, TEN, table(SPEEDS), 2)
    assert all(state.report and state.report.updates.clients.tolist() == [0, 1, 2, 4] for state in states[1:])
    assert [state.now for state in states] == [0, 5.5, 11]


def test_nobody_in_time_leaves_the_model(federation: Federation) -> None:
    algorithm = fedavg(Participation(reporting=Reporting(deadline=0.5)), LOCAL)
    first, second = run(federation, algorithm, TEN, table(SPEEDS), 1)
    assert same(first.model, second.model) and second.report is not None and len(second.report.updates) == 0
    assert second.now == 0.5


def test_a_round_waits_for_the_first_client(federation: Federation) -> None:
    devices = table([10.0] * 3, [[(50.0, 60.0)], [(70.0, 80.0)], []], 100.0)
    states = run(federation, fedavg(Participation(), LOCAL), [10] * 3, devices, 3)
    assert [state.now for state in states] == [0, 51, 52, 53]
    assert all(state.report and state.report.updates.clients.tolist() == [0] for state in states[1:])
    gone = table([10.0] * 3, [[(0.0, 1.5)], [(0.0, 1.5)], []])
    with pytest.raises(InputError, match=r"no training client is available after 1\.5 virtual seconds"):
        run(federation, fedavg(Participation(), LOCAL), [10] * 3, gone, 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda participation: fedavg(participation, LOCAL),
        lambda participation: fedbn(participation, LOCAL),
        lambda participation: scaffold(participation, LOCAL),
        lambda participation: radfed(participation, LOCAL, aggregate_every=3),
    ],
)
def test_always_available_is_a_synchronous_round(
    make: Callable[[Participation], Algorithm], federation: Federation
) -> None:
    sizes = [7, 4, 3, 9, 0, 8]
    always = table([2.0] * 6, [[(0.0, 7.0), (7.0, 10.0)]] * 6, 10.0)
    plain = run(federation, make(Participation(cohort=4)), sizes, None, 3)
    timed = run(federation, make(Participation(cohort=4)), sizes, always, 3)
    over = run(federation, make(Participation(cohort=4, reporting=Reporting(over=1.0, deadline=1e9))), sizes, always, 3)
    equal = run(federation, make(Participation(cohort=4)), sizes, table([2.0] * 6), 3)
    for one, other, third, fourth in zip(plain, timed, over, equal, strict=True):
        assert same(one.model, other.model) and same(one.model, third.model) and same(one.model, fourth.model)
    for one, other in zip(timed[1:], equal[1:], strict=True):
        assert one.report and other.report
        rows, others = (replace(each.report.updates, personal=()) for each in (one, other) if each.report)
        np.testing.assert_equal(vars(rows), vars(others))
        assert one.report.bytes_down == other.report.bytes_down and one.report.bytes_up == other.report.bytes_up


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("late", ["drop", "stale"])
def test_properties_of_drawn_traces(seed: int, late: Any, federation: Federation) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 12, 12).tolist()
    intervals = []
    for _ in sizes:
        times = np.sort(rng.choice(60, 6, replace=False)).astype(float).tolist()
        intervals.append(list(zip(times[::2], times[1::2], strict=True)))
    devices = table(rng.uniform(0.5, 3, 12).tolist(), intervals, 60.0, 0.5)
    reporting = Reporting(float(rng.choice([1.0, 1.5])), float(rng.choice([3.0, 6.0])), late)
    algorithm = fedavg(Participation(cohort=5, reporting=reporting), LOCAL)
    compute = Compute("sequential", "fp64")
    fleet = federation(clients(sizes), perceptron(True).double(), algorithm.sharing, compute=compute)
    fleet.census = replace(fleet.census, devices=devices)
    state = begin(perceptron(True).double(), fleet, seed, 8)
    selected = counted = dropped = 0
    for _ in range(8):
        late_ones = [LateUpdate(*each) for each in state.of("virtual-time").get("late", ())]
        attended = attend(Draft.of(state, algorithm, fleet), devices, late_ones)
        busy = {each.client for each in late_ones}
        new_late = [each for each in attended.late if each.round == state.round + 1]
        everyone = [*attended.cohort.tolist(), *attended.dropped.clients.tolist(), *(each.client for each in new_late)]
        assert len(set(everyone)) == len(everyone) and not busy & set(everyone)  # nobody twice in flight
        assert all(devices.until(client, attended.begins) > attended.begins for client in everyone)
        for client, seconds in zip(attended.cohort.tolist(), attended.seconds, strict=True):
            assert devices.until(client, attended.begins) >= attended.begins + seconds  # nobody trains while absent
            assert attended.begins + seconds <= attended.ends <= attended.begins + (reporting.deadline or inf)
        assert state.now <= attended.begins <= attended.ends  # time never goes back
        after = next_round(state, algorithm.computed(compute), fleet)
        assert after.report is not None and after.report.dropped is not None
        assert len(after.report.updates) == len(attended.cohort) + len(attended.arrived)
        selected, dropped = selected + len(everyone), dropped + len(after.report.dropped)
        counted += len(after.report.updates)
        state = after
    under_way = len(state.of("virtual-time").get("late", ()))
    assert selected == counted + dropped + under_way  # all accounts add up
    assert late == "drop" or counted > 0


def test_a_late_update_counts_as_written(federation: Federation) -> None:
    # Client 1 takes 2.5 s. It is selected in round 1, and reports in round 3, when two rounds have ended.
    devices = table([10.0, 4.0], [[(0.0, inf)], [(0.0, inf)]])
    participation = Participation(reporting=Reporting(deadline=1.0, late="stale"))
    algorithm, sizes = fedavg(participation, LOCAL), [10, 10]
    states = run(federation, algorithm, sizes, devices, 3)
    assert [each.report.updates.clients.tolist() for each in states[1:] if each.report] == [[0], [0], [0, 1]]
    report = states[3].report
    assert report is not None and report.updates.column("staleness").tolist() == [0, 2]
    # The same client updates, each alone from the model that it received.
    alone = run(federation, fedavg(Participation(), LOCAL), sizes, None, 1)[1]
    parameters = Layout.of(perceptron(True).double()).parameters
    w2, first = states[2].model.floats, states[0].model.floats
    # w3 = (10 a + 10/sqrt(3) (b - w0 + w2)) / (10 + 10/sqrt(3)), with a the fresh model and b the late one.
    share = 1 / np.sqrt(3)
    mean = alone.model.floats
    a1 = states[1].model.floats  # client 0 alone in round 1
    b = 2 * mean - a1
    fresh = run(federation, fedavg(Participation(reporting=Reporting(deadline=1.0)), LOCAL), sizes, devices, 3)[
        3
    ].model.floats
    expected = (fresh + share * np.where(parameters, b - first + w2, b)) / (1 + share)
    np.testing.assert_allclose(states[3].model.floats, expected, atol=1e-9)


def test_a_round_without_an_idle_client_waits_for_a_late_update(federation: Federation) -> None:
    participation = Participation(reporting=Reporting(deadline=1.0, late="stale"))
    states = run(federation, fedavg(participation, LOCAL), [10, 10], table([2.0, 1.0]), 4)
    # Both train for longer than the deadline; they arrive after 5 and 10 s. Client 0 is then sent again.
    assert [state.now for state in states] == [0, 1, 5, 6, 10]
    found = [each.report.updates.clients.tolist() for each in states[1:] if each.report]
    assert found == [[], [0], [], [1, 0]]
    gone = table([2.0, 1.0], [[(0.0, 6.0)], [(0.0, 3.0)]])
    with pytest.raises(InputError, match="no training client is available"):
        run(federation, fedavg(participation, LOCAL), [10, 10], gone, 9)


def test_nobody_waits_for_a_far_client_while_an_update_is_late(federation: Federation) -> None:
    participation = Participation(reporting=Reporting(deadline=1.0, late="stale"))
    devices = table([2.0, 10.0], [[(0.0, 90.0)], [(50.0, 90.0)]])
    states = run(federation, fedavg(participation, LOCAL), [10, 10], devices, 3)
    # Client 0 arrives after 5 s, long before client 1 becomes available, and is sent again.
    assert [state.now for state in states] == [0, 1, 5, 6]


def test_stale_rows_are_the_updates_of_their_round(federation: Federation) -> None:
    devices = table([10.0, 10 / 3, 1.0], [[(0.0, inf)]] * 3)
    participation = Participation(reporting=Reporting(deadline=1.0, late="stale"))
    states = run(federation, fedbn(participation, LOCAL), [10, 10, 10], devices, 12)
    reports = [state.report for state in states[1:] if state.report]
    found = {(number, c) for number, each in enumerate(reports, 1) for c in each.updates.clients.tolist()}
    assert (3, 1) in found and (10, 2) in found
    assert states[-1].personal.latest(2, 12) is not None


@pytest.mark.parametrize(("late", "counts"), [("stale", True), ("drop", False)])
def test_an_update_that_is_late_at_a_switch_counts_as_the_next_phase_says(
    federation: Federation, late: Any, counts: bool
) -> None:
    """It counted in a phase that drops late updates, without a row in the report."""
    devices = table([10.0, 10 / 3], [[(0.0, inf)]] * 2)
    first, then = (
        fedavg(Participation(reporting=Reporting(deadline=1.0, late=kind)), LOCAL) for kind in ("stale", late)
    )
    states = run(federation, phases(first, (2, then)), [10, 10], devices, 3)
    alone = run(federation, first, [10, 10], devices, 3)
    assert states[-1].report is not None and states[-1].phase == 1
    assert states[-1].report.updates.clients.tolist() == [0, 1][: 1 + counts]
    assert same(states[-1].model, alone[-1].model) == counts


@pytest.mark.parametrize(
    ("algorithm", "devices", "text"),
    [
        (
            fedavg(Participation(reporting=Reporting(over=1.3)), LOCAL),
            None,
            r"algorithm.over = 1.3 without \[devices\]",
        ),
        (fedavg(Participation(reporting=Reporting(deadline=3.0)), LOCAL), None, "algorithm.deadline = 3.0 without"),
        (
            fedavg(Participation(reporting=Reporting(deadline=3.0)), LOCAL).having(Downlink((Sign(),))),
            table([1.0]),
            r"deadline = 3.0 with \[downlink\]",
        ),
    ],
)
def test_parts_that_contradict_virtual_time(algorithm: Algorithm, devices: DeviceTable | None, text: str) -> None:
    with pytest.raises(InputError, match=text):
        check_virtual_time(algorithm, devices)


@pytest.mark.parametrize(
    "given", [{"over": 0.9}, {"over": inf}, {"deadline": 0.0}, {"late": "never"}, {"late": "stale"}]
)
def test_reporting_out_of_range(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"algorithm.{next(iter(given))} = "):
        Reporting(**given)


def test_travelling_models_wait_or_are_dropped(federation: Federation) -> None:
    # Client 3 is slow: in redistribution rounds its model finds nobody in time.
    devices = table([10.0, 10.0, 10.0, 10.0], [[(0.0, inf)], [(0.0, inf)], [(0.0, inf)], [(0.0, 1.5), (5.0, 6.5)]])
    for fewer, counts in (("wait", [4, 3, 3]), ("drop", [4, 3, 3])):
        algorithm = radfed(Participation(), LOCAL, aggregate_every=3, fewer=fewer)
        states = run(federation, algorithm, [10] * 4, devices, 3)
        assert [len(each.report.updates) for each in states[1:] if each.report] == counts
        assert len(states[1].travelling_models) == 4
        assert len(states[2].travelling_models) == (4 if fewer == "wait" else 3)


def test_ties_favour_no_client(federation: Federation) -> None:
    algorithm = fedavg(Participation(cohort=2, reporting=Reporting(over=1.5)), LOCAL)
    states = run(federation, algorithm, [10] * 6, table([10.0] * 6), 24)
    counted = [client for each in states[1:] if each.report for client in each.report.updates.clients.tolist()]
    assert set(counted) == set(range(6)) and len(counted) == 48


def test_a_poisson_cohort_above_its_mean_counts(federation: Federation) -> None:
    speeds = np.linspace(1.0, 2.0, 8).tolist()
    devices = table(speeds, [[(0.0, inf)]] * 8)
    participation = Participation(fraction=0.5, by="poisson")
    timed, plain = (run(federation, fedavg(participation, LOCAL), [10] * 8, each, 6) for each in (devices, None))
    found = [[len(each.report.updates) for each in states[1:] if each.report] for states in (timed, plain)]
    assert found[0] == found[1] and max(found[0]) > 4
    rare = fedavg(replace(participation, fraction=0.1, reporting=Reporting(deadline=50.0)), LOCAL)
    few = [len(each.report.updates) for each in run(federation, rare, [10] * 8, devices, 6)[1:] if each.report]
    assert min(few) == 0 < max(few)


def test_importance_draws_the_first_round_too(federation: Federation) -> None:
    devices = table([1.0] * 6, [[(0.0, inf)]] * 6)
    algorithm = radfedi(Participation(cohort=3), LOCAL, aggregate_every=2, start="equal")
    sizes = [10, 0, 10, 0, 10, 0]
    state = run(federation, algorithm, sizes, devices, 2)[1]
    assert state.report is not None and state.report.updates.clients.tolist() == [0, 2, 4]


def test_control_variates_move_by_the_clients_that_report(federation: Federation) -> None:
    # c = mean_k c_k: the changes of three clients count 3 / 4 if there is a fourth one, which is late.
    timed, full = (Participation(reporting=Reporting(deadline=deadline)) for deadline in (2.0, 20.0))
    found = []
    for participation, speeds in ((timed, [10.0, 10.0, 10.0, 1.0]), (full, [10.0] * 3)):
        algorithm = scaffold(participation, LOCAL)
        state = run(federation, algorithm, [8] * len(speeds), table(speeds), 1)[1]
        assert state.report is not None and state.report.updates.clients.tolist() == [0, 1, 2]
        shared = algorithm.sharing.divide(Layout.of(perceptron(True).double())).shared.unpack(state.model)
        found.append(np.concatenate([value.ravel() for name, value in shared.items() if "common_control" in name]))
    assert np.abs(found[1]).max() > 0.01
    np.testing.assert_allclose(found[0], 0.75 * found[1], rtol=1e-9)
    with pytest.raises(InputError, match=r"algorithm\.late = 'stale'"):
        scaffold(Participation(reporting=Reporting(deadline=2.0, late="stale")), LOCAL)


def test_the_cohort_is_a_share_of_the_clients_that_have_joined(federation: Federation) -> None:
    compute, participation = (
        Compute("sequential", "fp64"),
        Participation(fraction=0.5, reporting=Reporting(deadline=9.0)),
    )
    for by in ("uniform", Oort()):
        algorithm = fedavg(replace(participation, by=by), LOCAL)
        fleet = federation(clients([10] * 8), perceptron(True).double(), algorithm.sharing, compute=compute)
        joins = np.array([1] * 4 + [3] * 4)
        fleet.census = replace(fleet.census, devices=table([10.0] * 8), joins=joins)
        state, counts = begin(perceptron(True).double(), fleet, 3, 4), []
        for _ in range(4):
            state = next_round(state, algorithm.computed(compute), fleet)
            assert state.report is not None and state.report.dropped is not None
            counts.append((len(state.report.updates), len(state.report.dropped)))
        assert counts == [(2, 0), (2, 0), (4, 0), (4, 0)]
