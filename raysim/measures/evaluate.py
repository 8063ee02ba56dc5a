"""Evaluation on the global test set, on held-out clients and on each client's own test part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan, prod

import numpy as np
from numpy.typing import NDArray

from algorithms import Algorithm, Block, Fleet, Location, Outcome, Packed, State, current_model
from algorithms.core.clients import SamplePart
from algorithms.core.fleet import Reference, joined, map_joined
from algorithms.core.state import CLUSTERS
from algorithms.rounds.clusters import choices_of
from algorithms.training.loss import Loss
from partitioning import Population
from partitioning.common.columns import repeated
from raysim.common.errors import InputError
from raysim.data.labels import LABELS
from raysim.data.shards import Sites
from raysim.data.targets import label_kind
from raysim.measures.finetuning import Finetuning
from raysim.measures.metrics import METRICS, USUAL, Metric
from raysim.measures.scoring import (
    Chosen,
    Evaluate,
    Finetuned,
    PooledRanks,
    Tally,
    block_samples,
    cut_samples,
    joined_ranks,
)

Models = Mapping[Chosen, int]
"""Number of clients by their model; None stands for the global one."""


@dataclass(frozen=True, eq=False)
class EvaluationTarget:
    """Data to evaluate on.

    Args:
        name: "test" (the global test set), "held_out" and "validation" (clients that never train), "local" (clients'
            own test parts), or "domain_NAME" (a domain's test set).
        owners: client ids, or numbers of the test set's slices, int64 [n].
        sizes: number of samples of each owner, int64 [n].
        part: part of each client's samples; None for test sets.
        domain: domain of the test set; None for the global one.
        clients: training clients of the domain, whose models are measured on its test set.
        sites: number of each owner's site, int64 [n]; None without sites.
        finetuned: whether each client's model is fine-tuned before it is evaluated.
    """

    name: str
    owners: NDArray[np.int64]
    sizes: NDArray[np.int64]
    part: SamplePart | None
    domain: str | None = None
    clients: tuple[int, ...] = ()
    sites: NDArray[np.int64] | None = None
    finetuned: bool = False

    @classmethod
    def of_clients(
        cls, name: str, clients: NDArray[np.int64], sizes: NDArray[np.int64], part: SamplePart, population: Population
    ) -> EvaluationTarget:
        """Return a target of the clients that have samples of a part; `sizes` are those of all clients, [K]."""
        owners, sites = clients[sizes[clients] > 0], Sites.of(population)
        return cls(name, owners, sizes[owners], part, sites=None if sites is None else sites.numbers[owners])

    def only(self, which: NDArray[np.bool_]) -> EvaluationTarget:
        """Return the target of some of its owners."""
        sites = None if self.sites is None else self.sites[which]
        return replace(self, owners=self.owners[which], sizes=self.sizes[which], sites=sites)


@dataclass(frozen=True, eq=False)
class Targets:
    """Data to evaluate on, and the metrics.

    Args:
        targets: data to evaluate on.
        metrics: metrics of each target.
        shape: shape of a sample, which sets the samples of a block.
        finetuning: training of a client's model before it is evaluated; None for none.
    """

    targets: tuple[EvaluationTarget, ...]
    metrics: tuple[Metric, ...]
    shape: tuple[int, ...] = ()
    finetuning: Finetuning | None = None

    @classmethod
    def of(
        cls,
        population: Population,
        wanted: Sequence[str] | None,
        metrics: Sequence[Metric] | None = None,
        finetuning: Finetuning | None = None,
        excluded: Sequence[int] = (),
    ) -> Targets:
        """Return the targets of a population.

        Args:
            population: population with its splits.
            wanted: names of targets; None for all that the population has.
            metrics: metrics of each target; None for the usual ones of the labels.
            finetuning: training of a client's model before it is evaluated. Each target of clients with test parts of
                their own then has a second one, `NAME_finetuned`.
            excluded: training clients that are not evaluated.

        Raises:
            InputError: the population lacks a wanted target, a metric does not measure its labels, or two columns
                have one name.
        """
        metrics = _fitting(population, metrics)
        honest = np.setdiff1d(population.train_clients, excluded)
        domains = [
            _of_slices(population, f"domain_{name}", name, honest) for name in population.tests if name is not None
        ]
        of_clients = EvaluationTarget.of_clients
        found = [
            _of_slices(population, "test", None, honest),
            of_clients("held_out", population.test_clients, population.sizes, "all", population),
            of_clients("validation", population.validation_clients, population.sizes, "all", population),
            of_clients("local", honest, population.test_sizes, "test", population),
        ]
        there: dict[str, tuple[EvaluationTarget, ...]]
        there = {target.name: (target,) for target in found if len(target.owners)}
        there |= {"domains": tuple(domains)} if domains else {}
        for name in wanted or ():
            if name not in there:
                raise InputError(
                    f"evaluate.on = {name!r}: must be what the population has ({', '.join(there) or 'nothing'}); "
                    "set data.test, partition.test_clients, .validation_clients, .folds or .local_test"
                )
        targets = [target for name in wanted or there for target in there[name]]
        if finetuning is not None:
            targets += _finetuned(targets, population)
        made = cls(tuple(targets), tuple(metrics), finetuning=finetuning)
        if (twice := repeated(made.columns)) is not None:
            remedy = "rename your metric" + (", or a domain" if domains else "")
            raise InputError(f"evaluate.metrics gives two columns named {twice!r}: must each have its own; {remedy}")
        return made

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return tuple(metric.name for metric in self.metrics)

    @property
    def columns(self) -> list[str]:
        """Names of the metrics' columns; `_mean` averages over clients, the others pool all samples."""
        prefixes = [
            prefix
            for target in self.targets
            for prefix in ([target.name] if target.part is None else [target.name, f"{target.name}_mean"])
        ]
        domains = ["domains"] if any(target.domain is not None for target in self.targets) else []
        return [f"{prefix}_{metric}" for prefix in (*prefixes, *domains) for metric in self.names]


class Evaluation:
    """Evaluation under way: the fleet scores the model that an aggregation would give now, on all targets.

    A client with personal state is evaluated with its own. Everything else is evaluated with the average, unless the
    statistics of outsiders are their own (see `Sharing`): those of held-out clients, and of domains without a client
    that has trained.

    Args:
        state: state of the run, which may continue meanwhile.
        algorithm: parts of the algorithm.
        fleet: fleet that runs the blocks.
        targets: data to evaluate on.
    """

    def __init__(self, state: State, algorithm: Algorithm, fleet: Fleet, targets: Targets) -> None:
        self._targets, self._fleet, self._loss = targets, fleet, algorithm.local.loss
        own, outsider = fleet.layouts.has_own_models, algorithm.sharing.outsider
        self._scorings: list[_Scoring] = []
        self._views: dict[str, Evaluation] = {}
        self.state = replace(state, model=current_model(state, algorithm, fleet)).keeping("redistribution", {})
        """State that an aggregation would leave now."""
        if not targets.targets:
            return
        references = put_models(self.state, fleet)
        for target in targets.targets:
            models = _models(state, target, own, fleet)
            unknown = target.part == "all" or (target.domain is not None and set(models) == {None})
            own_statistics = unknown and outsider == "own"
            given = target.part, targets.metrics, self._loss, target.domain
            function = (
                Finetuned(*given, False, state.round, target.name, updates=targets.finetuning.updates(state, algorithm))
                if target.finetuned and targets.finetuning is not None
                else Evaluate(*given, own_statistics, state.round, target.name)
            )
            each = models_of_owners(target, state, algorithm, fleet, targets.shape)
            blocks = blocks_on(target, models if each is None else [each], targets.shape, function.own_statistics)
            clients = tuple(models.values())
            self._scorings.append(_Scoring(target, clients, function, blocks, fleet.map(function, blocks, references)))
        for option in algorithm.folded:
            views = option.views_of(self.state, algorithm, fleet)
            self._views |= {name: Evaluation(each, algorithm, view, targets) for name, (each, view) in views.items()}

    def values(self) -> dict[str, float]:
        """Wait for the scores and return a value by column; a column with an undefined metric is left out."""
        values: dict[str, float | None] = {}
        # Start all rankings before waiting for the first.
        begun = [(scoring, *scoring.ranked(self._fleet)) for scoring in self._scorings]
        for scoring, tally, ranking in begun:
            target, score = scoring.target, tally.score.pooled(len(scoring.clients))
            if scoring.function.ranks:
                score = replace(score, ranked=joined_ranks([outcome.value for outcome in ranking]))
            for metric in self._targets.metrics:
                (values[f"{target.name}_{metric.name}"],) = metric.value(score).mean(scoring.clients).items()
            if target.part:
                names = [f"{target.name}_mean_{name}" for name in self._targets.names]
                values |= zip(names, tally.means.items(), strict=True)
        domains = [target.name for target in self._targets.targets if target.domain is not None]
        for name in self._targets.names:
            there = [value for domain in domains if (value := values[f"{domain}_{name}"]) is not None]
            values[f"domains_{name}"] = float(np.mean(there)) if there else None
        for name, view in self._views.items():
            values |= {f"{name}_{column}": value for column, value in view.values().items()}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, eq=False)
