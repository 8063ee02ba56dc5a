"""Central differential privacy of users against a plain loop, and what it refuses."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from algorithms import (
    Adam,
    AdaptiveClip,
    AfterRound,
    Algorithm,
    Assign,
    Compute,
    Equal,
    InputError,
    Layout,
    Local,
    LossAgreement,
    Method,
    Option,
    Participation,
    PowerOfChoice,
    Privacy,
    Purpose,
    Robust,
    Rounds,
    Sharing,
    State,
    Stretched,
    TopK,
    Uplink,
    begin,
    fedadam,
    fedasync,
    fedavg,
    fedbn,
    fedbs,
    feddyn,
    fednova,
    fedprox,
    fedtan,
    generator,
    next_round,
    phases,
    radfed,
    scaffold,
    silobn,
    singleset,
)
from algorithms.options.aggregation import Median
from algorithms.parts.option import HOOKS
from algorithms.qfedavg import LossPower
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import perceptron
from tests.kit.reference import DATA, FP64, drawn, sgd, train

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.05, batch_size=4)
POISSON = Participation(0.4, by="poisson")
ADAPTIVE = AdaptiveClip(count_noise=2.0, quantile=0.3, rate=0.5)


def simulated(
    federation: Federation, algorithm: Algorithm, rounds: int = 6, compute: Compute = FP64, block: int = 2
) -> State:
    algorithm, double = algorithm.computed(compute), compute.precision == "fp64"
    model = perceptron().double() if double else perceptron()
    state = begin(model, fleet := federation(DATA, model, algorithm.sharing, block, compute), 0, rounds)
    for number in range(1, rounds + 1):
        state = next_round(state, algorithm, fleet, last=number == rounds)
    return state


def entries(state: State) -> np.ndarray:
    """The parameters of a state's model, end to end, without the padding between them."""
    values = Layout.of(perceptron().double()).unpack(state.model).values()
    return np.concatenate([each.ravel() for each in values])


def changes_of(x: torch.nn.Module, cohort: np.ndarray, number: int) -> list[np.ndarray]:
    """The changes of the clients' models in a round of plain SGD, by client."""
    found = []
    for client in cohort:
        model = deepcopy(x)
        train(model, DATA[client], drawn(LOCAL, DATA[client], number, int(client), 1), sgd(LOCAL.lr))
        found.append(flat(model) - flat(x))
    return found


def flat(model: torch.nn.Module) -> np.ndarray:
    return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])


@torch.no_grad()
def assign(model: torch.nn.Module, values: np.ndarray) -> None:
    torch.nn.utils.vector_to_parameters(torch.from_numpy(values), model.parameters())


@pytest.mark.parametrize("adaptive", [None, ADAPTIVE])
@pytest.mark.parametrize("momentum", [False, True])
def test_rounds_match_the_papers_algorithm(
    federation: Federation, adaptive: AdaptiveClip | None, momentum: bool
) -> None:
    """Clients of 4 to 23 samples, cohorts of 0 to 5: some changes are clipped, some are not."""
    rule = Adam(lr=0.01, beta1=0.5, beta2=0.9, tau=0.1) if momentum else None
    plain = fedadam(POISSON, LOCAL, rule) if rule else fedavg(POISSON, LOCAL, weighting="equal")
    state = simulated(federation, plain.having(Privacy(0.7, 0.1, adaptive)))
    x, clip, clipped, sizes = perceptron().double(), 0.1, [], []
    first, second = np.zeros(len(flat(x))), np.full(len(flat(x)), 0.1**2)
    for number in range(1, 7):
        cohort, rng = POISSON.draw(np.arange(6), 0, number), generator(0, Purpose.PRIVACY, number)
        total, within = np.zeros(len(flat(x))), 0.0
        for change in changes_of(x, cohort, number):
            norm = np.linalg.norm(change)
            clipped.append(norm > clip)
            total += change * min(1.0, clip / norm)
            within += 0.5 if norm <= clip else -0.5
        split = 0.7 if adaptive is None else (0.7**-2 - (2 * 2.0) ** -2) ** -0.5
        mean = (total + split * clip * rng.standard_normal(len(total))) / (0.4 * 6)
        if adaptive:
            share = (within + 2.0 * rng.standard_normal()) / (0.4 * 6) + 0.5
            clip *= np.exp(-0.5 * (share - 0.3))
        if rule:
            first = 0.5 * first + 0.5 * mean
            second = 0.9 * second + 0.1 * mean**2
            mean = 0.01 * first / (np.sqrt(second) + 0.1)
        assign(x, flat(x) + mean)
        sizes.append(len(cohort))
    assert 0 < sum(clipped) < len(clipped)
    assert min(sizes) < 2 < max(sizes)
    np.testing.assert_allclose(entries(state), flat(x), rtol=1e-9, atol=1e-9)
    assert state.of("privacy")["events"] == ((0.4, 0.7, 6),)
    assert state.of("privacy")["clip"] == pytest.approx(clip, rel=1e-9)


