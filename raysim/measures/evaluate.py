"""Evaluation: a global test set, clients that were held out, and each client's own test part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import numpy as np
import torch

from algorithms import Algorithm, Block, Fleet, Location, Outcome, Output, Packed, State, Worker, current_model
from algorithms.engine.chunks import chunks
from algorithms.engine.clients import SamplePart
from algorithms.engine.fleet import cut
from algorithms.engine.statistics import add_statistics, load_statistics, statistics_of
from algorithms.engine.sums import Sum
from algorithms.training.losses import IGNORED, cross_entropies
from partitioning import Population
from partitioning.common.columns import is_image
from raysim.common.errors import InputError
from raysim.data.sites import Sites
from raysim.measures.metrics import Score, loss, pooled, value_of

BLOCK = 16
"""Clients of one block of an evaluation; a slice of a test set, which is long, is a block of its own."""

Samples = tuple[torch.Tensor, torch.Tensor]

Models = Mapping[Location | None, int]
"""Where the kept entries of clients' models stand, and how many clients have each; None: those of nobody."""


@dataclass(frozen=True)
class EvaluationTarget:
    """Something to evaluate on.

    Args:
        name: "test" (the global test set), "held_out" and "validation" (clients that never train), "local" (own test
            parts), or "domain_NAME" (a domain's test set).
        owners: client ids, or the numbers of the test set's slices.
        sizes: how many samples each has.
        part: of each client's samples; None for test sets.
        domain: whose test set it is; None for the global one.
        clients: whose models are measured on the domain's test set: its training clients.
        sites: the number of each owner's site; None where they have none.
    """

    name: str
    owners: tuple[int, ...]
    sizes: tuple[int, ...]
    part: SamplePart | None
    domain: str | None = None
    clients: tuple[int, ...] = ()
    sites: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Targets:
    """What to evaluate on, and by which metrics."""

    targets: tuple[EvaluationTarget, ...]
    metrics: tuple[str, ...]

    @classmethod
    def of(cls, population: Population, wanted: Sequence[str] | None, metrics: Sequence[str]) -> Targets:
        """The targets that a population has, or those of them that are wanted.

        Raises:
            InputError: one is wanted that the population does not have.
        """
        if "auc" in metrics and is_image(population.schema.field(population.manifest.label).type):
            raise InputError(
                "evaluate.metrics has 'auc' with labels that are images: must be without it, for it would keep the "
                "probabilities of all pixels; use 'miou'"
            )
        slices = tuple(population.test_slices)
        held_out, validation = (
            [int(client) for client in clients if population.sizes[client] > 0]
            for clients in (population.test_clients, population.validation_clients)
        )
        local = [int(c) for c in population.train_clients if population.test_sizes[c] > 0]
        domains = [_domain(population, name) for name in population.tests if name is not None]
        sites = Sites.of(population)
        found = {
            "test": EvaluationTarget("test", tuple(range(len(slices))), slices, None),
            "held_out": _of_clients("held_out", held_out, population.sizes, "all", sites),
            "validation": _of_clients("validation", validation, population.sizes, "all", sites),
            "local": _of_clients("local", local, population.test_sizes, "test", sites),
        }
        there: dict[str, tuple[EvaluationTarget, ...]] = {
            name: (target,) for name, target in found.items() if target.owners
        }
        if domains:
            there["domains"] = tuple(domains)
        for name in wanted or ():
            if name not in there:
                raise InputError(
                    f"evaluate.on = {name!r}: must be what the population has ({', '.join(there) or 'nothing'}); "
                    "set data.test, partition.test_clients, .validation_clients, .folds or .local_test"
                )
        return cls(tuple(target for name in wanted or there for target in there[name]), tuple(metrics))

    @property
    def columns(self) -> list[str]:
        """The names of the metrics' columns; `mean` is over clients, without it the samples are pooled."""
        prefixes = [
            prefix
            for target in self.targets
            for prefix in ([target.name] if target.part is None else [target.name, f"{target.name}_mean"])
        ]
        domains = ["domains"] if any(target.domain is not None for target in self.targets) else []
        return [f"{prefix}_{metric}" for prefix in (*prefixes, *domains) for metric in self.metrics]