class _Scoring:
    """Scoring of a target under way.

    Args:
        target: data to evaluate on.
        clients: number of clients of each model.
        function: function of the blocks.
        blocks: blocks of all owners, once for each model.
        outcomes: outcomes of the blocks.
    """

    target: EvaluationTarget
    clients: tuple[int, ...]
    function: Evaluate
    blocks: Sequence[Block]
    outcomes: Iterator[Outcome]

    def ranked(self, fleet: Fleet) -> tuple[Tally, Iterator[Outcome]]:
        """Wait for the sums, and start to rank all samples of each model if a metric needs it."""
        tally, keys = joined(self.function, self.blocks, self.outcomes)
        each, samples = len(self.blocks) // len(self.clients), int(self.target.sizes.sum())
        blocks = [
            Block(model, (), samples, references=tuple(keys[model * each : (model + 1) * each]))
            for model in range(len(self.clients) if self.function.ranks else 0)
        ]
        return tally, fleet.map(PooledRanks(self.function.ranks), blocks)


def evaluate(state: State, algorithm: Algorithm, fleet: Fleet, targets: Targets) -> dict[str, float]:
    """Evaluate and return a value by column; see `Evaluation`."""
    return Evaluation(state, algorithm, fleet, targets).values()


def loss_on_test(model: Packed, personal: Packed, fleet: Fleet, targets: Targets, loss: Loss) -> float:
    """Return the mean loss of a model on the global test set, one of the targets."""
    target = next(target for target in targets.targets if target.name == "test")
    function, blocks = Evaluate(None, (METRICS["loss"],), loss), blocks_on(target, [None], targets.shape)
    tally, _ = map_joined(fleet, function, blocks, [fleet.put((model, personal))])
    (value,) = METRICS["loss"].value(tally.score.pooled()).items()
    return nan if value is None else value


