"""Fine-tuned copies of clients' models: plain SGD from the right model, with draws of their own, and no trace."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import partitioning
import raysim
from algorithms import (
    Algorithm,
    Compute,
    Layout,
    Local,
    Participation,
    Purpose,
    State,
    begin,
    fedavg,
    generator,
    next_round,
    torch_seed,
)
from algorithms.core.head import ModelPart
from algorithms.names import ALGORITHMS
from partitioning import Population
from raysim.common.errors import InputError
from raysim.data.shards import Shards
from raysim.data.sources import load
from raysim.fleet.inline import InlineFleet, InlineWorkplace
from raysim.fleet.model_plan import ModelPlan
from raysim.fleet.worker_plan import WorkerPlan
from raysim.measures.evaluate import Targets, evaluate
from raysim.measures.finetuning import Finetuning
from raysim.measures.metrics import METRICS, own_metric

LOCAL = Local(lr=0.1, batch_size=7, momentum=0.5, compute=Compute(precision="fp64"))
MODEL = ModelPlan("mlp", {"hidden": (12,), "norm": "batch"}, (1, 8, 8), 10, seed=1)
MEASURED = [METRICS["accuracy"], METRICS["loss"]]
TUNED: list[tuple[str, ModelPart]] = [
    *(("fedavg", "all"), ("fedbn", "all"), ("fedrep", "all"), ("singleset", "all")),
    *(("fedavg", "head"), ("fedper", "head"), ("fedbabu", "head"), ("ditto", "head")),
]
"""Algorithms and parts: the one decides which model is tuned, the other which of its parameters."""
Fleets = Callable[..., InlineFleet]


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> Population:
    given = {"scheme": "dirichlet-qp", "clients": 6, "label_alpha": 0.3, "seed": 5, "test_clients": 2}
    out = tmp_path_factory.mktemp("finetuned") / "population"
    return partitioning.make(load("digits").train.slice(0, 160), out, local_test=0.3, **given)  # type: ignore[arg-type]


@pytest.fixture
def fleets(population: Population, tmp_path: Path) -> Iterator[Fleets]:
    made: list[InlineFleet] = []

    def make(algorithm: Algorithm, execution: str = "sequential") -> InlineFleet:
        compute = replace(algorithm.local.compute, execution=execution)  # type: ignore[arg-type]
        folder = tmp_path / f"personal-{len(made)}"
        plan = WorkerPlan(population.path, MODEL, algorithm.computed(compute), folder, block=4).resolved()
        with InlineWorkplace() as place:
            made.append(place.fleet(plan))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()


def simulate(algorithm: Algorithm, fleet: InlineFleet, rounds: int) -> State:
    state = begin(MODEL.build().double(), fleet, 3, rounds)
    for _ in range(rounds):
        state = next_round(state, algorithm, fleet)
    return state


def by_hand(state: State, fleet: InlineFleet, population: Population, client: int, tuning: Finetuning) -> Any:
    """Correct ones, summed loss and how many, of a client's model after torch's own SGD on its training part."""
    location = state.personal.latest(client, state.round)
    personal = state.average if location is None else fleet._worker.personal.read(location)
    model = state.model if location is None else fleet.layouts.own_model(state.model, personal)
    values = fleet.layouts.model(model, personal)
    module = MODEL.build().double()
    module.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in values.items()})
    shards = Shards(population.path)
    (x, y), (test_x, test_y) = (shards.samples(client, part) for part in ("train", "test"))  # type: ignore[arg-type]
    trained = [p for n, p in module.named_parameters() if tuning.part == "all" or n.startswith("output.")]
    optimiser = torch.optim.SGD(trained, LOCAL.lr, LOCAL.momentum)
    seed = torch_seed(3, Purpose.FINETUNE, state.round) % 2**32
    plan = replace(LOCAL, epochs=tuning.epochs).passes(len(y), generator(seed, Purpose.BATCHES, state.round, client))
    for rows in plan:
        if len(rows) > 1:
            optimiser.zero_grad()
            cross_entropy(module.train()(x.double()[rows]), y[rows]).backward()
            optimiser.step()
    with torch.no_grad():
        logits = module.eval()(test_x.double())
    loss = cross_entropy(logits, test_y, reduction="sum")
    return float((logits.argmax(1) == test_y).sum()), float(loss), len(test_y)


@pytest.mark.parametrize(
    ("name", "part", "execution"),
    [
        *((name, part, "vectorised") for name, part in TUNED),
        *(("fedavg", part, "sequential") for part in ("all", "head")),
    ],
)
def test_a_finetuned_model_is_that_of_a_plain_loop(
    name: str, part: ModelPart, execution: str, fleets: Fleets, population: Population
) -> None:
    algorithm, tuning = ALGORITHMS[name](Participation(fraction=0.6), LOCAL), Finetuning(2, part)
    targets, fleet = Targets.of(population, None, MEASURED, tuning), fleets(algorithm, execution)
    state = simulate(algorithm, fleet, 2)
    found = evaluate(state, algorithm, fleet, targets)
    for target, clients in (("local", population.train_clients), ("held_out", population.test_clients)):
        there = [int(client) for client in clients if population.test_sizes[client]]
        rows = [by_hand(state, fleet, population, client, tuning) for client in there]
        correct, loss, samples = (sum(column) for column in zip(*rows, strict=True))
        assert found[f"{target}_finetuned_accuracy"] == pytest.approx(correct / samples)
        assert found[f"{target}_finetuned_loss"] == pytest.approx(loss / samples, rel=1e-9)
        assert found[f"{target}_finetuned_loss"] != pytest.approx(found[f"{target}_loss"], rel=1e-3)
        mean = np.mean([row[1] / row[2] for row in rows])
        assert found[f"{target}_finetuned_mean_loss"] == pytest.approx(mean, rel=1e-9)


@pytest.mark.parametrize("name", ["fedbn", "radfed", "fedbabu"])
def test_finetuning_leaves_no_trace(name: str, fleets: Fleets, population: Population) -> None:
    algorithm = ALGORITHMS[name](Participation(fraction=0.6), LOCAL)
    plain, tuned = (Targets.of(population, None, MEASURED, tuning) for tuning in (None, Finetuning()))
    ends = []
    for targets in (plain, tuned):
        fleet = fleets(algorithm)
        state = begin(MODEL.build().double(), fleet, 3, 3)
        for number in range(3):
            found = evaluate(state, algorithm, fleet, targets)
            state = next_round(state, algorithm, fleet, last=number == 2)
        ends.append((state.model.floats.tobytes(), state.average.floats.tobytes(), found["local_loss"]))
    assert ends[0] == ends[1]
    assert [*plain.columns, *(name for name in tuned.columns if "finetuned" in name)] == tuned.columns


def test_the_draws_are_of_the_round_and_the_client(fleets: Fleets, population: Population) -> None:
    algorithm = fedavg(Participation(), LOCAL)
    fleet, targets = fleets(algorithm), Targets.of(population, None, MEASURED, Finetuning())
    state = simulate(algorithm, fleet, 1)
    first, again, later = (
        evaluate(each, algorithm, fleet, targets)["local_finetuned_loss"]
        for each in (state, state, replace(state, round=2))
    )
    assert first == again != later


def test_what_cannot_be_finetuned_is_refused(tmp_path: Path, population: Population) -> None:
    base: dict[str, Any] = {"rounds": 1, "data": {"dataset": "digits"}, "partition": {"clients": 3, "local_test": 0.2}}
    for changes, message in (
        ({"partition": {"clients": 3, "test_clients": 1}}, "set partition.local_test = 0.2"),
        (
            {"evaluate": {"finetune": {"epoch": 1}}},
            "'evaluate.finetune.epoch': did you mean 'evaluate.finetune.epochs'",
        ),
        ({"evaluate": {"finetune": {"epochs": 0}}}, "evaluate.finetune.epochs = 0: should be greater"),
        ({"local": {"update": "tests.raysim.measures.test_finetuned:own"}}, "with local.update"),
    ):
        with pytest.raises(InputError, match=message):
            raysim.run({"evaluate": {"finetune": {}}, **base, **changes}, tmp_path / "run", inline=True)
    layouts = fedavg(Participation(), LOCAL).divide(Layout.of(torch.nn.Sequential(torch.nn.BatchNorm1d(4))))
    with pytest.raises(InputError, match="'head': must be a part"):
        Finetuning(part="head").check(fedavg(Participation(), LOCAL), layouts)


@pytest.mark.parametrize("name", ["mean_accuracy", "finetuned_accuracy", "finetuned_mean_accuracy"])
def test_a_metric_has_columns_of_its_own(population: Population, name: str) -> None:
    mine = own_metric(name, lambda outputs, y: outputs[:, 0])
    assert Targets.of(population, None, [mine], Finetuning()).names == (name,)
    with pytest.raises(InputError, match=rf"two columns named '(held_out|local)_{name}': must .*; rename your metric"):
        Targets.of(population, None, [METRICS["accuracy"], mine], Finetuning())


def own(model: Any, batches: Any, context: Any) -> dict[str, float]:
    return {"loss": 0.0}