class Evaluation:
    """An evaluation of the global model, as a merge would give it now, under way on all targets.

    A client that keeps entries is evaluated with its own; everything else with the average, but where the statistics
    of outsiders are their own (see `Place`): of clients that are held out, and of domains none of whose clients has
    trained yet.

    Args:
        state: the run, which may go on meanwhile.
        algorithm: its five parts.
        fleet: what runs the blocks.
        targets: what to evaluate on.
    """

    def __init__(self, state: State, algorithm: Algorithm, fleet: Fleet, targets: Targets) -> None:
        self._targets = targets
        own = fleet.layouts.has_own_models
        self._models = [_models(state, target, own) for target in targets.targets]
        self._maps: list[Iterator[Outcome]] = []
        self.state = replace(state, model=current_model(state, algorithm, fleet), travelling_models=())
        """As a merge would leave it now."""
        if targets.targets:
            model = fleet.put((self.state.model, state.average))
            for target, models in zip(targets.targets, self._models, strict=True):
                unknown = target.part == "all" or (target.domain is not None and set(models) == {None})
                outside = unknown and algorithm.sharing.outsider == "own"
                kind = EvaluateOutsiders if outside else Evaluate
                function = kind(target.part, "auc" in targets.metrics, target.domain)
                blocks = _united(target) if outside and target.part is None else _blocks(state, target, models, own)
                self._maps.append(fleet.map(function, blocks, [model]))

    def values(self) -> dict[str, float]:
        """A value for each of the targets' columns that is defined; not a number where the model diverged."""
        values: dict[str, float | None] = {}
        for target, models, outcomes in zip(self._targets.targets, self._models, self._maps, strict=True):
            scores: list[Score] = []
            for outcome in outcomes:
                scores += outcome.value
            values |= self._on_clients(target, scores) if target.part else self._on_test(target, models, scores)
        for name in self._targets.metrics:
            values[f"domains_{name}"] = _mean(values[f"{t.name}_{name}"] for t in self._targets.targets if t.domain)
        return {name: value for name, value in values.items() if value is not None}

    def _on_clients(self, target: EvaluationTarget, scores: Sequence[Score]) -> dict[str, float | None]:
        values: dict[str, float | None] = {}
        whole = pooled(scores)
        for name in self._targets.metrics:
            values[f"{target.name}_{name}"] = value_of(name, whole)
            values[f"{target.name}_mean_{name}"] = _mean(value_of(name, score) for score in scores)
        return values

    def _on_test(self, target: EvaluationTarget, models: Models, scores: Sequence[Score]) -> dict[str, float | None]:
        # Each model has a score a slice; the mean is over the clients, of which several may have one model.
        slices, clients = len(target.owners), list(models.values())
        wholes = [pooled(scores[start : start + slices]) for start in range(0, len(scores), slices)]
        return {
            f"{target.name}_{name}": _mean([value_of(name, whole) for whole in wholes], clients)
            for name in self._targets.metrics
        }


def evaluate(state: State, algorithm: Algorithm, fleet: Fleet, targets: Targets) -> dict[str, float]:
    """Evaluate now; see `Evaluation`."""
    return Evaluation(state, algorithm, fleet, targets).values()


def loss_on_test(model: Packed, personal: Packed, fleet: Fleet, targets: Targets) -> float:
    """The mean cross-entropy of a model on the global test set, which the targets must have."""
    target = next(target for target in targets.targets if target.name == "test")
    blocks = _blocks_of_slices(target, {None: 1})
    scores: list[Score] = []
    for outcome in fleet.map(Evaluate(None, probabilities=False), blocks, [fleet.put((model, personal))]):
        scores += outcome.value
    return loss(pooled(scores))


@dataclass(frozen=True)
class Evaluate:
    """Score the global model on each client or slice of a block.

    Args:
        part: of each client's samples; None for slices of a test set.
        probabilities: whether to return them, which the AUC needs.
        domain: whose test set the slices are of; None for the global one.
    """

    part: SamplePart | None
    probabilities: bool
    domain: str | None = None

    def objects(self, block: Block) -> int:
        return 0

    def join(self, left: list[Score], right: list[Score]) -> list[Score]:
        return left + right

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        model, average = values[0]
        scores: list[Score] = []
        personal: Location | None
        # Neighbours without kept entries share one model, and so one pass.
        for personal, group in groupby(zip(block.clients, block.inputs, strict=True), key=itemgetter(1)):
            worker.resident.load(model, worker.personal.read(personal) if personal else average)
            scores += self._score(worker, (self._samples(worker, owner) for owner, _ in group))
        return Output(scores)

    def _samples(self, worker: Worker, owner: int) -> Samples:
        return worker.data.samples(owner, self.part) if self.part else worker.data.test_slice(owner, self.domain)

    @torch.no_grad()
    def _score(self, worker: Worker, samples: Iterable[Samples]) -> list[Score]:
        """The score of each owner; images whose pixels have classes are large, so they are held one owner's at once."""
        module, floating, every = worker.resident.module.eval(), worker.resident.floating, iter(samples)
        first = next(every)
        if first[1].dim() > 1:
            return [_of_pixels(module, x.to(floating), y) for x, y in chain([first], every)]
        return self._of_classes(module, floating, [first, *every])

    def _of_classes(self, module: torch.nn.Module, floating: torch.dtype, samples: Sequence[Samples]) -> list[Score]:
        """The score of each owner, all of them passed through the model together."""
        x, y = (torch.cat(tensors) for tensors in zip(*samples, strict=True))
        x = x.to(floating)
        logits = torch.cat([module(x[part]) for part in chunks(x)])
        classes = logits.shape[1]
        each = cross_entropies(logits.double(), y)
        cells = y * classes + logits.argmax(1)
        probabilities = logits.softmax(1).float().cpu().numpy() if self.probabilities else None
        scores, start = [], 0
        for _, own in samples:
            part = slice(start, start + len(own))
            confusion = torch.bincount(cells[part], minlength=classes * classes).reshape(classes, classes)
            extra = () if probabilities is None else (own.cpu().numpy(), probabilities[part])
            scores.append(Score(confusion.cpu().numpy(), float(each[part].sum()), *extra))
            start = part.stop
        return scores