def _fitting(population: Population, metrics: Sequence[Metric] | None) -> tuple[Metric, ...]:
    """Return the metrics, or the usual ones; raise InputError if one does not measure the population's labels."""
    kind = label_kind(population.schema, population.manifest.label)
    brackets = ", or give a label of two classes whole numbers or strings, and data.label no brackets"
    for metric in metrics or ():
        if kind not in metric.labels:
            fitting = [name for name, each in METRICS.items() if kind in each.labels]
            raise InputError(
                f"evaluate.metrics has {metric.name!r} with labels that are {LABELS[kind]}: must be one of "
                f"{', '.join(fitting)}, or your own; use these{brackets if kind == 'numbers' else ''}"
            )
    return tuple(metrics) if metrics is not None else tuple(METRICS[name] for name in USUAL[kind])


def put_models(state: State, fleet: Fleet) -> list[Reference]:
    """Return handles of the global models, each with the average of the personal entries."""
    return [fleet.put((model, state.average)) for model in state.models]


def models_of_owners(
    target: EvaluationTarget, state: State, algorithm: Algorithm, fleet: Fleet, shape: tuple[int, ...]
) -> list[Chosen] | None:
    """Return the model of each owner; None if all owners have the same one, or are no clients.

    Of several global models a client has the one with the lowest loss on its training part, or on everything if it
    never trains. Clients that never train have no personal state to look for.
    """
    if target.part is None:
        return None
    if len(state.models) > 1:
        part: SamplePart = "all" if target.part == "all" else "train"
        blocks = blocks_on(target, [None], shape)
        return list(choices_of(target.owners, blocks, state, algorithm, fleet, part).tolist())
    owned = fleet.layouts.has_own_models and target.part != "all"
    return list(_locations(state, target.owners.tolist())) if owned else None


