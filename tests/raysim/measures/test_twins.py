"""Twins against plain torch: the divergence from a model trained centrally, and the concordance of the losses."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

import raysim
from algorithms import (
    Algorithm,
    Local,
    Participation,
    Purpose,
    WeightedMix,
    begin,
    centralized,
    fedasync,
    fedavg,
    fedbuff,
    fedmmb,
    fedsmb,
    generator,
    next_round,
    phases,
    radfed,
    static_bn,
)
from partitioning import Population
from raysim.common.errors import InputError
from raysim.data.shards import Shards
from raysim.fleet.inline import InlineFleet
from raysim.measures.twins import Cursor, Divergence, TwinState, TwinSteps
from raysim.models.build import build
from raysim.plots.style import strokes_of
from raysim.report.curves import measures
from raysim.report.read import read_runs
from raysim.report.tables import concordance
from tests.kit.federation import Samples, clients, federation, perceptron, settle  # noqa: F401
from tests.kit.rounds import train
from tests.kit.runs import quick_run

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.1, batch_size=4)


def divergence(algorithm: Algorithm, fleet: InlineFleet, rounds: int, norm: bool = False) -> list[float]:
    state = begin(perceptron(norm), fleet, 0, rounds)
    twin, found = Divergence(TwinState(state.model, state.initial)), []
    for _ in range(rounds):
        state = next_round(state, algorithm, fleet)
        twin.begin(state, algorithm, fleet)
        found.append(twin.end({})["dc"])
    assert twin.state.rounds == rounds
    return found


@pytest.mark.parametrize(
    "algorithm",
    [
        fedavg(Participation(), LOCAL),
        static_bn(Participation(), LOCAL),
        radfed(Participation(), LOCAL, aggregate_every=3),
        fedsmb(Participation(), LOCAL),
        fedmmb(Participation(), LOCAL, batches=2),
        radfed(Participation(), Local(lr=0.1, batch_size=4, batches=2), aggregate_every=3),
    ],
)
def test_one_client_does_not_diverge(algorithm: Algorithm, federation: Federation) -> None:  # noqa: F811
    fleet = federation(clients([23]), perceptron(True), algorithm.sharing)
    assert divergence(algorithm, fleet, 4, norm=True) == [0.0] * 4


def test_one_client_does_not_diverge_after_a_batch_that_is_refused(federation: Federation) -> None:  # noqa: F811
    algorithm = fedsmb(Participation(), LOCAL)  # batches of 4 and 1
    fleet = federation(clients([5]), perceptron(True), algorithm.sharing)
    assert divergence(algorithm, fleet, 4, norm=True) == [0.0] * 4


@pytest.mark.parametrize("arrivals", [fedasync, fedbuff])
def test_one_client_does_not_diverge_around_arrivals(
    arrivals: Callable[..., Algorithm],
    federation: Federation,  # noqa: F811
) -> None:
    one, later = (arrivals(Participation(), LOCAL, WeightedMix(1.0), concurrency=number) for number in (1, None))
    rounds = fedavg(Participation(), LOCAL)
    for algorithm in (one, phases(one, (2, rounds)), phases(rounds, (1, one), (2, later), (3, rounds))):
        fleet = federation(clients([23]), perceptron(), algorithm.sharing)
        assert divergence(algorithm, fleet, 4) == [0.0] * 4


def test_a_cohort_of_one_does_not_diverge(federation: Federation) -> None:  # noqa: F811
    algorithm = fedavg(Participation(cohort=1), LOCAL)
    fleet = federation(clients((9, 14, 5, 8)), perceptron(), algorithm.sharing)
    assert divergence(algorithm, fleet, 3) == [0.0] * 3


def test_centralised_training_is_its_own_twin(federation: Federation) -> None:  # noqa: F811
    algorithm = centralized(Participation(), LOCAL)
    assert divergence(algorithm, federation(clients((9, 14, 5)), perceptron(), algorithm.sharing), 3) == [0.0] * 3


def vector(module: torch.nn.Module) -> np.ndarray:
    return np.concatenate([p.detach().double().numpy().ravel() for p in module.parameters()])


@pytest.mark.parametrize("aggregate_every", [1, 2])
def test_the_divergence_is_that_of_plain_models(aggregate_every: int, federation: Federation) -> None:  # noqa: F811
    data, half = clients((11, 4, 9, 23, 6)), Participation(cohort=3)
    algorithm = radfed(half, LOCAL, aggregate_every=aggregate_every)
    found = divergence(algorithm, federation(data, perceptron(), algorithm.sharing), 4)
    module, twin, models, expected = perceptron(), perceptron(), [], []
    for number in range(1, 5):
        cohort = [int(client) for client in half.draw(np.arange(5), 0, number)]
        order = algorithm.rounds.deal(3, 0, number) if models else range(3)
        models = [models[i] for i in order] if models else [deepcopy(module) for _ in cohort]
        for model, client in zip(models, cohort, strict=True):
            train(model, data[client], LOCAL, number, client)
        mean = {name: sum(m.state_dict()[name] for m in models) / 3 for name in module.state_dict()}
        module.load_state_dict(mean)
        models = [] if number % aggregate_every == 0 else models
        union = tuple(torch.cat([data[client][i] for client in cohort]) for i in (0, 1))
        train(twin, union, LOCAL, number, cohort[0])  # type: ignore[arg-type]
        expected.append(np.linalg.norm(vector(module) - vector(twin)) / np.linalg.norm(vector(twin)))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert found[0] > 1e-3


def test_a_twin_draws_pass_after_pass() -> None:
    start = (-1, 0, 0)

    def draw(cursor: Cursor, samples: int = 10, **local: Any) -> tuple[list[np.ndarray], Cursor]:
        return TwinSteps(Local(**local), lr=0.1, seed=3, round_number=1, cursor=cursor, updates=2).batches(samples)

    batches, cursor = draw(start, steps=4, batch_size=3)  # 6 and 4 of the first pass, 6 and 4 of the second
    assert ([len(rows) for rows in batches], cursor) == ([6, 4, 6, 4], (1, 10, 10))
    for half, number in ((batches[:2], 0), (batches[2:], 1)):
        np.testing.assert_array_equal(np.concatenate(half), generator(3, Purpose.TWIN, number).permutation(10))
    # In two rounds as in one.
    first, cursor = draw(start, steps=1, batch_size=3)
    then, cursor = draw(cursor, steps=3, batch_size=3)
    assert cursor == (1, 10, 10) and all(np.array_equal(a, b) for a, b in zip(first + then, batches, strict=True))
    assert [len(rows) for rows in draw(start, epochs=2, batch_size=3)[0]] == [6, 4, 6, 4]
    assert [len(rows) for rows in draw(start, steps=2, batch_size="full")[0]] == [10, 10]
    assert [len(rows) for rows in draw(start, steps=2, batch_size=50)[0]] == [10, 10]
    # Without a client update the twin does not move either.
    steps = TwinSteps(Local(steps=2), lr=0.1, seed=3, round_number=1, cursor=(0, 4, 10), updates=0)
    assert steps.batches(10) == ([], (0, 4, 10))
    # A union that has grown begins a pass, in the middle of one or after it.
    for before in ((0, 6, 10), (0, 10, 10)):
        batches, cursor = draw(before, samples=14, epochs=1, batch_size=3)
        assert cursor == (1, 14, 14) and [len(rows) for rows in batches] == [6, 6, 2]
        assert sorted(np.concatenate(batches)) == list(range(14))


EXPERIMENT: dict[str, Any] = {
    "rounds": 6,
    "data": {"dataset": "digits", "test": 0.2},
    "partition": {"scheme": "iid", "clients": 4},
    "model": {"name": "mlp", "hidden": [8]},
    "algorithm": {"name": "fedavg"},
    "local": {"steps": 1, "batch_size": "full", "precision": "fp64"},
    "evaluate": {"every": 1, "measures": ["concordance", "dc"]},
}


def table(folder: Path, name: str = "fedavg") -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = pq.read_table(folder / name / "metrics.parquet").to_pydict()
    return columns


def test_one_full_step_of_clients_of_one_size_is_one_of_the_union(tmp_path: Path) -> None:
    # Models are weighted by samples, so it holds for sizes that differ by one, too.
    quick_run(EXPERIMENT, tmp_path / "run", inline=True)
    found = table(tmp_path / "run")
    np.testing.assert_allclose(found["twin_test_loss"], found["test_loss"], rtol=1e-9)
    assert max(found["concordance"]) < 1e-16 and max(found["dc"]) < 1e-12
    assert found["test_loss"][-1] < found["test_loss"][0]
    summary = json.loads((tmp_path / "run" / "fedavg" / "summary.json").read_text())["concordance"]
    assert summary == {"delta": found["concordance"][-1], "epsilon": 0.01, "concordant": True}
    results = read_runs([tmp_path / "run"])[0].results
    assert concordance(results[0]).startswith("concordant with centralised training")
    assert "Weight divergence" in [chart.title for chart in measures(results, strokes_of(["fedavg"]))]


def test_the_concordance_is_that_of_a_plain_model(tmp_path: Path) -> None:
    local = {"steps": 2, "batch_size": 5, "lr": 0.5, "precision": "fp64"}
    alone = {"scheme": "dirichlet", "clients": 4, "label_alpha": 0.2}
    quick_run({**EXPERIMENT, "local": local, "partition": alone}, tmp_path / "run", inline=True)
    found = table(tmp_path / "run")

    quick_run({**EXPERIMENT, "partition": alone, "rounds": 0}, tmp_path / "initial", inline=True)
    module = build("mlp", shape=(1, 8, 8), classes=10, seed=0, hidden=(8,)).double()
    module.load_state_dict(load_file(tmp_path / "initial" / "fedavg" / "model.safetensors"))
    population = Population.open(tmp_path / "run" / "population")
    shards = Shards(population.path)
    every: list[Samples] = [shards.samples(int(client), "train") for client in population.train_clients]
    x, y = torch.cat([x for x, _ in every]).double(), torch.cat([y for _, y in every])
    test_x, test_y = shards.test_slice(0)
    order = generator(0, Purpose.TWIN, 0).permutation(len(y))  # its first pass lasts longer than the run
    squares = 0.0
    for number in range(6):
        for at in (40 * number, 40 * number + 20):  # B' = 4 x 5
            rows = order[at : at + 20]
            gradients = torch.autograd.grad(cross_entropy(module(x[rows]), y[rows]), list(module.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(module.parameters(), gradients, strict=True):
                    parameter.sub_(0.5 * gradient)
        with torch.no_grad():
            loss = float(cross_entropy(module(test_x.double()), test_y))
        squares += (found["test_loss"][number] - loss) ** 2
        assert found["twin_test_loss"][number] == pytest.approx(loss, rel=1e-9)
        assert found["concordance"][number] == pytest.approx(squares / (number + 1), rel=1e-7)
    assert squares > 1e-4


def test_a_round_that_the_twin_leaves_out_is_in_no_mean(tmp_path: Path) -> None:
    """A weight decay explodes the first round of the twin, which takes five times as many steps as the client."""
    local = {"lr": 1.0, "lr_decay": 1e-6, "weight_decay": 1000.0, "batch_size": 100, "nonfinite": "leave-out"}
    change: dict[str, Any] = {"rounds": 3, "local": local, "model": {"hidden": [8], "norm": "batch"}}
    change |= {"partition": {"clients": 5}, "algorithm": {"name": "fedavg", "cohort": 1}}
    change |= {"evaluate": {"every": 1, "measures": ["concordance"]}}
    quick_run({**EXPERIMENT, **change}, tmp_path / "run", inline=True)
    found = table(tmp_path / "run")
    ours, theirs, concordance = (np.array(found[name]) for name in ("test_loss", "twin_test_loss", "concordance"))
    squares = (ours - theirs)[1:] ** 2
    assert np.isnan([theirs[0], concordance[0]]).all() and np.isfinite(squares).all()
    np.testing.assert_allclose(concordance[1:], [squares[0], squares.mean()], rtol=1e-9)


def test_columns_are_there_where_they_are_wanted(tmp_path: Path) -> None:
    asked = {"evaluate": {"measures": ["bn", "dl"]}, "model": {"hidden": [8], "norm": "batch"}, "rounds": 1}
    quick_run({**EXPERIMENT, **asked}, tmp_path / "run", inline=True)
    names = set(table(tmp_path / "run"))
    assert names >= {"dl", "dl_updates", "bn_change", "bn_deviation", "bn_variance"}
    assert not names & {"dc", "concordance", "twin_test_loss"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"evaluate": {"every": 0, "measures": ["concordance"]}}, "evaluate.every = 0 with .* must be 1"),
        (
            {"evaluate": {"every": 1, "measures": ["concordance"], "metrics": ["accuracy"]}},
            "without a loss on a global",
        ),
        ({"data": {"dataset": "digits"}}, "without a loss on a global test set"),
        (
            {"algorithm": {"name": "fedbn"}, "model": {"name": "mlp", "norm": "batch"}},
            "fedbn: evaluate.measures = 'dc' with personal entries",
        ),
        ({"evaluate": {"measures": ["dcc"]}}, "evaluate.measures"),
        ({"evaluate": {"measures": ["dc", "dc"]}}, "should name each only once"),
    ],
)
def test_what_has_no_twin_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as error:
        raysim.run({**EXPERIMENT, **change}, tmp_path / "run", inline=True)
    assert "\n" not in str(error.value) and not (tmp_path / "run").exists()
