"""The clients' samples as tensors, read from memory-mapped shards where blocks run."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import torch

from algorithms.fleet import Part
from partitioning import Population
from raysim.data.tensors import Decoder

Tensors = tuple[torch.Tensor, torch.Tensor]

CACHE_BYTES = 512 * 2**20
"""How much of the clients' data a process keeps as tensors, the least recently used leaving first."""


class Shards:
    """A population's samples: inputs [n, *shape] and class indices [n].

    Args:
        path: the population's folder.
        device: where the tensors go.
    """

    def __init__(self, path: Path, device: str = "cpu") -> None:
        self._population = Population.open(path)
        manifest = self._population.manifest
        self._decode = Decoder(self._population.schema, manifest.label, manifest.classes)
        self._device = device
        self._cache: OrderedDict[int, Tensors] = OrderedDict()
        self._cached = 0

    def samples(self, client: int, part: Part) -> Tensors:
        """A part of a client's samples; the last `n_test` rows are its own test part."""
        x, y = self._client(client)
        cut = len(y) - int(self._population.test_sizes[client])
        rows = {"train": slice(None, cut), "test": slice(cut, None), "all": slice(None)}[part]
        return x[rows], y[rows]

    def test_slice(self, number: int) -> Tensors:
        """A fixed slice of the global test set."""
        return self._placed(self._decode(self._population.test_batch(number)))

    def _client(self, client: int) -> Tensors:
        if client in self._cache:
            self._cache.move_to_end(client)
            return self._cache[client]
        self._cache[client] = tensors = self._placed(self._decode(self._population.batch(client)))
        self._cached += _nbytes(tensors)
        while self._cached > CACHE_BYTES and len(self._cache) > 1:
            self._cached -= _nbytes(self._cache.popitem(last=False)[1])
        return tensors

    def _placed(self, tensors: Tensors) -> Tensors:
        x, y = tensors
        return x.to(self._device), y.to(self._device)


def _nbytes(tensors: Tensors) -> int:
    return sum(tensor.nbytes for tensor in tensors)
