"""Blocks of an evaluation: their cuts, their sums on every fleet, and tens of thousands of clients."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import partitioning
from algorithms import Local, Participation, begin, fedavg, fedbn, next_round, start_round
from algorithms.core.chunks import CHUNK
from algorithms.training.loss import CrossEntropy, Loss, OwnLoss
from partitioning import Population
from raysim.data.sources import load
from raysim.fleet.inline import InlineFleet, InlineWorkplace
from raysim.fleet.model_plan import ModelPlan
from raysim.fleet.worker_plan import WorkerPlan
from raysim.measures.evaluate import Evaluation, EvaluationTarget, Targets, evaluate
from raysim.measures.metrics import METRICS, Metric, own_metric
from raysim.measures.scoring import block_samples, cut_samples
from tests.kit.federation import clients, federation, perceptron, settle  # noqa: F401
from tests.kit.ray import SharedRay

LOCAL = Local(lr=0.1, batch_size=16)
MODEL = ModelPlan("mlp", {"hidden": (12,), "norm": "batch"}, (1, 8, 8), 10, seed=1)

OF_CLASSES = tuple(metric for metric in METRICS.values() if "class" in metric.labels)


def test_the_sizes_alone_cut_blocks() -> None:
    sizes = np.array([5, 5, 5, 30, 1, 1, 9, 9])
    assert [(cut.start, cut.stop) for cut in cut_samples(sizes, 10)] == [(0, 2), (2, 3), (3, 4), (4, 6), (6, 7), (7, 8)]
    sites = np.array([0, 1, 1, 1, 1, 2, 2, 2])
    cuts = [(cut.start, cut.stop) for cut in cut_samples(sizes, 10, sites)]
    assert cuts == [(0, 1), (1, 3), (3, 4), (4, 5), (5, 7), (7, 8)]
    assert [cut.stop - cut.start for cut in cut_samples(np.ones(3000, int), 2048)] == [1024, 1024, 952]


def test_a_block_holds_whole_chunks() -> None:
    assert [block_samples(samples, 784) // CHUNK for samples in (1, 16 * CHUNK, 16 * CHUNK + 1, 10**8)] == [1, 1, 2, 4]
    assert block_samples(500, 3 * 1024 * 2048) == 8  # images of which a chunk holds two


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> Population:
    table = load("digits").train
    out = tmp_path_factory.mktemp("scoring") / "population"
    given = {"scheme": "dirichlet", "clients": 40, "label_alpha": 0.3, "seed": 5, "test_clients": 20}
    return partitioning.make(table.slice(200), out, test=table.slice(0, 200), local_test=0.3, **given)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks although the digits would fit one; the driver cuts them."""
    monkeypatch.setattr("raysim.measures.evaluate.block_samples", lambda samples, values: 100)


@pytest.mark.parametrize(
    "algorithm", [fedavg(Participation(), LOCAL), fedbn(Participation(), LOCAL)], ids=["fedavg", "fedbn"]
)
def test_every_fleet_finds_the_same_values(
    algorithm: object, shared_ray: SharedRay, population: Population, small_blocks: None, tmp_path: Path
) -> None:
    plan = WorkerPlan(population.path, MODEL, algorithm, tmp_path / "personal").resolved()  # type: ignore[arg-type]
    targets = Targets.of(population, None, OF_CLASSES)
    with InlineWorkplace() as place, closing(place.fleet(plan)) as fleet:
        state = next_round(begin(plan.module(), fleet, 0, 1), plan.algorithm, fleet)
        wanted = evaluate(state, plan.algorithm, fleet, targets)
    assert set(wanted) == set(targets.columns)
    with closing(shared_ray.place(2).fleet(plan)) as ray_fleet:
        assert evaluate(state, plan.algorithm, ray_fleet, targets) == wanted
        beside = Evaluation(state, plan.algorithm, ray_fleet, targets)
        pending = start_round(state, plan.algorithm, ray_fleet)
        assert beside.values() == wanted
        pending.finish()


CLIENTS, CLASSES = 30_000, 3


