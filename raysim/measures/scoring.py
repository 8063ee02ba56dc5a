"""Scoring of a model on blocks of clients or of test-set slices: sums leave a block, never logits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from inspect import unwrap
from itertools import accumulate, groupby, pairwise
from operator import add
from typing import Any, ClassVar, TypeAlias
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms import Block, Function, Location, Output, Packed, Purpose, Resident, Worker
from algorithms import InputError as AlgorithmInputError
from algorithms.core.chunks import chunk_size
from algorithms.core.clients import SamplePart
from algorithms.core.returned import Returned, place_of
from algorithms.core.sums import Sum
from algorithms.parts.client_update import NO_INPUT, ClientUpdates
from algorithms.training.batches import batch_losses
from algorithms.training.folding import is_known
from algorithms.training.loss import CrossEntropy, Loss, known
from algorithms.training.statistics import add_statistics, load_statistics, statistics_of
from raysim.common.errors import InputError
from raysim.measures.metrics import METRICS, Metric, Score, Values
from raysim.measures.ranks import RANKED, log_odds, rank_keys, ranked

Pairs: TypeAlias = Sequence[tuple[Packed, Packed]]
"""Shared entries of each global model, with the average of the personal ones."""

Chosen: TypeAlias = Location | int | None
"""Location of a client's personal state, or the number of the global model that it has; None for the first one."""

BLOCKS = 16
"""Blocks of an evaluation, unless it has too few or too many samples."""

CHUNKS = 4
"""Chunks of samples in a block, at most."""

OWNERS = 1024
"""Owners in a block of the smallest ones, at most."""


