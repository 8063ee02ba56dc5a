"""The small parts: schedule, server, weighting, sharing, keys, personal state."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import (
    Algorithm,
    Assign,
    Equal,
    InputError,
    Layout,
    Local,
    Location,
    Mix,
    Packed,
    Participation,
    PersonalLedger,
    PersonalStore,
    Purpose,
    Rounds,
    Samples,
    Sharing,
    fedavg,
    fedbn,
    generator,
    radfed,
    silobn,
    torch_seed,
)
from algorithms.core.batch_norm import refuses_single
from tests.kit.federation import perceptron


@pytest.mark.parametrize(
    ("participation", "clients", "size"),
    [
        (Participation(), 40, 40),
        (Participation(fraction=0.1), 5, 1),
        (Participation(fraction=0.25), 40, 10),
        (Participation(fraction=0.29), 100, 29),
        (Participation(fraction=0.1), 69, 6),
        (Participation(cohort=3), 40, 3),
    ],
)
def test_cohort_size(participation: Participation, clients: int, size: int) -> None:
    assert participation.size(clients) == size


def test_cohorts_are_sorted_distinct_and_keyed() -> None:
    clients = np.arange(100, 50_100)
    first = Participation(cohort=500).draw(clients, seed=3, round_number=1)
    assert len(set(first)) == 500 and (np.diff(first) > 0).all() and first.min() >= 100
    assert np.array_equal(first, Participation(cohort=500).draw(clients, 3, 1))
    assert not np.array_equal(first, Participation(cohort=500).draw(clients, 3, 2))
    assert not np.array_equal(first, Participation(cohort=500).draw(clients, 4, 1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"fraction": 0.0},
        {"fraction": -0.1},
        {"fraction": 1.5},
        {"fraction": math.nan},
        {"cohort": 0},
        {"cohort": 2, "fraction": 0.5},
    ],
)
def test_wrong_samples_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"must be .*; "):
        Participation(**wrong)  # type: ignore[arg-type]


def test_a_cohort_above_the_clients_is_refused_with_the_number() -> None:
    with pytest.raises(InputError, match="at most 5, the number of training clients"):
        Participation(cohort=6).size(5)


def test_rounds_aggregate_every_s_th() -> None:
    assert [n for n in range(1, 10) if Rounds(aggregate_every=3).aggregates(n)] == [3, 6, 9]
    with pytest.raises(InputError):
        Rounds(aggregate_every=0)


def test_cohorts_by_size_are_drawn_in_proportion_without_replacement() -> None:
    clients, samples = np.arange(4), np.array([1, 2, 3, 0])
    participation = Participation(cohort=2, by="size")
    pairs = [tuple(participation.draw(clients, 0, number, samples).tolist()) for number in range(6000)]
    # the first in proportion to its size, the second to its size among the rest
    chance = {
        (i, j): samples[i] / 6 * samples[j] / (6 - samples[i]) + samples[j] / 6 * samples[i] / (6 - samples[j])
        for i, j in ((0, 1), (0, 2), (1, 2))
    }
    assert set(pairs) == set(chance)
    for pair, expected in chance.items():
        assert pairs.count(pair) / len(pairs) == pytest.approx(expected, abs=0.015)


def test_a_cohort_by_size_needs_clients_with_samples() -> None:
    with pytest.raises(InputError, match="a cohort of 3 clients, 2 of them with a chance above 0: must be at most 2"):
        Participation(cohort=3, by="size").draw(np.arange(4), 0, 1, np.array([1, 0, 5, 0]))
    with pytest.raises(InputError, match=r"algorithm\.sampling = 'loss'"):
        Participation(by="loss")  # type: ignore[arg-type]


def test_a_deal_is_a_permutation_of_its_round() -> None:
    deal = Rounds(aggregate_every=3).deal(20, seed=0, round_number=2)
    assert sorted(deal) == list(range(20))
    assert not np.array_equal(deal, Rounds(aggregate_every=3).deal(20, 0, 3))


def one(*values: float) -> Packed:
    return Packed(np.array(values, np.float32), np.array([1], np.int64))


def test_server_rules() -> None:
    layout = Layout(())
    assert Assign()(one(1), one(3), 1, {}, layout)[0].floats[0] == 3
    assert Mix(0.25)(one(1), one(3), 1, {}, layout)[0].floats[0] == 1.5
    assert Mix(1.0)(one(1), one(1 / 3), 1, {}, layout)[0].floats.tobytes() == one(1 / 3).floats.tobytes()
    for alpha in (0, -1, 2, math.nan):
        with pytest.raises(InputError):
            Mix(alpha)


def test_weights() -> None:
    assert Samples()({"samples": 7.0}) == 7
    assert Equal()({"samples": 7.0}) == 1


def test_weighing_by_samples_is_refused_where_models_are_redistributed() -> None:
    with pytest.raises(InputError, match=r"aggregate_every = 3: must be equal"):
        Algorithm(Rounds(aggregate_every=3), Local(), weighting=Samples())
    assert radfed(Participation(), Local(), aggregate_every=3).weighting == Equal()


def test_an_algorithm_describes_itself() -> None:
    text = repr(fedbn(Participation(cohort=2), Local(lr=0.5)))
    assert (
        "Sharing(weights='shared', affine='personal', statistics='personal'" in text
        and "lr=0.5" in text
        and "<function" not in text
    )


def test_place_divides_by_layer_type() -> None:
    layouts = Sharing(affine="personal", statistics="personal").divide(Layout.of(perceptron(norm=True)))
    names = {entry.name for entry in layouts.personal.entries}
    assert names == {"1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert len(layouts.whole.entries) == len(Layout.of(perceptron(norm=True)).entries)


def test_fedbn_without_batch_norm_is_refused() -> None:
    with pytest.raises(InputError, match="the model has no batch-norm layer"):
        fedbn(Participation(), Local()).sharing.divide(Layout.of(perceptron()))


def test_outsiders_own_statistics_need_clients_that_keep_theirs() -> None:
    assert (fedbn(Participation(), Local()).sharing.outsider, silobn(Participation(), Local()).sharing.outsider) == (
        "average",
        "own",
    )
    with pytest.raises(InputError, match=r"algorithm.outsider = 'own': must be \"average\" if statistics are shared"):
        Sharing(outsider="own")
    with pytest.raises(InputError, match=r"algorithm.outsider = 'both'"):
        Sharing(statistics="personal", outsider="both")  # type: ignore[arg-type]


def test_only_a_slot_may_be_a_number() -> None:
    assert Sharing(slots={"share": 0.5}).stays == ("share",)
    for name in ("weights", "affine", "statistics"):
        with pytest.raises(InputError, match=rf"sharing\.{name} = 0\.5: must be \"shared\" or \"personal\""):
            Sharing(**{name: 0.5})  # type: ignore[arg-type]


def test_a_batch_of_one_is_told_by_the_shapes() -> None:
    assert refuses_single(perceptron(norm=True), torch.zeros(4))
    assert not refuses_single(perceptron(), torch.zeros(4))
    assert not refuses_single(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), torch.zeros(1, 4, 4))
    assert refuses_single(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), torch.zeros(1, 3, 3))


def test_keys_name_independent_streams() -> None:
    keys = [(0, Purpose.COHORT, 0, 0), (1, Purpose.COHORT, 0, 0), (0, Purpose.DEAL, 0, 0), (0, Purpose.COHORT, 1, 0)]
    keys.append((0, Purpose.COHORT, 0, 1))
    assert len({generator(*key).integers(2**62) for key in keys}) == len(keys)
    assert torch_seed(5, Purpose.INITIALISE) == torch_seed(5, Purpose.INITIALISE)


def test_kept_records_are_read_by_any_store(tmp_path: Path) -> None:
    layout = Layout.of(nn.BatchNorm1d(3))
    writer, reader = PersonalStore(tmp_path / "personal", layout), PersonalStore(tmp_path / "personal", layout)
    module = nn.BatchNorm1d(3)
    locations = []
    for i in range(3):
        module.running_mean.fill_(i)
        module.num_batches_tracked.fill_(i)
        locations.append(writer.append(layout.pack(module.state_dict())))
    for i, location in enumerate(locations):
        values = layout.unpack(reader.read(location))
        assert values["running_mean"].tolist() == [i] * 3 and values["num_batches_tracked"] == i
    writer.close()


def test_the_ledger_answers_for_a_round() -> None:
    ledger = PersonalLedger()
    ledger.add(1, 7, Location("a", 0))
    ledger.add(4, 7, Location("a", 8))
    assert ledger.latest(7, 0) is None
    assert ledger.latest(7, 3) == Location("a", 0)
    assert ledger.latest(7, 4) == Location("a", 8)
    ledger.add(4, 7, Location("b", 0))
    assert ledger.latest(7, 9) == Location("b", 0)
    assert list(ledger.clients(0)) == [] and list(ledger.clients(1)) == [7]


@pytest.mark.parametrize("needs", ["loss_after", 3, ("change", 4), lambda: ("change",)])
def test_needs_that_are_no_names_are_refused(needs: object) -> None:
    class Rule(Assign):
        pass

    Rule.needs = needs  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="its `needs` must be a tuple of names"):
        Algorithm(Rounds(), Local(), server=Rule())


class Counting:
    """Weighting by the number of its calls."""

    calls = 0

    def __call__(self, report: object) -> float:
        self.calls += 1
        return float(self.calls)


class Caching:
    """Weighting that makes something at its first call."""

    def __init__(self) -> None:
        self.made: float | None = None

    def __call__(self, report: object) -> float:
        self.made = self.made or 1.0
        return self.made


def test_an_own_weighting_that_keeps_something_on_itself_is_refused() -> None:
    algorithm = fedavg(Participation(0.5), Local())
    with pytest.raises(InputError, match=r"Counting': must keep nothing on itself, and sets 'calls' .*; compute it"):
        replace(algorithm, weighting=Counting())
    assert replace(algorithm, weighting=Caching()).weighting({"samples": 3.0}) == 1
