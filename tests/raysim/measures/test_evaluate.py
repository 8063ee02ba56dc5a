"""Evaluation against the same numbers counted by hand: the right model, the right samples, the right entries."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch.nn.functional import cross_entropy

import partitioning
from algorithms import (
    Algorithm,
    Local,
    Participation,
    State,
    begin,
    current_model,
    fedavg,
    fedbn,
    next_round,
    radfed,
    silobn,
)
from algorithms.core.clients import SamplePart
from algorithms.names import ALGORITHMS
from partitioning import Population
from partitioning.sources.source import TableSource
from raysim.common.errors import InputError
from raysim.data.shards import Shards
from raysim.data.sources import load
from raysim.fleet.inline import InlineFleet, InlineWorkplace
from raysim.fleet.model_plan import ModelPlan
from raysim.fleet.worker_plan import WorkerPlan
from raysim.measures.evaluate import Targets, evaluate
from raysim.measures.metrics import METRICS as BY_NAME
from tests.kit.federation import named

LOCAL = Local(lr=0.1, batch_size=16)
MODEL = ModelPlan("mlp", {"hidden": (12,), "norm": "batch"}, (1, 8, 8), 10, seed=1)
METRICS = ("accuracy", "loss", "macro_f1", "weighted_f1", "auc")
CHANGING = ("fedbs", "fixbn", "hierfavg", "radfed", "radfeda", "radfedi", "radfedm", "radfedp")
"""Algorithms whose round 4 is not of the same kind as round 3."""

EVALUATED = [
    pytest.param(name, rounds, marks=[pytest.mark.slow] * (rounds == 4 and name not in CHANGING))
    for rounds in (3, 4)
    for name in ALGORITHMS
    if name != "ifca"
]
Fleets = Callable[[Algorithm], InlineFleet]
Samples = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> Population:
    table = load("digits").train
    out = tmp_path_factory.mktemp("evaluate") / "population"
    given = {"scheme": "dirichlet-qp", "clients": 8, "label_alpha": 0.3, "seed": 5, "test_clients": 2}
    given |= {"validation_clients": 2}
    return partitioning.make(table.slice(200, 500), out, test=table.slice(0, 200), local_test=0.3, **given)


@pytest.fixture
def fleets(population: Population, tmp_path: Path) -> Iterator[Fleets]:
    made: list[InlineFleet] = []

    def make(algorithm: Algorithm) -> InlineFleet:
        plan = WorkerPlan(population.path, MODEL, algorithm, tmp_path / f"personal-{len(made)}").resolved()
        with InlineWorkplace() as place:
            made.append(place.fleet(plan))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()


def simulate(algorithm: Algorithm, fleet: InlineFleet, rounds: int) -> State:
    state = begin(MODEL.build(), fleet, 0, rounds)
    for _ in range(rounds):
        state = next_round(state, algorithm, fleet)
    return state


def module_of(state: State, algorithm: Algorithm, fleet: InlineFleet, client: int | None) -> torch.nn.Module:
    """The model a client is to be evaluated with, as a plain module."""
    module, layouts = MODEL.build(), fleet.layouts
    location = None if client is None else state.personal.latest(client, state.round)
    personal = state.average if location is None else fleet._worker.personal.read(location)
    model = current_model(state, algorithm, fleet)
    values = layouts.model(model if location is None else layouts.own_model(model, personal), personal)
    module.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in values.items()})
    return module.eval()


@torch.no_grad()
def with_own_statistics(module: torch.nn.Module, samples: Samples) -> torch.nn.Module:
    """The module, its batch norm tracking these samples as one batch."""
    module.norm1.train().momentum = 1.0
    module(samples[0])
    return module.eval()


@torch.no_grad()
def by_hand(module: torch.nn.Module, samples: Samples) -> tuple[float, float, int]:
    """Correct ones, summed loss, and how many."""
    x, y = samples
    logits = module(x)
    return float((logits.argmax(1) == y).sum()), float(cross_entropy(logits.double(), y, reduction="sum")), len(y)


@torch.no_grad()
def area(module: torch.nn.Module, slices: Sequence[Samples]) -> float:
    """The area under the ROC curve of all samples, averaged over classes."""
    x, y = (torch.cat(parts) for parts in zip(*slices, strict=True))
    probabilities = module(x).softmax(1)
    return float(np.mean([roc_auc_score(y == c, probabilities[:, c]) for c in range(10)]))


@pytest.mark.parametrize(("name", "rounds"), EVALUATED)
def test_every_target_is_what_a_plain_module_gives(
    name: str, rounds: int, fleets: Fleets, population: Population
) -> None:
    algorithm = named(name, Participation(fraction=0.5), LOCAL)
    fleet = fleets(algorithm)
    state = simulate(algorithm, fleet, rounds)
    found = evaluate(state, algorithm, fleet, Targets.of(population, None, [BY_NAME[name] for name in METRICS]))
    shards = Shards(population.path)
    outsider = with_own_statistics if name == "silobn" else lambda module, samples: module
    hands: dict[str, list[tuple[float, float, int]]] = {
        "test": [by_hand(module_of(state, algorithm, fleet, None), shards.test_slice(0))],
        "held_out": [
            by_hand(outsider(module_of(state, algorithm, fleet, None), samples), samples)
            for samples in (shards.samples(int(client), "all") for client in population.test_clients)
        ],
        "validation": [
            by_hand(outsider(module_of(state, algorithm, fleet, None), samples), samples)
            for samples in (shards.samples(int(client), "all") for client in population.validation_clients)
        ],
        "local": [
            by_hand(module_of(state, algorithm, fleet, int(client)), shards.samples(int(client), "test"))
            for client in population.train_clients
            if population.test_sizes[client]
        ],
    }
    for target, rows in hands.items():
        correct, loss, samples = (sum(column) for column in zip(*rows, strict=True))
        assert found[f"{target}_accuracy"] == pytest.approx(correct / samples)
        assert found[f"{target}_loss"] == pytest.approx(loss / samples, rel=1e-5)
        if target != "test":
            means = np.mean([(row[0] / row[2], row[1] / row[2]) for row in rows], axis=0)
            assert found[f"{target}_mean_accuracy"] == pytest.approx(means[0])
            assert found[f"{target}_mean_loss"] == pytest.approx(means[1], rel=1e-5)


def test_several_models_are_evaluated_as_plain_modules_that_clients_choose(
    fleets: Fleets, population: Population
) -> None:
    algorithm = named("ifca", Participation(fraction=0.5), LOCAL)
    fleet = fleets(algorithm)
    state = simulate(algorithm, fleet, 3)
    found = evaluate(state, algorithm, fleet, Targets.of(population, None, [BY_NAME[name] for name in METRICS]))
    shards, modules = Shards(population.path), []
    for model in state.models:
        modules.append(module_of(replace(state, model=model), algorithm, fleet, None))

    def chosen(samples: Samples) -> torch.nn.Module:
        return modules[int(np.argmin([by_hand(module, samples)[1] for module in modules]))]

    parts = [[shards.samples(int(client), part) for part in ("train", "test")] for client in population.train_clients]
    held_out = [shards.samples(int(client), "all") for client in population.test_clients]
    hands = {
        "local": [by_hand(chosen(train), test) for train, test in parts if len(test[1])],
        "held_out": [by_hand(chosen(samples), samples) for samples in held_out],
    }
    for target, rows in hands.items():
        correct, loss, samples = (sum(column) for column in zip(*rows, strict=True))
        assert found[f"{target}_accuracy"] == pytest.approx(correct / samples)
        assert found[f"{target}_loss"] == pytest.approx(loss / samples, rel=1e-5)
    last = state.of("clusters")["chosen"]
    weights = [(last == number).sum() for number in range(len(modules))]
    scores = [by_hand(module, shards.test_slice(0)) for module in modules]
    accuracies = [correct / samples for correct, _, samples in scores]
    assert found["test_accuracy"] == pytest.approx(np.average(accuracies, weights=weights))


def test_updates_train_on_the_training_part_alone(fleets: Fleets, population: Population) -> None:
    algorithm = fedavg(Participation(), LOCAL)
    fleet = fleets(algorithm)
    report = simulate(algorithm, fleet, 1).report
    assert report is not None
    rows = report.updates
    assert (rows.report["samples"] == (population.sizes - population.test_sizes)[rows.clients]).all()


def test_between_aggregates_another_model_is_evaluated_than_the_last_aggregated(
    fleets: Fleets, population: Population
) -> None:
    algorithm = radfed(Participation(cohort=4), LOCAL, aggregate_every=10)
    fleet = fleets(algorithm)
    targets = Targets.of(population, ["test"], [BY_NAME["loss"]])
    losses = [evaluate(simulate(algorithm, fleet, rounds), algorithm, fleet, targets)["test_loss"] for rounds in (0, 3)]
    assert losses[1] < losses[0]


@pytest.mark.parametrize("make", [fedbn, silobn])
def test_an_outsider_may_have_statistics_of_its_own(
    make: Callable[..., Algorithm], fleets: Fleets, population: Population
) -> None:
    algorithm = make(Participation(), LOCAL, outsider="own")
    fleet = fleets(algorithm)
    state = simulate(algorithm, fleet, 2)
    targets, losses = Targets.of(population, ["held_out"], [BY_NAME["loss"]]), []
    for client in population.test_clients:
        samples, module = Shards(population.path).samples(int(client), "all"), module_of(state, algorithm, fleet, None)
        affine = module.norm1.weight.clone()
        losses.append(by_hand(with_own_statistics(module, samples), samples)[1] / len(samples[1]))
        assert torch.equal(module.norm1.weight, affine) and not torch.equal(affine, torch.ones(12))
    found = evaluate(state, algorithm, fleet, targets)["held_out_mean_loss"]
    assert found == pytest.approx(np.mean(losses), rel=1e-5)
    average = replace(algorithm, sharing=replace(algorithm.sharing, outsider="average"))
    assert evaluate(state, average, fleet, targets)["held_out_mean_loss"] != pytest.approx(found, rel=1e-3)


def test_an_outsider_of_a_single_sample_keeps_the_average(fleets: Fleets, population: Population) -> None:
    algorithm = fedbn(Participation(), LOCAL, outsider="own")
    fleet = fleets(algorithm)
    state = simulate(algorithm, fleet, 1)

    class First:
        """Only the first sample of each client."""

        def scored(
            self, clients: Sequence[int], part: SamplePart, domain: str | None
        ) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
            each = [Shards(population.path).samples(client, part) for client in clients]
            return torch.cat([x[:1] for x, _ in each]), torch.cat([y[:1] for _, y in each]), np.ones(len(each), int)

    targets = Targets.of(population, ["held_out"], [BY_NAME["loss"]])
    fleet._worker = replace(fleet._worker, data=First())  # type: ignore[arg-type]
    found = evaluate(state, algorithm, fleet, targets)
    average = replace(algorithm, sharing=replace(algorithm.sharing, outsider="average"))
    assert found == pytest.approx(evaluate(state, average, fleet, targets), rel=1e-6)


@pytest.mark.parametrize("newcomer", ["initial", "average"])
def test_initial_entries_are_never_used_in_silence(newcomer: str, fleets: Fleets, population: Population) -> None:
    algorithm = fedbn(Participation(cohort=3), LOCAL, newcomer=newcomer)  # type: ignore[arg-type]
    fleet = fleets(algorithm)
    state = simulate(algorithm, fleet, 1)
    assert state.report is not None
    cohort = state.report.updates.clients.tolist()
    personal = [fleet._worker.personal.read(state.personal.latest(client, 1)) for client in cohort]  # type: ignore[arg-type]
    np.testing.assert_allclose(state.average.floats, np.mean([each.floats for each in personal], axis=0), rtol=1e-6)
    module, shards = module_of(state, algorithm, fleet, None), Shards(population.path)
    assert module.norm1.running_mean.any() and (module.norm1.running_var != 1).all()
    found = evaluate(state, algorithm, fleet, Targets.of(population, ["test"], [BY_NAME["loss"]]))
    _, loss, samples = by_hand(module, shards.test_slice(0))
    assert found["test_loss"] == pytest.approx(loss / samples, rel=1e-5)


@pytest.mark.parametrize("name", ["fedavg", "fedbn"])
def test_a_domain_s_clients_are_measured_on_its_test_set(name: str, tmp_path: Path) -> None:
    table = load("digits").train
    sources = [TableSource(table.slice(start, 300), title) for start, title in ((0, "paper"), (300, "glass"))]
    tests = {"paper": table.slice(600, 100), "glass": table.slice(700, 1050)}
    population = partitioning.make(
        sources, tmp_path / "population", scheme="domains", clients_per_domain=3, test=tests, seed=2
    )
    targets = Targets.of(population, None, [BY_NAME["accuracy"], BY_NAME["loss"], BY_NAME["auc"]])
    assert [(target.name, target.clients) for target in targets.targets] == [
        ("domain_paper", (3, 4, 5)),
        ("domain_glass", (0, 1, 2)),
    ]
    algorithm = named(name, Participation(fraction=0.5), LOCAL)
    plan = WorkerPlan(population.path, MODEL, algorithm, tmp_path / "personal").resolved()
    with InlineWorkplace() as place, closing(place.fleet(plan)) as fleet:
        state = simulate(algorithm, fleet, 1)  # of six clients two have no entries of their own yet
        found = evaluate(state, algorithm, fleet, targets)
        shards, means = Shards(population.path), []
        for target in targets.targets:
            every = []
            for client in target.clients:
                module = module_of(state, algorithm, fleet, client)
                slices = [shards.test_slice(number, target.domain) for number in target.owners]
                rows = [by_hand(module, samples) for samples in slices]
                correct, loss, samples = (sum(column) for column in zip(*rows, strict=True))
                every.append((correct / samples, loss / samples, area(module, slices)))
            assert (len(set(every)) > 1) == (name == "fedbn")
            means.append(np.mean(every, axis=0))
            assert found[f"{target.name}_accuracy"] == pytest.approx(means[-1][0])
            assert found[f"{target.name}_loss"] == pytest.approx(means[-1][1], rel=1e-5)
            assert found[f"{target.name}_auc"] == pytest.approx(means[-1][2], abs=1e-6)
        assert found["domains_accuracy"] == pytest.approx(np.mean(means, axis=0)[0])
        assert set(found) == set(targets.columns)


def test_columns_that_two_domains_share_are_refused(tmp_path: Path) -> None:
    table = load("digits").train
    sources = [TableSource(table.slice(start, 300), title) for start, title in ((0, "x"), (300, "x_macro"))]
    tests = {"x": table.slice(600, 100), "x_macro": table.slice(700, 100)}
    population = partitioning.make(sources, tmp_path / "p", scheme="domains", clients_per_domain=1, test=tests)
    with pytest.raises(InputError, match=r"named 'domain_x_macro_f1': .*; rename your metric, or a domain"):
        Targets.of(population, None, [BY_NAME["f1"], BY_NAME["macro_f1"]])