def test_without_noise_and_clipping_all_clients_make_federated_averaging(federation: Federation) -> None:
    """To the last bit at rate 1: the sum is FedAvg's, and so is its weight."""
    whole = Participation(1.0, by="poisson")
    for compute in (FP64, Compute("vectorised", "fp32")):
        plain = simulated(federation, fedavg(Participation(), LOCAL, weighting="equal"), compute=compute)
        private = simulated(
            federation, fedavg(whole, LOCAL, weighting="equal").having(Privacy(0.0, np.inf)), compute=compute
        )
        assert np.array_equal(private.model.floats, plain.model.floats)


def test_an_empty_cohort_has_noise(federation: Federation) -> None:
    nobody = Participation(1e-9, by="poisson")
    state = simulated(federation, fedavg(nobody, LOCAL, weighting="equal").having(Privacy(1.0, 1e-9)), rounds=1)
    start = flat(perceptron().double())
    noise = generator(0, Purpose.PRIVACY, 1).standard_normal(len(start)) / 6
    np.testing.assert_allclose(entries(state), start + noise, rtol=1e-9)


def test_noise_spares_what_nobody_trains(federation: Federation) -> None:
    local = Local(lr=0.05, batch_size=4, part="head")
    algorithm = fedavg(POISSON, local, weighting="equal").having(Privacy(1.0, 1.0))
    state = simulated(federation, algorithm, rounds=3)
    start, body = flat(perceptron().double()), 4 * 6 + 6
    np.testing.assert_allclose(entries(state)[:body], start[:body], rtol=1e-15)
    assert (entries(state)[body:] != start[body:]).all()


def test_an_entry_that_nobody_trains_does_not_show_the_size_of_the_cohort(federation: Federation) -> None:
    """Its value is a sum over clients, of whom one run lacks one: the last bits would show it."""
    local, nobody = Local(lr=0.05, batch_size=4, part="head"), tuple(each[:0] for each in DATA[0])
    algorithm = (
        fedavg(Participation(0.9, by="poisson"), local, weighting="equal").having(Privacy(1.0, 1.0)).computed(FP64)
    )
    bodies = []
    for data in (DATA, [nobody, *DATA[1:]]):
        model = perceptron().double()
        state = begin(model, fleet := federation(data, model, algorithm.sharing, 2, FP64), 0, 3)
        for number in range(1, 4):
            state = next_round(state, algorithm, fleet, last=number == 3)
        bodies.append(entries(state)[: 4 * 6 + 6])
    assert np.array_equal(*bodies)


@pytest.mark.parametrize("make", [fedavg, fedprox, fedadam, feddyn])
def test_stacked_client_updates_give_the_same(federation: Federation, make: Callable[..., Algorithm]) -> None:
    keys = {} if make is feddyn else {"weighting": "equal"}
    algorithm = make(POISSON, LOCAL, **keys).having(Privacy(0.5, 0.1, ADAPTIVE))
    one = simulated(federation, algorithm, rounds=3)
    for execution, block in (("vectorised", 2), ("vectorised", 3)):
        other = simulated(federation, algorithm, 3, Compute(execution, "fp64"), block)  # type: ignore[arg-type]
        np.testing.assert_allclose(other.model.floats, one.model.floats, rtol=1e-9, atol=1e-9)


PRIVATE = Privacy(1.0, 1.0)
GLOBAL_MOMENTUM = Sharing(slots={"momentum": "shared"})
EQUAL = fedavg(POISSON, LOCAL, weighting="equal")


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (fedasync(Participation(), LOCAL), "rounds of its own with .privacy."),
        (fedtan(Participation(), LOCAL), "rounds of its own with .privacy."),
        (radfed(Participation(0.5), LOCAL), "aggregate_every = 15 with .privacy.: must be 1"),
        (
            fedavg(Participation(0.5), LOCAL, weighting="equal"),
            "sampling = 'uniform' with .privacy.: must be \"poisson\"",
        ),
        (fedavg(Participation(0.5, by="size"), LOCAL, weighting="equal"), "sampling = 'size' with"),
        (fedavg(Participation(cohort=2, by=PowerOfChoice(3)), LOCAL, weighting="equal"), r"PowerOfChoice.* with"),
        (fedavg(replace(POISSON, active=0.5), LOCAL, weighting="equal"), "active = 0.5 with"),
        (fedavg(POISSON, LOCAL), r"weighting = .samples. with"),
        (fedbs(POISSON, LOCAL), "weighting = .*Loss.* with"),
        (fednova(POISSON, LOCAL, weighting="equal"), r"weighting = PerStep\(.* with"),
        (replace(EQUAL, server=Stretched(LossPower(1.0, 0.1))), "must be a rule without the reports"),
        (replace(EQUAL, until=LossAgreement(0.1, 2), then=EQUAL), "until = .* with .privacy.: must be a round"),
        (fedavg(POISSON, Local(steps="largest"), weighting="equal"), "local.steps = 'largest' with"),
        (silobn(POISSON, LOCAL, newcomer="average"), 'newcomer = "average" with'),
        (singleset(POISSON, LOCAL), 'sharing.weights = "personal" with'),
    ],
)
def test_what_the_accounting_does_not_cover_is_refused(algorithm: Algorithm, message: str) -> None:
    with pytest.raises(InputError, match=message):
        algorithm.having(PRIVATE)