class Memory:
    """Three samples of four values for each client; labels follow the first value, with noise."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(CLIENTS, 3, 4)).astype(np.float32)
        y = (x[:, :, 0] + rng.normal(size=(CLIENTS, 3)) > 0).astype(np.int64) * rng.integers(1, CLASSES, (CLIENTS, 3))
        self.x, self.y = torch.from_numpy(x), torch.from_numpy(y)

    def scored(
        self, clients: Sequence[int], part: str, domain: str | None
    ) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
        rows = slice(clients[0], clients[-1] + 1)
        return self.x[rows].flatten(0, 1), self.y[rows].flatten(0, 1), np.full(len(clients), 3)


def test_tens_of_thousands_of_clients(federation: Callable[..., InlineFleet]) -> None:  # noqa: F811
    module, memory = perceptron(), Memory()
    fleet = federation(clients([5]), module)
    fleet._worker = replace(fleet._worker, data=memory)  # type: ignore[arg-type]
    sizes = np.full(CLIENTS, 3)
    target = EvaluationTarget("held_out", np.arange(CLIENTS), sizes, "all")
    state, algorithm = begin(module, fleet, 0, 1), fedavg(Participation(), LOCAL)
    evaluation = Evaluation(state, algorithm, fleet, Targets((target,), OF_CLASSES))
    found = evaluation.values()
    with torch.no_grad():
        logits = module(memory.x.flatten(0, 1))
    y, probabilities = memory.y.flatten().numpy(), logits.softmax(1).numpy()
    hits = (logits.argmax(1).numpy() == y).reshape(CLIENTS, 3)
    assert found["held_out_accuracy"] == pytest.approx(hits.mean(), abs=1e-12)
    assert found["held_out_mean_accuracy"] == pytest.approx(hits.mean(), abs=1e-12)
    assert found["held_out_auc"] == pytest.approx(
        np.mean([roc_auc_score(y == c, probabilities[:, c]) for c in range(CLASSES)]), abs=1e-6
    )
    each = [
        np.mean([roc_auc_score(y[a:b] == c, probabilities[a:b, c]) for c in set(y[a:b])])
        for a, b in ((3 * client, 3 * client + 3) for client in range(20))
        if len(set(y[a:b])) > 1
    ]
    few = EvaluationTarget("few", np.arange(20), sizes[:20], "all")
    assert evaluate(state, algorithm, fleet, Targets((few,), (METRICS["auc"],)))["few_mean_auc"] == pytest.approx(
        np.mean(each)
    )


class Counting(torch.nn.Module):
    """A layer that changes an entry in every pass, and whose outputs depend on it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("passes", torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes *= 2
        return x * self.passes


class Parts(Memory):
    """The samples of clients with models of their own, [20, n, 4], as one block after the other asks for them."""

    def samples(self, client: int, part: str) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[client], self.y[client]


@pytest.mark.parametrize("layers", [[], [Counting()]], ids=["known layers", "a layer of one's own"])
def test_clients_with_models_of_their_own_do_not_see_each_other(
    layers: list[torch.nn.Module],
    federation: Callable[..., InlineFleet],  # noqa: F811
) -> None:
    module = torch.nn.Sequential(*perceptron(norm=True), *layers)
    algorithm = fedbn(Participation(), LOCAL)
    fleet = federation(clients([3, 3, 3]), module, algorithm.sharing)
    fleet._worker = replace(fleet._worker, data=Parts())  # type: ignore[arg-type]
    state = next_round(begin(module, fleet, 0, 1), algorithm, fleet)
    target = EvaluationTarget("local", np.arange(3), np.full(3, 3), "test")
    each = [replace(target, owners=np.array([client]), sizes=np.full(1, 3)) for client in range(3)]
    together, *alone = (
        evaluate(state, algorithm, fleet, Targets((one,), (METRICS["loss"],)))["local_loss"] for one in (target, *each)
    )
    assert len({*alone}) == 3
    assert together == pytest.approx(np.mean(alone), rel=1e-9)


def erasing(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return cross-entropies, and leave nothing of what was given."""
    found = torch.nn.functional.cross_entropy(outputs, y, reduction="none")
    outputs.zero_()
    y.zero_()
    return found


class Erasing:
    """A metric whose `value` leaves nothing of its sums either."""

    def sums(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return erasing(outputs, y)

    def value(self, sums: np.ndarray, samples: int) -> float:
        mean = sums[0] / samples
        sums[:] = 0
        return float(mean)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_own_metrics_and_losses_cannot_change_what_others_see(
    precision: torch.dtype,
    federation: Callable[..., InlineFleet],  # noqa: F811
) -> None:
    module = perceptron().to(precision)
    fleet = federation(clients([3, 3, 3]), module)
    fleet._worker = replace(fleet._worker, data=Memory())  # type: ignore[arg-type]
    state = begin(module, fleet, 0, 1)
    target = EvaluationTarget("local", np.arange(20), np.full(20, 3), "test")
    own = (own_metric("first", erasing), own_metric("second", Erasing()))

    def found(loss: Loss, *metrics: Metric) -> dict[str, float]:
        return evaluate(state, fedavg(Participation(), Local(loss=loss)), fleet, Targets((target,), metrics))

    wanted = found(CrossEntropy(), *OF_CLASSES)
    values = found(OwnLoss("erasing", erasing), *own, *OF_CLASSES)
    assert {name: value for name, value in values.items() if "first" not in name and "second" not in name} == wanted
    for name in ("first", "second"):
        for mean in ("", "mean_"):
            assert values[f"local_{mean}{name}"] == pytest.approx(wanted[f"local_{mean}loss"])
    assert found(CrossEntropy(), *OF_CLASSES) == wanted


def test_draws_of_an_own_metric_differ_between_targets(federation: Callable[..., InlineFleet]) -> None:  # noqa: F811
    module = perceptron()
    fleet = federation(clients([3, 3, 3]), module)
    fleet._worker = replace(fleet._worker, data=Memory(), own=0)  # type: ignore[arg-type]
    names = ("local", "held_out", "validation")
    targets = tuple(EvaluationTarget(name, np.arange(20), np.full(20, 3), "test") for name in names)
    drawing = own_metric("drawing", lambda outputs, y: torch.rand(len(y)))
    state, algorithm = begin(module, fleet, 0, 1), fedavg(Participation(), LOCAL)
    first, again = (evaluate(state, algorithm, fleet, Targets(targets, (drawing,))) for _ in range(2))
    assert first == again and len({first[f"{name}_drawing"] for name in names}) == 3


@pytest.mark.parametrize("parts", [1, 7])
def test_the_auc_of_a_confident_model_is_that_of_its_logits(
    federation: Callable[..., InlineFleet],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    parts: int,
) -> None:
    """Its float32 probabilities are mostly 0 and 1; the keys of one block or of several are ranked together."""
    monkeypatch.setattr("raysim.measures.evaluate.block_samples", lambda samples, values: -(-samples // parts))
    module, memory = perceptron(), Memory()
    with torch.no_grad():
        module[-1].weight.mul_(300)
        logits = module(memory.x[:700].flatten(0, 1)).double()
    assert (logits.softmax(1).float() == 1).any(1).double().mean() > 0.5
    fleet = federation(clients([5]), module)
    fleet._worker = replace(fleet._worker, data=memory)  # type: ignore[arg-type]
    target = EvaluationTarget("held_out", np.arange(700), np.full(700, 3), "all")
    targets = Targets((target,), (METRICS["auc"],))
    found = evaluate(begin(module, fleet, 0, 1), fedavg(Participation(), LOCAL), fleet, targets)
    y = memory.y[:700].flatten().numpy()
    scores = [logits[:, c] - logits[:, [j for j in range(CLASSES) if j != c]].logsumexp(1) for c in range(CLASSES)]
    wanted = np.mean([roc_auc_score(y == c, score) for c, score in enumerate(scores)])
    assert found["held_out_auc"] == pytest.approx(wanted, abs=1e-6)  # pairs closer than float32 tells apart
