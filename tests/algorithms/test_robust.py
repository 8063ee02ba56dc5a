"""Robust aggregation and attacks, against plain loops over all models of a cohort."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from algorithms import (
    Adam,
    Algorithm,
    Compute,
    DivergedError,
    Divergence,
    InputError,
    Local,
    Participation,
    Purpose,
    Robust,
    begin,
    fedavg,
    feddyn,
    fedprox,
    generator,
    next_round,
    radfed,
)
from algorithms.names import ALGORITHMS
from algorithms.options import attack as attacks
from algorithms.options import gathered
from algorithms.options.aggregation import (
    AGGREGATES,
    Aggregate,
    GeometricMedian,
    Krum,
    Mean,
    Median,
    MultiKrum,
    TrimmedMean,
)
from algorithms.options.attack import Attack, little
from algorithms.options.stages import Clip
from algorithms.options.uplink import Uplink
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import clients, named, perceptron
from tests.kit.reference import DATA, FP64, agree, drawn, engine, module, sgd, train
from tests.kit.rounds import same, simulate

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.1, batch_size=4)
SOME = Participation(cohort=5)
EXACT = replace(LOCAL, compute=FP64)
RULES: tuple[Aggregate, ...] = (
    Median(),
    TrimmedMean(0.2),
    Krum(1),
    MultiKrum(2),
    GeometricMedian(steps=6, smoothing=1e-3),
)
ATTACKS = (
    Attack(0.5, "label-flip", classes=3),
    Attack(0.5, "sign-flip", 2.0),
    Attack(0.5, "gaussian", 0.3),
    Attack(0.5, "little-is-enough", 1.5),
    Attack(0.5, "little-is-enough"),
    Attack(0.5, "inner-product", 0.7),
)
REFUSED = {
    *("fedasync", "fedbuff", "centralized", "ifca", "fedtan", "fedbs", "fednova", "q-fedavg", "singleset"),
    *("dpsgd", "sgp", "radfed", "radfedp", "radfedm", "radfeda", "radfedi", "hierfavg", "heterofl", "fjord"),
}
"""Algorithms that make no sense with a robust rule or an attack."""


@pytest.fixture(autouse=True)
def thin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the small models into slices of 16 values."""
    monkeypatch.setattr(gathered, "MOST", 1)
    monkeypatch.setattr(gathered, "LEAST", 1)