def _of_pixels(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> Score:
    """The score of samples whose pixels have classes: over these, chunk after chunk."""
    scores = []
    for part in chunks(x):
        logits, labels = module(x[part]), y[part]
        classes, known = logits.shape[1], labels != IGNORED
        cells = labels[known].long() * classes + logits.argmax(1)[known]
        confusion = torch.bincount(cells, minlength=classes * classes).reshape(classes, classes)
        scores.append(Score(confusion.cpu().numpy(), float(cross_entropies(logits.double(), labels).sum())))
    return pooled(scores)


class EvaluateOutsiders(Evaluate):
    """Score the global model with statistics of what it is scored on: each client's samples, or a whole test set."""

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        model, average = values[0]
        scores: list[Score] = []
        for owners in [(client,) for client in block.clients] if self.part else [block.clients]:
            samples = [self._samples(worker, owner) for owner in owners]
            statistics = Sum.zero(statistics_of(worker.resident.layouts.whole))
            worker.resident.load(model, average)
            for x, _ in samples:
                add_statistics(statistics, worker.resident, x)
            worker.resident.load(model, average)
            if (own := statistics.mean()) is not None:
                load_statistics(worker.resident, own)
            scores += self._score(worker, samples)
        return Output(scores)


def _mean(values: Iterable[float | None], clients: Sequence[int] | None = None) -> float | None:
    """Over those for which a metric is defined, each counting once or as many clients; None where there is none."""
    every = list(values)
    pairs = [(v, n) for v, n in zip(every, clients or [1] * len(every), strict=True) if v is not None]
    return float(np.average([v for v, _ in pairs], weights=[n for _, n in pairs])) if pairs else None


def _models(state: State, target: EvaluationTarget, own: bool) -> Models:
    """How many clients have each model that is measured on a test set: one that is nobody's but for domains."""
    return Counter(_personal(state, client, own) for client in target.clients) or {None: 1}


def _personal(state: State, client: int, own: bool) -> Location | None:
    """Where the entries stand that make the client's model its own; None where no client has any."""
    return state.personal.latest(client, state.round) if own else None


def _blocks(state: State, target: EvaluationTarget, models: Models, own: bool) -> list[Block]:
    if target.part is None:
        return _blocks_of_slices(target, models)
    blocks: list[Block] = []
    for part in cut(len(target.owners), BLOCK, target.sites):
        owners, sizes = target.owners[part], target.sizes[part]
        rows = tuple(_personal(state, owner, own) for owner in owners)
        site = None if target.sites is None else target.sites[part.start]
        blocks.append(Block(len(blocks), owners, sum(sizes), rows, site=site))
    return blocks


def _blocks_of_slices(target: EvaluationTarget, models: Models) -> list[Block]:
    places = [(personal, place) for personal in models for place in range(len(target.owners))]
    return [
        Block(number, (target.owners[place],), target.sizes[place], (personal,))
        for number, (personal, place) in enumerate(places)
    ]


def _united(target: EvaluationTarget) -> list[Block]:
    """All slices of a test set as one block, so that they have statistics in common."""
    return [Block(0, target.owners, sum(target.sizes), (None,) * len(target.owners))]


def _domain(population: Population, name: str) -> EvaluationTarget:
    slices = population.slices_of(name)
    domains = [] if population.domains is None else population.domains.to_pylist()
    clients = tuple(int(c) for c in population.train_clients if domains and domains[c] == name)
    return EvaluationTarget(f"domain_{name}", tuple(range(len(slices))), slices, None, name, clients)


def _of_clients(
    name: str, clients: Sequence[int], sizes: np.ndarray, part: SamplePart, sites: Sites | None
) -> EvaluationTarget:
    owners = list(clients)
    numbers = None if sites is None else tuple(sites.numbers[owners].tolist())
    return EvaluationTarget(name, tuple(owners), tuple(sizes[owners].tolist()), part, sites=numbers)
