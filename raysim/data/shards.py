"""The clients' samples as tensors, read from memory-mapped shards where blocks run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import torch

from algorithms.engine.clients import SamplePart
from partitioning import Population
from raysim.data.standardise import Standardise
from raysim.data.tensors import decoder_of, samples_of

Tensors = tuple[torch.Tensor, torch.Tensor]

CACHE_BYTES = 512 * 2**20
"""How much of the clients' data a process keeps as tensors in main memory."""

DEVICE_SHARE = 0.2
"""How much of a GPU's free memory a process keeps data in, of its own part: the rest is for models and visits."""


class Cache:
    """Clients' tensors, the least recently used leaving first.

    Args:
        most: bytes that they may take together; the latest stays, whatever it takes.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._tensors: OrderedDict[int, Tensors] = OrderedDict()
        self._taken = 0

    def get(self, client: int, make: Callable[[int], Tensors]) -> Tensors:
        """A client's tensors, made where they are not there."""
        if client in self._tensors:
            self._tensors.move_to_end(client)
            return self._tensors[client]
        self._tensors[client] = tensors = make(client)
        self._taken += _nbytes(tensors)
        while self._taken > self.most and len(self._tensors) > 1:
            self._taken -= _nbytes(self._tensors.popitem(last=False)[1])
        return tensors


class Shards:
    """A population's samples: inputs [n, *shape] and class indices, as `Decoder` gives them.

    Data stay on the device as far as there is room. Where a GPU has not enough of it for all clients, those that left
    it stay in pinned memory, to be copied again while the device computes.

    Args:
        path: the population's folder.
        device: where the tensors go.
        share: this process's part of the device, in (0, 1].
        standardise: what is done to the inputs; None where they stay.
        sites: those of which the shards are there; None for all.
    """

    def __init__(
        self,
        path: Path,
        device: str = "cpu",
        share: float = 1.0,
        standardise: Standardise | None = None,
        sites: Collection[str] | None = None,
    ) -> None:
        self._population = Population.open(path, sites=sites)
        self._decode = decoder_of(self._population)
        self._standardise = standardise
        self._device = device
        self._placed = Cache(CACHE_BYTES if device == "cpu" else _room(device, share))
        self._united: tuple[tuple[tuple[int, ...], SamplePart], Tensors] | None = None
        whole = int(self._population.sizes.sum()) * self._decode.nbytes
        # On the CPU a second copy would be of no use, and where everything stays on the device it would not be read.
        self._pinned = Cache(CACHE_BYTES) if device != "cpu" and whole > self._placed.most else None

    def samples(self, client: int, part: SamplePart) -> Tensors:
        """A part of a client's samples; the last `n_test` rows are its own test part."""
        x, y = self._placed.get(client, self._place)
        cut = self._trained(client, len(y))
        rows = {"train": slice(None, cut), "test": slice(cut, None), "all": slice(None)}[part]
        return x[rows], y[rows]

    def union(self, clients: Sequence[int], part: SamplePart) -> Tensors:
        """A part of the samples of several clients, end to end; it stays until another one is asked for."""
        if len(clients) == 1:
            return self.samples(clients[0], part)
        key = tuple(clients), part
        if self._united is not None and self._united[0] == key:
            return self._united[1]
        self._united = None  # before the next one is made, for memory may not hold both
        x, y = (torch.cat(each) for each in zip(*(self.samples(one, part) for one in clients), strict=True))
        self._united = key, (x, y)
        return x, y

    def test_slice(self, number: int, domain: str | None = None) -> Tensors:
        """A fixed slice of the global test set, or of a domain's."""
        with samples_of(self._population, f"test slice {number}"):
            x, y = self._decode(self._population.test_batch(number, domain))
        x = x if self._standardise is None else self._standardise.test(x)
        return x.to(self._device), y.to(self._device)

    def _place(self, client: int) -> Tensors:
        if self._pinned is None:
            x, y = self._read(client)
            return x.to(self._device), y.to(self._device)
        x, y = self._pinned.get(client, self._pin)
        # Nobody waits for the copy: the device makes it before what is asked of it next, while the processor reads the
        # next client. Pinned memory that leaves the cache meanwhile is not given to others before the copy is made.
        return x.to(self._device, non_blocking=True), y.to(self._device, non_blocking=True)

    def _pin(self, client: int) -> Tensors:
        x, y = self._read(client)
        return x.pin_memory(), y.pin_memory()

    def _read(self, client: int) -> Tensors:
        with samples_of(self._population, f"client {client}"):
            x, y = self._decode(self._population.batch(client))
        return x if self._standardise is None else self._standardise.client(x, self._trained(client, len(y))), y

    def _trained(self, client: int, samples: int) -> int:
        """How many of a client's samples come before its own test part."""
        return samples - int(self._population.test_sizes[client])


def _room(device: str, share: float) -> int:
    """Bytes of a GPU that data may take, as it is now."""
    free, _ = torch.cuda.mem_get_info(device)
    return int(DEVICE_SHARE * share * free)


def _nbytes(tensors: Tensors) -> int:
    return sum(tensor.nbytes for tensor in tensors)
