"""Scoring of a model on blocks of clients or of test-set slices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import torch

from algorithms import Block, Location, Output, Worker
from algorithms.engine.chunks import chunks
from algorithms.engine.clients import SamplePart
from algorithms.engine.statistics import add_statistics, load_statistics, statistics_of
from algorithms.engine.sums import Sum
from algorithms.training.losses import IGNORED, cross_entropies
from raysim.measures.metrics import Score, pooled

BLOCK = 16
"""Clients per block of an evaluation; a slice of a test set is a block of its own."""

Samples = tuple[torch.Tensor, torch.Tensor]
"""Inputs and labels."""


@dataclass(frozen=True)
class Evaluate:
    """Function of a fleet: score the global model on each client or slice of a block.

    Args:
        part: part of each client's samples; None for slices of a test set.
        probabilities: whether to return probabilities, for the AUC.
        domain: domain of the test set; None for the global one.
        own_statistics: whether batch-norm statistics come from the scored data: each client's, or the whole test set's.
    """

    part: SamplePart | None
    probabilities: bool
    domain: str | None = None
    own_statistics: bool = False

    def objects(self, block: Block) -> int:
        return 0

    def join(self, left: list[Score], right: list[Score]) -> list[Score]:
        return left + right

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        model, average = values[0]
        scores: list[Score] = []
        if self.own_statistics:
            for owners in [(client,) for client in block.clients] if self.part else [block.clients]:
                samples = [self._samples(worker, owner) for owner in owners]
                _load_with_statistics(worker, model, average, samples)
                scores += self._score(worker, samples)
            return Output(scores)
        personal: Location | None
        # Neighbours without personal state share one model, and therefore one pass.
        for personal, group in groupby(zip(block.clients, block.inputs, strict=True), key=itemgetter(1)):
            worker.resident.load(model, worker.personal.read(personal) if personal else average)
            scores += self._score(worker, (self._samples(worker, owner) for owner, _ in group))
        return Output(scores)

    def _samples(self, worker: Worker, owner: int) -> Samples:
        return worker.data.samples(owner, self.part) if self.part else worker.data.test_slice(owner, self.domain)

    @torch.no_grad()
    def _score(self, worker: Worker, samples: Iterable[Samples]) -> list[Score]:
        """Return the score of each owner; images with labelled pixels are large, so only one owner's are in memory."""
        module, floating, every = worker.resident.module.eval(), worker.resident.floating, iter(samples)
        first = next(every)
        if first[1].dim() > 1:
            return [_score_pixels(module, x.to(floating), y) for x, y in chain([first], every)]
        return self._score_samples(module, floating, [first, *every])

    def _score_samples(self, module: torch.nn.Module, floating: torch.dtype, samples: Sequence[Samples]) -> list[Score]:
        """Return the score of each owner after a pass of all samples together."""
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


def _score_pixels(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> Score:
    scores = []
    for part in chunks(x):
        logits, labels = module(x[part]), y[part]
        classes, known = logits.shape[1], labels != IGNORED
        cells = labels[known].long() * classes + logits.argmax(1)[known]
        confusion = torch.bincount(cells, minlength=classes * classes).reshape(classes, classes)
        scores.append(Score(confusion.cpu().numpy(), float(cross_entropies(logits.double(), labels).sum())))
    return pooled(scores)


def _load_with_statistics(worker: Worker, model: Any, average: Any, samples: Iterable[Samples]) -> None:
    """Load the model with the batch-norm statistics of these samples."""
    statistics = Sum.zero(statistics_of(worker.resident.layouts.whole))
    worker.resident.load(model, average)
    for x, _ in samples:
        add_statistics(statistics, worker.resident, x)
    worker.resident.load(model, average)
    if (own := statistics.mean()) is not None:
        load_statistics(worker.resident, own)