def block_samples(samples: int, values: int) -> int:
    """Return the most samples of a block: 1 to CHUNKS whole chunks, so that all samples make about BLOCKS blocks.

    Args:
        samples: samples to evaluate on.
        values: values of one sample.
    """
    chunk = chunk_size(values)
    return chunk * min(max(1, -(-samples // (BLOCKS * chunk))), CHUNKS)


def cut_samples(sizes: NDArray[np.int64], most: int, sites: NDArray[np.int64] | None = None) -> list[slice]:
    """Cut a row of owners into blocks of neighbours of one site: the sizes alone set the cuts.

    Args:
        sizes: number of each owner's samples, [n].
        most: samples of a block, at most; a larger owner has a block of its own.
        sites: site of each owner, [n]; None without sites.
    """
    ends = np.cumsum(np.maximum(sizes, -(-most // OWNERS)))
    changes = [] if sites is None else (np.flatnonzero(np.diff(sites)) + 1).tolist()
    bounds = [0]
    for stop in [*changes, len(sizes)]:
        while (start := bounds[-1]) < stop:
            before = ends[start - 1] if start else 0
            bounds.append(min(stop, max(start + 1, int(np.searchsorted(ends, before + most, "right")))))
    return [slice(start, stop) for start, stop in pairwise(bounds)]


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums of blocks, one row each.

    Args:
        score: counts of all samples of each block, [blocks, ...].
        totals: sum of each metric over the block's owners, [blocks, metrics].
        defined: number of owners for which the metric is defined, int64 [blocks, metrics].
    """

    score: Score
    totals: NDArray[np.float64]
    defined: NDArray[np.int64]

    @property
    def means(self) -> Values:
        """Mean of each metric over all owners, [metrics]."""
        return Values.ratio(self.totals.sum(0), self.defined.sum(0))


@dataclass(frozen=True)
class Evaluate(Function):
    """Function of a fleet: score the global model on the clients or slices of a block.

    If a metric of `RANKED` is wanted, a block leaves its `rank_keys` behind, for `PooledRanks`.

    Args:
        part: part of each client's samples; None for slices of a test set, whose metrics make no mean.
        metrics: metrics.
        loss: loss of the metric "loss".
        domain: domain of the test set; None for the global one.
        own_statistics: whether batch-norm statistics come from the scored data: each client's, or the whole test set's.
        round_number: round of the model, a key of the draws of a user's own metrics and losses.
        target: name of the target, another key of these draws.
    """

    part: SamplePart | None
    metrics: tuple[Metric, ...]
    loss: Loss = CrossEntropy()
    domain: str | None = None
    own_statistics: bool = False
    round_number: int = 0
    target: str = ""

    driver_may_hold: ClassVar[bool] = True

    @property
    def ranks(self) -> tuple[str, ...]:
        """Names of the wanted metrics that need ranks."""
        return tuple(metric.name for metric in self.metrics if metric.name in RANKED)

    def objects(self, block: Block) -> int:
        return int(bool(self.ranks))

    def join(self, left: Any, right: Any) -> Any:
        return Tally(
            Score.joined([left.score, right.score]),
            np.concatenate([left.totals, right.totals]),
            np.concatenate([left.defined, right.defined]),
        )

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        x, y, counts = worker.data.scored(block.clients, self.part, self.domain)
        bounds = np.concatenate([[0], np.cumsum(counts)])
        scores: list[Score] = []
        keys: list[NDArray[np.int64]] = []
        # Blocks count from 0 in each target.
        with worker.keyed(Purpose.OWN_SCORE, self.round_number, crc32(self.target.encode()) >> 1 << 32 | block.number):
            for owners in self._loaded(worker, block, values, x, counts):
                rows, own = slice(bounds[owners.start], bounds[owners.stop]), counts[owners]
                scores.append(self._score(worker.resident, x[rows], y[rows], own, keys if self.ranks else None))
            return self._output(Score.joined(scores), [np.concatenate(keys, axis=1)] if keys else [], counts)

    def ranked(self, score: Score, keys: list[NDArray[np.int64]], counts: NDArray[np.int64]) -> Score:
        """Return the score of owners with the metrics that need ranks."""
        return replace(score, ranked={name: ranked(name, keys[0], counts) for name in self.ranks})

    def _output(self, score: Score, keys: list[NDArray[np.int64]], counts: NDArray[np.int64]) -> Output:
        """Return what a block leaves, from the score and the rank keys of its owners."""
        owners = self.ranked(score, keys, counts) if self.part else score
        sums = [metric.value(owners).sums() for metric in self.metrics if self.part]
        totals, defined = [total for total, _ in sums], [count for _, count in sums]
        tally = Tally(score.pooled(), np.array([totals], np.float64), np.array([defined], np.int64))
        return Output(tally, tuple(keys))

    def _runs(self, block: Block) -> list[tuple[slice, Chosen]]:
        """Return neighbours that share one model, and therefore one pass, with their personal state."""
        owners = len(block.clients)
        if self.own_statistics and self.part:
            return [(slice(i, i + 1), None) for i in range(owners)]
        if self.own_statistics or not block.inputs:
            return [(slice(0, owners), None)]
        ends = list(accumulate(len(list(group)) for _, group in groupby(block.inputs)))
        return [(slice(start, stop), block.inputs[start]) for start, stop in pairwise([0, *ends])]

    def _loaded(
        self, worker: Worker, block: Block, values: Pairs, x: torch.Tensor, counts: NDArray[np.int64]
    ) -> Iterator[slice]:
        """Load one model after the other and yield its owners: with their personal state, or their own statistics."""
        parts = torch.split(x, counts.tolist()) if self.own_statistics else ()
        loaded = None
        # A user's own layer may change shared entries in a pass.
        leaves = all(is_known(layer) for layer in worker.resident.module.modules())
        for owners, location in self._runs(block):
            model, own = self._model(worker, values, location)
            if model is loaded:
                worker.resident.load_personal(own)
            else:
                worker.resident.load(model, own)
            loaded = model if leaves and not self.own_statistics else None
            if self.own_statistics:
                statistics = Sum.zero(statistics_of(worker.resident.layouts.whole))
                for samples in parts[owners]:
                    add_statistics(statistics, worker.resident, samples)
                worker.resident.load(model, own)
                if (mean := statistics.mean()) is not None:
                    load_statistics(worker.resident, mean)
            yield owners

    def _model(self, worker: Worker, values: Pairs, location: Chosen) -> tuple[Packed, Packed]:
        """Return the shared and personal entries of a client's model; those of the average without personal state."""
        if location is None or isinstance(location, int):
            return values[location or 0]
        personal = worker.personal.read(location)
        return worker.resident.layouts.own_model(values[0][0], personal), personal

    @torch.no_grad()
    def _score(
        self,
        resident: Resident,
        x: torch.Tensor,
        y: torch.Tensor,
        counts: NDArray[np.int64],
        keys: list[NDArray[np.int64]] | None,
    ) -> Score:
        """Return the score of each owner after a pass of all samples; append the rank keys if there is a list."""
        module, owners = resident.module.eval(), np.repeat(np.arange(len(counts)), counts)
        scores: list[Score] = []
        kept: list[torch.Tensor] = []
        for part in resident.chunks(x):
            outputs = module(x[part].to(resident.floating))
            if self.loss.is_of_batches(outputs, y[part]):
                kept.append(outputs.double())
            scores.append(self._sums(outputs, y[part], owners[part], len(counts)))
            if keys is not None:
                keys.append(rank_keys(log_odds(self.loss.logits(outputs)).cpu().numpy(), y[part].cpu().numpy()))
        score = reduce(add, scores)
        return replace(score, loss=batch_losses(self.loss, kept, y, counts)) if kept else score

    def _sums(self, outputs: torch.Tensor, y: torch.Tensor, owners: NDArray[np.int64], count: int) -> Score:
        """Return the counts and sums of each of `count` owners' predictions."""
        exact = outputs.double()
        losses = self.loss.sums(exact, y)
        logits = outputs if y.is_floating_point() else self.loss.logits(outputs)
        correct, labels, predicted = (
            _labels_of(y, owners, count) if y.is_floating_point() else _counts(logits, y, owners, count)
        )
        sums: dict[str, NDArray[np.float64]] = {}
        for each in self.metrics:
            if each.sums:
                numbers = _numbers(each, logits.double() if each.of_classes else exact, y)
                sums[each.name] = np.stack([np.bincount(owners, column, count) for column in numbers.T], -1)
        loss = np.bincount(owners, losses.cpu().numpy(), count).astype(np.float64)
        return Score(correct, labels, predicted, loss, sums=sums)


@dataclass(frozen=True, kw_only=True)
class Finetuned(Evaluate):
    """Function of a fleet: fine-tune a copy of each client's model on its training part, then score it.

    The copies leave no trace in the run.

    Args:
        updates: client updates that fine-tune.
    """

    updates: ClientUpdates

    def _loaded(
        self, worker: Worker, block: Block, values: Pairs, x: torch.Tensor, counts: NDArray[np.int64]
    ) -> Iterator[slice]:
        for first in range(0, len(block.clients), worker.trainer.lanes):
            clients = block.clients[first : first + worker.trainer.lanes]
            locations = block.inputs[first : first + len(clients)] or [None] * len(clients)
            models, personal = zip(*(self._model(worker, values, each) for each in locations), strict=True)
            inputs = [NO_INPUT] * len(clients)
            trainer = worker.trainer
            trained = self.updates.train(worker, trainer, clients, inputs, models, personal)
            tuned = [(trainer.shared(lane).copy(), trainer.personal(lane).copy()) for lane in trained.lanes]
            for owner, (model, own) in enumerate(tuned, first):
                worker.resident.load(model, own)
                yield slice(owner, owner + 1)


@dataclass(frozen=True)
class PooledRanks(Function):
    """Function of a fleet: metrics of `RANKED` over all samples whose `rank_keys` a block takes, by name.

    A worker holds the keys, 8 bytes for each sample and class, and ranks one class after the other.

    Args:
        names: names of the metrics.
    """

    names: tuple[str, ...]

    def join(self, left: Mapping[str, Values], right: Mapping[str, Values]) -> Mapping[str, Values]:
        return joined_ranks([left, right])

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        samples = np.array([sum(keys.shape[1] for keys in values)])
        classes = (np.concatenate([keys[c : c + 1] for keys in values], axis=1) for c in range(len(values[0])))
        each = [{name: ranked(name, keys, samples) for name in self.names} for keys in classes]
        return Output(joined_ranks(each, axis=1))


def joined_ranks(each: Sequence[Mapping[str, Values]], axis: int = 0) -> dict[str, Values]:
    """Return the ranks of some models, or of some classes, as one array a metric."""
    return {name: Values.joined([ranks[name] for ranks in each], axis) for name in each[0]}


def _numbers(metric: Metric, outputs: torch.Tensor, y: torch.Tensor) -> NDArray[np.float64]:
    """Return a metric's numbers of each sample, and a 1 to count it, [n, k + 1]."""
    numbers = metric.sums(outputs, y.double() if y.is_floating_point() else y) if metric.sums else outputs.new_empty(0)
    is_real = isinstance(numbers, torch.Tensor) and not numbers.is_complex()
    if not is_real or numbers.dim() not in (1, 2) or len(numbers) != len(y):
        kind = numbers.dtype if isinstance(numbers, torch.Tensor) else type(numbers).__name__
        given = tuple(numbers.shape) if is_real else f"a {kind}"
        is_one = isinstance(numbers, int | float) or given == ()
        says, remedy = ("one for all", "leave out its mean or sum") if is_one else (given, "correct it")
        raise InputError(
            f"metric {metric.name!r} of evaluate.metrics: must give a number for each of {len(y)} samples, or a row of "
            f"numbers, and gives {says}{place_of(unwrap(metric.sums)) if metric.sums else ''}; {remedy}"
        )
    values = numbers.double().reshape(len(y), -1).cpu().numpy()
    return np.concatenate([values, np.ones((len(y), 1))], 1)


NOTHING = np.zeros(0, np.int64)
"""Counts of no class."""


def check_metrics(metrics: Sequence[Metric], outputs: torch.Tensor, y: torch.Tensor) -> None:
    """Raise InputError if a user's own metric gives no number for each sample, its `value` none, or keeps something.

    An error that it raises on these outputs and labels, which are made up, decides nothing: the run will tell. Raise
    InputError too if the metric takes float32 outputs, but not the float64 outputs of an evaluation.
    """
    for metric in metrics:
        if metric.sums is not None and METRICS.get(metric.name) is not metric:
            own = Returned(f"metric {metric.name!r} of evaluate.metrics", unwrap(metric.sums))
            try:
                own.tried(
                    partial(_tried, metric, outputs.double(), y),
                    "compute it anew for each call, or make it in `__init__` if it never changes",
                )
            except (InputError, AlgorithmInputError):
                raise
            except Exception as error:
                # `value` may be wrong, too, and a metric that draws may fail by chance.
                if _takes(metric, outputs, y) and not _takes(metric, outputs.double(), y):
                    raise InputError(
                        f"metric {metric.name!r} of evaluate.metrics: must take outputs of float64, which an "
                        f"evaluation gives it, and raised {type(error).__name__}: {str(error).partition(chr(10))[0]}"
                        f"{place_of(unwrap(metric.sums))}; convert its other tensors to the type of the outputs, as "
                        "W.to(outputs)"
                    ) from error


def _takes(metric: Metric, outputs: torch.Tensor, y: torch.Tensor) -> bool:
    try:
        _numbers(metric, outputs, y)
    except Exception:
        return False
    return True


def _tried(metric: Metric, outputs: torch.Tensor, y: torch.Tensor) -> None:
    sums = _numbers(metric, outputs, y).sum(0)
    metric.value(Score(NOTHING, NOTHING, NOTHING, np.zeros(()), sums={metric.name: sums}))


def _labels_of(y: torch.Tensor, owners: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], ...]:
    """Return counts for labels that are numbers: one class, [count, 1]."""
    labels = np.bincount(owners, minlength=count).reshape(count, 1)
    return np.zeros_like(labels), labels, np.zeros_like(labels)


def _counts(
    logits: torch.Tensor, y: torch.Tensor, owners: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], ...]:
    """Return the counts of correct, true and predicted classes of each owner, [count, classes]."""
    classes = logits.shape[1]
    predicted, of = logits.argmax(1), torch.from_numpy(owners).to(y.device)
    if y.dim() > 1:
        there = known(y)
        of = of.view(-1, *(1 for _ in y.shape[1:])).expand_as(y)[there]
        predicted, y = predicted[there], y[there].long()

    def by_owner(which: torch.Tensor, owner: torch.Tensor) -> NDArray[np.int64]:
        cells = torch.bincount(owner * classes + which, minlength=count * classes)
        return cells.view(count, classes).cpu().numpy()

    hit = y == predicted
    return by_owner(y[hit], of[hit]), by_owner(y, of), by_owner(predicted, of)