def plain_rule(rule: Aggregate, models: np.ndarray, weights: list[float]) -> np.ndarray:
    """The aggregate of models, [m, n], written as the papers have it."""
    m = len(models)
    if isinstance(rule, Mean):
        return np.asarray(sum(p * w for p, w in zip(weights, models, strict=True)) / sum(weights))
    if isinstance(rule, Median):
        return np.array([sorted(column)[m // 2] if m % 2 else np.mean(sorted(column)[m // 2 - 1 : m // 2 + 1])
                         for column in models.T.tolist()])  # fmt: skip
    if isinstance(rule, TrimmedMean):
        b = int(rule.trim * m + 1e-9)
        return np.array([np.mean(sorted(column)[b : m - b]) for column in models.T.tolist()])
    if isinstance(rule, Krum):
        scores = []
        for i in range(m):
            away = sorted(float(((models[i] - models[j]) ** 2).sum()) for j in range(m) if j != i)
            scores.append(sum(away[: max(1, m - rule.byzantine - 2)]))
        count = m - rule.byzantine if isinstance(rule, MultiKrum) else 1
        return np.asarray(models[sorted(range(m), key=scores.__getitem__)[:count]].mean(axis=0))
    v = models.mean(axis=0)
    for _ in range(rule.steps):
        betas = [1 / max(rule.smoothing, float(np.linalg.norm(v - w))) for w in models]
        v = sum(b * w for b, w in zip(betas, models, strict=True)) / sum(betas)
    return np.asarray(v)


def plain_attack(attack: Attack, start: np.ndarray, models: np.ndarray, places: list[int], ids: list[int], r: int,
                 where: np.ndarray) -> None:  # fmt: skip
    """Replace the attackers' models, rows `places` of [m, n], at the coordinates of parameters."""
    updates = models[places] - start
    for row, client, d in zip(places, ids, updates, strict=True):
        if attack.kind == "sign-flip":
            sent = -attack.scale * d
        elif attack.kind == "gaussian":
            sent = np.zeros_like(d)
            sent[where] = attack.scale * generator(0, Purpose.ATTACK, r, client).standard_normal(where.sum())
        elif attack.kind == "little-is-enough":
            z = little(len(models), len(places)) if attack.scale is None else attack.scale
            sent = updates.mean(axis=0) - z * updates.std(axis=0)
        elif attack.kind == "inner-product":
            sent = -attack.scale * updates.mean(axis=0)
        else:
            return
        models[row, where] = (start + sent)[where]


def reference(rule: Aggregate, attack: Attack | None, rounds: int) -> dict[str, torch.Tensor]:
    """A run with plain modules: all models of the cohort side by side."""
    w = module()
    ids = np.arange(len(DATA))
    attackers = [] if attack is None else attack.attackers(ids, 0).tolist()
    named_values = {name: value for name, value in w.state_dict().items() if value.is_floating_point()}
    trains = {name for name, _ in w.named_parameters()}
    where = np.concatenate([np.full(value.numel(), name in trains) for name, value in named_values.items()])
    for r in range(1, rounds + 1):
        cohort = SOME.draw(ids, 0, r).tolist()
        made = []
        for client in cohort:
            model = module()
            model.load_state_dict(w.state_dict())
            x, y = DATA[client]
            if attack is not None and attack.kind == "label-flip" and client in attackers:
                y = 2 - y
            train(model, (x, y), drawn(LOCAL, DATA[client], r, client), sgd(0.1))
            made.append(model.state_dict())
        rows = np.array([np.concatenate([s[name].numpy().ravel() for name in named_values]) for s in made])
        start = np.concatenate([w.state_dict()[name].numpy().ravel() for name in named_values])
        there = [client for client in cohort if client in attackers]
        if attack is not None and there:
            plain_attack(attack, start, rows, [cohort.index(client) for client in there], there, r, where)
        joined = plain_rule(rule, rows, [len(DATA[client][1]) for client in cohort])
        ends = np.cumsum([value.numel() for value in named_values.values()])[:-1]
        floats = dict(zip(named_values, map(torch.from_numpy, np.split(joined, ends)), strict=True))
        for name, value in w.state_dict().items():
            value.copy_(floats[name].view(value.shape) if name in floats else max(s[name] for s in made))
    return w.state_dict()


def under(algorithm: Algorithm, rule: Aggregate, attack: Attack | None) -> Algorithm:
    """Return the algorithm with a rule other than the mean, and an attack, if there are any."""
    robust = () if isinstance(rule, Mean) else (Robust(rule),)
    return algorithm.having(*robust, *(() if attack is None else (attack,)))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_each_rule_agrees_with_a_plain_loop(rule: Aggregate, federation: Federation) -> None:
    state, fleet = engine(federation, fedavg(SOME, EXACT).having(Robust(rule)), 2)
    agree(state, fleet, reference(rule, None, 2))


@pytest.mark.parametrize("rule", [Mean(), Median(), Krum(1)], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: f"{attack.kind}-{attack.scale}")
def test_each_attack_agrees_with_a_plain_loop(attack: Attack, rule: Aggregate, federation: Federation) -> None:
    state, fleet = engine(federation, under(fedavg(SOME, EXACT), rule, attack), 2)
    agree(state, fleet, reference(rule, attack, 2))


def test_a_server_rule_acts_on_the_aggregate(federation: Federation) -> None:
    algorithm = ALGORITHMS["fedadam"](SOME, EXACT, Adam(lr=0.1, tau=0.01)).having(Robust(Median()))
    state, fleet = engine(federation, algorithm, 1)
    found, aim = fleet.layouts.shared.unpack(state.model), reference(Median(), None, 1)
    for name, w in module().named_parameters():
        d = aim[name].numpy() - w.detach().numpy()
        m, v = 0.1 * d, 0.01 * d**2
        v = v + 0.99 * 0.01**2
        np.testing.assert_allclose(found[name], w.detach().numpy() + 0.1 * m / (np.sqrt(v) + 0.01), rtol=1e-9)


@pytest.mark.parametrize("rule", [TrimmedMean(0.0), MultiKrum(0)], ids=lambda rule: type(rule).__name__)
def test_without_anything_left_out_it_is_the_equal_mean(rule: Aggregate, federation: Federation) -> None:
    plain = fedavg(SOME, EXACT, weighting="equal")
    (one, _), (other, _) = (engine(federation, each, 2) for each in (plain, plain.having(Robust(rule))))
    np.testing.assert_allclose(other.model.floats, one.model.floats, rtol=1e-12, atol=1e-14)
    assert np.array_equal(one.model.integers, other.model.integers)


def test_a_server_rule_gets_the_number_of_clients(federation: Federation) -> None:
    """FedDyn's step depends on it."""
    plain = feddyn(SOME, EXACT)
    (one, _), (other, _) = (engine(federation, each, 2) for each in (plain, plain.having(Robust(TrimmedMean(0.0)))))
    np.testing.assert_allclose(other.model.floats, one.model.floats, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_the_aggregate_of_one_client_is_its_model(rule: Aggregate, federation: Federation) -> None:
    plain = fedavg(Participation(cohort=1), EXACT, weighting="equal")
    (one, _), (other, _) = (engine(federation, each, 2) for each in (plain, plain.having(Robust(rule))))
    np.testing.assert_array_equal(one.model.floats, other.model.floats)


@pytest.mark.parametrize("attack", [Attack(0.0, "sign-flip"), Attack(0.0, "inner-product"), Attack(0.5, scale=-1.0)])
def test_an_attack_by_nobody_or_with_the_honest_sign_is_none(attack: Attack, federation: Federation) -> None:
    plain = fedavg(SOME, EXACT)
    (one, _), (other, _) = (engine(federation, each, 2) for each in (plain, plain.having(attack)))
    np.testing.assert_allclose(other.model.floats, one.model.floats, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_runs_under_it_or_says_why_not(name: str, federation: Federation) -> None:
    algorithm = named(name, Participation(cohort=4), LOCAL)
    for rule, attack in ((Median(), None), (Mean(), Attack(0.4)), (Krum(1), Attack(0.4, "inner-product"))):
        try:
            guarded = under(algorithm, rule, attack)
        except InputError:
            assert name in REFUSED
            continue
        fleet = federation(clients((4, 3, 4, 2, 4)), perceptron(True), guarded.sharing)
        first = next_round(begin(perceptron(True), fleet, 0, 2), guarded, fleet)
        second, again = (next_round(first, guarded, fleet, last=True) for _ in range(2))
        assert same(second.model, again.model) and np.isfinite(second.model.floats).all()


def test_the_wrong_pairs_are_refused() -> None:
    refused: list[tuple[Algorithm, Aggregate, Attack | None]] = [
        (radfed(SOME, LOCAL, aggregate_every=3), Median(), None),
        (radfed(SOME, LOCAL, aggregate_every=3), Mean(), Attack(0.2, "inner-product")),
        (ALGORITHMS["fedasync"](SOME, LOCAL), Mean(), Attack()),
        (ALGORITHMS["centralized"](Participation(), LOCAL), Median(), None),
        (ALGORITHMS["fedbs"](SOME, LOCAL), Krum(1), None),
        (ALGORITHMS["fednova"](SOME, LOCAL), Median(), None),
        (ALGORITHMS["singleset"](SOME, LOCAL), Median(), None),
    ]
    for algorithm, rule, attack in refused:
        with pytest.raises(InputError, match="must be used with"):
            under(algorithm, rule, attack)
    with pytest.raises(InputError, match="without an uplink"):
        fedavg(SOME, LOCAL).having(Uplink((Clip(1.0),))).having(Attack(0.2, "inner-product"))
    assert radfed(SOME, LOCAL, aggregate_every=3).having(Attack()).option(Attack) == Attack()


@pytest.mark.parametrize("rule", [Median(), Krum(1)], ids=lambda rule: type(rule).__name__)
def test_executions_agree(rule: Aggregate, federation: Federation) -> None:
    models = []
    for execution, norm in (("sequential", False), ("vectorised", False), ("fused", False)):
        compute = Compute(execution, precision="fp64")  # type: ignore[arg-type]
        algorithm = fedavg(SOME, replace(LOCAL, compute=compute)).having(Robust(rule), Attack(0.3, "sign-flip"))
        fleet = federation(DATA, perceptron(norm).double(), algorithm.sharing, 3, compute, 3)
        models.append(simulate(algorithm, fleet, perceptron(norm).double(), 3).model.floats)
    for model in models[1:]:
        np.testing.assert_allclose(model, models[0], rtol=1e-9, atol=1e-11)


def test_an_update_that_is_not_finite_or_took_no_step_is_left_out(federation: Federation) -> None:
    sizes = (11, 4, 9, 0, 6, 7)
    data = clients(sizes, seed=1)
    broken = [(x * np.inf if i == 1 else x, y) for i, (x, y) in enumerate(data)]
    all_of_them = fedavg(Participation(), replace(EXACT, nonfinite="leave-out")).having(Robust(Median()))
    without = federation([data[i] for i in (0, 2, 4, 5)], module(), compute=FP64)
    state = next_round(begin(module(), federation(broken, module(), compute=FP64), 0), all_of_them,
                       federation(broken, module(), compute=FP64))  # fmt: skip
    assert state.report is not None
    rows = state.report.updates
    assert [w > 0 for w in rows.weights.tolist()] == [True, False, True, False, True, True]
    # Client ids key the batches, so train full batches to compare clients of other numbers.
    full = replace(all_of_them, local=replace(all_of_them.local, batch_size="full"))
    one = simulate(full, federation(broken, module(), compute=FP64), module(), 2)
    other = simulate(full, without, module(), 2)
    np.testing.assert_allclose(one.model.floats, other.model.floats, rtol=1e-9, atol=1e-12)
    robust = fedavg(Participation(), EXACT).having(Robust(Median()))
    with pytest.raises(DivergedError):
        simulate(robust, federation(broken, module(), compute=FP64), module(), 1)


def test_nobody_with_a_step_leaves_the_model(federation: Federation) -> None:
    empty = clients((0, 0, 0))
    fleet = federation(empty, perceptron(True))
    state = begin(perceptron(True), fleet, 0)
    assert same(next_round(state, fedavg(Participation(), LOCAL).having(Robust(Krum(1))), fleet).model, state.model)


def test_measures_see_the_models_that_are_sent(federation: Federation) -> None:
    measured = []
    for rule in (Mean(), Median()):
        fleet = federation(DATA, module(), compute=FP64)
        state = begin(module(), fleet, 0)
        after = next_round(state, fedavg(SOME, EXACT).having(Robust(rule), Divergence()), fleet)
        assert after.report is not None
        measured.append(after.report.measures["dl"])
    assert measured[0] == measured[1]


def test_attackers_are_drawn_once_by_the_seed() -> None:
    ids = np.array([3, 5, 8, 13, 21, 34, 55, 89, 144, 233])
    found = Attack(0.29).attackers(ids, 0)
    assert len(found) == 2 and set(found) <= set(ids) and found.tolist() == sorted(found)
    assert np.array_equal(found, Attack(0.29, "gaussian").attackers(ids, 0))
    assert len(Attack(0.3).attackers(ids, 0)) == 3 and len(Attack(1.0).attackers(ids, 0)) == 10
    assert any(not np.array_equal(found, Attack(0.29).attackers(ids, seed)) for seed in range(1, 5))


def test_attackers_are_drawn_once_for_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, seed, drawn = np.arange(0, 90, 3), 123, list[int]()

    def counted(*key: int) -> np.random.Generator:
        drawn.append(key[0])
        return generator(*key)

    monkeypatch.setattr(attacks, "generator", counted)
    found = [Attack(0.29).attackers(ids, seed) for _ in range(3)]
    assert drawn == [seed]
    assert all(np.array_equal(each, np.sort(generator(seed, Purpose.ATTACKERS).permutation(ids)[:8])) for each in found)


def test_the_shift_of_little_is_enough_is_the_papers() -> None:
    # n = 50, m = 24: s = 26 - 24 = 2 supporters of 26, so Phi(z) = 24 / 26 and z = 1.43.
    assert little(50, 24) == pytest.approx(1.4261, abs=1e-4)
    # n = 50, m = 12: s = 14 of 38, Phi(z) = 24 / 38.
    assert little(50, 12) == pytest.approx(0.3360, abs=1e-3)
    assert little(4, 1) == 0.0 and little(3, 3) == 3.0 and little(5, 3) == 3.0


def test_slices_depend_on_the_model_the_cohort_and_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    slices = gathered.slices_of(200_000, 1_000, 10)
    assert slices[0] == slice(0, 4256) and slices[-1].stop == 200_000 and len(slices) == 47
    lengths = [part.stop - part.start for part in gathered.slices_of(75_024, 8, 2)]
    assert lengths == [75_024] and [part.stop for part in gathered.slices_of(10**6, 100, 4)][-1] == 10**6
    assert gathered.slices_of(64, 6, 2) == (slice(0, 64),)
    assert gathered.slices_of(0, 6, 2) == (slice(0, 0),)


def test_krum_is_not_moved_by_a_far_model_and_the_mean_is() -> None:
    rng = np.random.default_rng(0)
    models = rng.normal(size=(9, 40))
    models[[2, 7]] += 1e6
    distances = ((models[:, None] - models[None]) ** 2).sum(-1)
    for rule in (Krum(2), MultiKrum(2)):
        assert not rule.shares(distances)[[2, 7]].any() and rule.shares(distances).sum() == pytest.approx(1)
    shares = GeometricMedian().shares(distances)
    assert np.abs(shares @ models).max() < 10 < np.abs(models.mean(0)).max()


@pytest.mark.parametrize("alike", [10, 11, 15])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_geometric_median_goes_on_to_its_smallest_sum(alike: int, scale: float) -> None:
    """Where half of the models are alike, they are the median: the others' unit vectors add to at most as many."""
    models = scale * np.random.default_rng(alike).normal(size=(20, 30))
    models[:alike] = models[0]
    smallest = np.linalg.norm(models - models[0], axis=1).sum()
    rule = GeometricMedian(smoothing=1e-12 * scale)
    median = rule.shares(((models[:, None] - models[None]) ** 2).sum(-1)) @ models
    assert smallest <= np.linalg.norm(models - median, axis=1).sum() <= (1 + 1e-6) * smallest


def test_equal_models_are_their_own_geometric_median() -> None:
    assert GeometricMedian().shares(np.zeros((4, 4))).tolist() == [0.25] * 4


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: TrimmedMean(0.5), "server.trim = 0.5"),
        (lambda: Krum(-1), "server.byzantine = -1"),
        (lambda: GeometricMedian(steps=0), "server.steps = 0"),
        (lambda: Attack(1.5), "attack.share = 1.5"),
        (lambda: Attack(0.2, "sign_flip"), "attack.kind = 'sign_flip'"),  # type: ignore[arg-type]
        (lambda: Attack(0.2, "label-flip", 2.0), "attack.scale = 2.0"),
    ],
)
def test_numbers_out_of_range_are_refused(make: Callable[[], object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        make()


def test_the_table_has_every_rule() -> None:
    assert {type(rule) for rule in (Mean(), *RULES)} == set(AGGREGATES.values())
    assert fedprox(SOME, LOCAL).having(Robust(Median())).option(Robust) == Robust(Median())


def test_a_rule_of_a_user_aggregates_and_conflicts_by_its_own_name(federation: Federation) -> None:
    class Middle(Median):
        pass

    named, own = (fedavg(SOME, EXACT).having(Robust(rule)) for rule in (Median(), Middle()))
    (one, _), (other, _) = (engine(federation, each, 2) for each in (named, own))
    assert same(one.model, other.model)
    with pytest.raises(InputError, match=r"^option Robust\(rule=.*Middle.*\) with rounds of its own: must be used"):
        ALGORITHMS["fedasync"](SOME, EXACT).having(Robust(Middle()))