def _models(state: State, target: EvaluationTarget, own: bool, fleet: Fleet) -> Models:
    """Return the models to measure on a target, each with the number of its clients.

    Only a domain has models with personal state. Of several global models each counts for the clients that chose it
    last; all count equally before any did.
    """
    if len(state.models) > 1 and target.part is None:
        clients = target.clients or fleet.census.clients
        chosen = state.of(CLUSTERS)["chosen"][np.searchsorted(fleet.census.clients, clients)]
        return Counter(chosen[chosen >= 0].tolist()) or dict.fromkeys(range(len(state.models)), 1)
    if not own or not target.clients:
        return {None: max(1, len(target.clients))}
    return Counter(_locations(state, target.clients))


def _locations(state: State, clients: Iterable[int]) -> list[Location | None]:
    """Return the location of each client's personal state; None for a client that has not trained."""
    return [state.personal.latest(client, state.round) for client in clients]


def blocks_on(
    target: EvaluationTarget,
    models: Iterable[Chosen | list[Chosen]],
    shape: tuple[int, ...],
    united: bool = False,
) -> list[Block]:
    """Return blocks of all owners for each model.

    Args:
        target: data to evaluate on.
        models: each model, or that of each owner.
        shape: shape of a sample.
        united: whether all slices of a test set share their statistics, and therefore one block.
    """
    cuts = cut_samples(target.sizes, block_samples(int(target.sizes.sum()), prod(shape)), target.sites)
    if united and target.part is None:
        cuts = [slice(0, len(target.owners))]
    owners, starts = target.owners.tolist(), [cut.start for cut in cuts]
    sizes = np.add.reduceat(target.sizes, starts).tolist()
    sites = [None] * len(cuts) if target.sites is None else target.sites[starts].tolist()
    blocks: list[Block] = []
    for model in models:
        # Blocks without personal state need no inputs.
        inputs = model if isinstance(model, list) else [model] * len(owners) if model else []
        for cut, size, site in zip(cuts, sizes, sites, strict=True):
            blocks.append(Block(len(blocks), tuple(owners[cut]), size, tuple(inputs[cut]), site=site))
    return blocks


def _finetuned(targets: Sequence[EvaluationTarget], population: Population) -> list[EvaluationTarget]:
    """Return a target of fine-tuned models beside each target of clients that have test parts of their own."""
    found = []
    for target in targets:
        if target.part is not None and population.test_sizes[target.owners].any():
            name, sizes = f"{target.name}_finetuned", population.test_sizes
            made = EvaluationTarget.of_clients(name, target.owners, sizes, "test", population)
            found.append(replace(made, finetuned=True))
    if not found:
        raise InputError(
            "evaluate.finetune without clients that have test parts of their own: must have some, because the rest "
            "trains; set partition.local_test = 0.2"
        )
    return found


def _of_slices(population: Population, name: str, domain: str | None, honest: NDArray[np.int64]) -> EvaluationTarget:
    sizes = np.array(population.slices_of(domain), np.int64)
    domains = [] if population.domains is None or domain is None else population.domains.to_pylist()
    clients = tuple(int(c) for c in honest if domains and domains[c] == domain)
    return EvaluationTarget(name, np.arange(len(sizes)), sizes, None, domain, clients)