def own(base: type, *methods: str, **declared: Any) -> Any:
    """Return a class of a user's own with some methods, which are never called."""
    return dataclass(frozen=True)(type("Own", (base,), {name: lambda *_: None for name in methods} | declared))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *((lambda hook=hook: EQUAL.having(own(Option, hook, name="own")()), "option .*Own") for hook in HOOKS),
        (lambda: EQUAL.having(own(Uplink, "clipped")((TopK(0.5),))), "option .*Own"),
        (lambda: replace(EQUAL, weighting=own(Equal)()), r"weighting = .*Own\(\)"),
        (lambda: fedavg(own(Participation, "draw")(0.4, by="poisson"), LOCAL, weighting="equal"), "schedule = Rounds"),
        (lambda: replace(EQUAL, schedule=own(Rounds)(POISSON)), r"schedule = .*Own\(participation"),
        (lambda: replace(EQUAL, server=own(Assign, "fitted")()), r"the method `fitted` of server = .*Own\(\)"),
        (lambda: replace(EQUAL, until=own(AfterRound)(2), then=EQUAL), "until = .*Own"),
        (
            lambda: replace(EQUAL, local=replace(LOCAL, method=own(Method, "fitted")())),
            r"the method `fitted` of local.method = .*Own\(\)",
        ),
        (lambda: own(Algorithm)(EQUAL.schedule, LOCAL, weighting=Equal()), "algorithm = '.*Own'"),
    ],
)
def test_a_part_of_ones_own_that_epsilon_does_not_cover_is_refused(make: Callable[[], Algorithm], message: str) -> None:
    with pytest.raises(InputError, match=rf"{message}.* with .privacy.: must be"):
        make().having(PRIVATE)


@pytest.mark.parametrize(
    "make",
    [
        lambda: EQUAL.having(own(Option, "client_columns", name="own")()),
        lambda: replace(EQUAL, server=own(Assign)()),
        lambda: replace(EQUAL, local=replace(LOCAL, method=own(Method, "finish")())),
    ],
)
def test_a_part_of_ones_own_that_epsilon_covers_is_not_refused(make: Callable[[], Algorithm]) -> None:
    assert make().having(PRIVATE).option(Privacy) == PRIVATE


def test_keys_that_must_be_set_are_told_together() -> None:
    with pytest.raises(InputError, match='must be "poisson"') as refused:
        fedavg(Participation(0.5), LOCAL).having(PRIVATE)
    (weighting,) = refused.value.others
    assert weighting.startswith('weighting = "samples" with [privacy]: must be equal')


@pytest.mark.parametrize(
    ("algorithm", "norm", "entry"),
    [
        (EQUAL, True, "running_mean"),
        (silobn(POISSON, LOCAL), True, None),
        (fedbn(POISSON, LOCAL), True, None),
        (
            fedavg(POISSON, replace(LOCAL, momentum=0.9), weighting="equal", maintained_momentum="global"),
            False,
            "moment",
        ),
        (scaffold(Participation(0.5), LOCAL), False, "common_control"),
    ],
)
def test_shared_entries_that_are_no_parameters_are_refused(algorithm: Algorithm, norm: bool, entry: str | None) -> None:
    private = replace(algorithm, schedule=EQUAL.schedule).having(PRIVATE)
    layout = Layout.of(perceptron(norm))
    if entry is None:
        assert private.divide(layout).shared.entries
        return
    with pytest.raises(InputError, match=f"shared entry '.*{entry}.*' with .privacy.: must be a parameter"):
        private.divide(layout)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Privacy(-1.0, 1.0), "privacy.noise = -1.0: must be a finite number >= 0"),
        (lambda: Privacy(1.0, 0.0), "privacy.clip = 0.0: must be a finite number > 0"),
        (lambda: Privacy(1.0, float("inf")), "privacy.clip = inf"),
        (lambda: Privacy(1.0, 1.0, AdaptiveClip(0.5)), "count_noise = 0.5: must be above noise / 2 = 0.5"),
        (lambda: AdaptiveClip(1.0, quantile=1.5), "quantile = 1.5"),
        (lambda: AdaptiveClip(1.0, rate=0.0), "rate = 0.0"),
    ],
)
def test_numbers_out_of_range_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_phases_are_private_in_all_rounds() -> None:
    both = phases(EQUAL, (2, EQUAL)).having(PRIVATE)
    assert [phase.option(Privacy) for phase in both.phases] == [PRIVATE, PRIVATE]


def test_robust_rules_and_attacks_are_refused() -> None:
    with pytest.raises(InputError, match=r"an attack or a robust aggregation with \[privacy\]: must be left out"):
        EQUAL.having(Robust(Median())).having(PRIVATE)
