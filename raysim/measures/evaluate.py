"""Evaluation on the global test set, on held-out clients and on each client's own test part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from algorithms import Algorithm, Block, Fleet, Location, Outcome, Packed, State, current_model
from algorithms.engine.clients import SamplePart
from algorithms.engine.fleet import cut
from partitioning import Population
from partitioning.common.columns import is_image
from raysim.common.errors import InputError
from raysim.data.shards import Sites
from raysim.measures.metrics import Score, loss, pooled, value_of
from raysim.measures.scoring import BLOCK, Evaluate

Models = Mapping[Location | None, int]
"""Number of clients by location of their personal state; None stands for no personal state."""


@dataclass(frozen=True)
class EvaluationTarget:
    """Data to evaluate on.

    Args:
        name: "test" (the global test set), "held_out" and "validation" (clients that never train), "local" (clients'
            own test parts), or "domain_NAME" (a domain's test set).
        owners: client ids, or numbers of the test set's slices.
        sizes: number of samples of each owner.
        part: part of each client's samples; None for test sets.
        domain: domain of the test set; None for the global one.
        clients: training clients of the domain, whose models are measured on its test set.
        sites: number of each owner's site; None without sites.
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
    """Data to evaluate on, and the metrics."""

    targets: tuple[EvaluationTarget, ...]
    metrics: tuple[str, ...]

    @classmethod
    def of(cls, population: Population, wanted: Sequence[str] | None, metrics: Sequence[str]) -> Targets:
        """Return the targets of a population.

        Args:
            population: population with its splits.
            wanted: names of targets; None for all that the population has.
            metrics: names of metrics.

        Raises:
            InputError: the population lacks a wanted target, or the AUC is wanted of image labels.
        """
        if "auc" in metrics and is_image(population.schema.field(population.manifest.label).type):
            raise InputError(
                "evaluate.metrics has 'auc' with labels that are images: must be without it, because it would keep the "
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
        there: dict[str, tuple[EvaluationTarget, ...]]
        there = {name: (target,) for name, target in found.items() if target.owners}
        there |= {"domains": tuple(domains)} if domains else {}
        for name in wanted or ():
            if name not in there:
                raise InputError(
                    f"evaluate.on = {name!r}: must be what the population has ({', '.join(there) or 'nothing'}); "
                    "set data.test, partition.test_clients, .validation_clients, .folds or .local_test"
                )
        return cls(tuple(target for name in wanted or there for target in there[name]), tuple(metrics))

    @property
    def columns(self) -> list[str]:
        """Names of the metrics' columns; `_mean` averages over clients, the others pool all samples."""
        prefixes = [
            prefix
            for target in self.targets
            for prefix in ([target.name] if target.part is None else [target.name, f"{target.name}_mean"])
        ]
        domains = ["domains"] if any(target.domain is not None for target in self.targets) else []
        return [f"{prefix}_{metric}" for prefix in (*prefixes, *domains) for metric in self.metrics]


class Evaluation:
    """Evaluation under way: the fleet scores the model that an aggregation would give now, on all targets.

    A client with personal state is evaluated with its own. Everything else is evaluated with the average, unless the
    statistics of outsiders are their own (see `Sharing`): those of held-out clients, and of domains without a client
    that has trained.

    Args:
        state: state of the run, which may continue meanwhile.
        algorithm: five parts of the algorithm.
        fleet: fleet that runs the blocks.
        targets: data to evaluate on.
    """

    def __init__(self, state: State, algorithm: Algorithm, fleet: Fleet, targets: Targets) -> None:
        self._targets = targets
        own = fleet.layouts.has_own_models
        self._models = [_models(state, target, own) for target in targets.targets]
        self._maps: list[Iterator[Outcome]] = []
        self.state = replace(state, model=current_model(state, algorithm, fleet), travelling_models=())
        """State that an aggregation would leave now."""
        if targets.targets:
            model = fleet.put((self.state.model, state.average))
            for target, models in zip(targets.targets, self._models, strict=True):
                unknown = target.part == "all" or (target.domain is not None and set(models) == {None})
                outside = unknown and algorithm.sharing.outsider == "own"
                function = Evaluate(target.part, "auc" in targets.metrics, target.domain, own_statistics=outside)
                united = outside and target.part is None
                blocks = _united(target) if united else _blocks(state, target, models, own)
                self._maps.append(fleet.map(function, blocks, [model]))

    def values(self) -> dict[str, float]:
        """Wait for the scores and return a value by column; a column with an undefined metric is left out."""
        values: dict[str, float | None] = {}
        for target, models, outcomes in zip(self._targets.targets, self._models, self._maps, strict=True):
            scores = [score for outcome in outcomes for score in outcome.value]
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
        # Each model has a score per slice. The mean is over clients, and several clients may share a model.
        slices, clients = len(target.owners), list(models.values())
        wholes = [pooled(scores[start : start + slices]) for start in range(0, len(scores), slices)]
        return {
            f"{target.name}_{name}": _mean([value_of(name, whole) for whole in wholes], clients)
            for name in self._targets.metrics
        }


def evaluate(state: State, algorithm: Algorithm, fleet: Fleet, targets: Targets) -> dict[str, float]:
    """Evaluate and return a value by column; see `Evaluation`."""
    return Evaluation(state, algorithm, fleet, targets).values()


def loss_on_test(model: Packed, personal: Packed, fleet: Fleet, targets: Targets) -> float:
    """Return the mean cross-entropy of a model on the global test set, one of the targets."""
    target = next(target for target in targets.targets if target.name == "test")
    blocks = _blocks_of_slices(target, {None: 1})
    outcomes = fleet.map(Evaluate(None, probabilities=False), blocks, [fleet.put((model, personal))])
    return loss(pooled(score for outcome in outcomes for score in outcome.value))


def _mean(values: Iterable[float | None], clients: Sequence[int] | None = None) -> float | None:
    """Return the mean of the defined values, weighted by numbers of clients if given; None if all are undefined."""
    every = list(values)
    pairs = [(v, n) for v, n in zip(every, clients or [1] * len(every), strict=True) if v is not None]
    return float(np.average([v for v, _ in pairs], weights=[n for _, n in pairs])) if pairs else None


def _models(state: State, target: EvaluationTarget, own: bool) -> Models:
    """Return the models to measure on a test set; only a domain has models with personal state."""
    return Counter(_personal(state, client, own) for client in target.clients) or {None: 1}


def _personal(state: State, client: int, own: bool) -> Location | None:
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
    pairs = [(personal, index) for personal in models for index in range(len(target.owners))]
    return [
        Block(number, (target.owners[index],), target.sizes[index], (personal,))
        for number, (personal, index) in enumerate(pairs)
    ]


def _united(target: EvaluationTarget) -> list[Block]:
    """Return all slices of a test set as one block with common statistics."""
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
