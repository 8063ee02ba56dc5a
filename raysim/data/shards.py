"""Clients' samples as tensors, read from memory-mapped shards, and the sites of the clients."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from algorithms.core.clients import SamplePart
from partitioning import Population
from raysim.common.errors import InputError
from raysim.data.standardise import Standardisation
from raysim.data.tensors import decoder_of, naming_samples

Tensors = tuple[torch.Tensor, torch.Tensor]

Scored = tuple[torch.Tensor, torch.Tensor, NDArray[np.int64]]
"""Inputs and labels of several owners, end to end, and the number of each owner's samples."""

CACHE_BYTES = 512 * 2**20
"""Main memory in which a process keeps clients' data as tensors."""

SCORED_BYTES = 256 * 2**20
"""Memory in which a process keeps samples to evaluate on; a device gives a quarter of its part at most."""

DEVICE_SHARE = 0.2
"""Share of its part of a GPU's free memory in which a process keeps data; the rest is for models and updates."""


class TensorCache:
    """Clients' tensors up to a limit; the least recently used leave first.

    Args:
        most: bytes of all tensors together; the latest tensors stay even if they exceed it.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._tensors: OrderedDict[int, Tensors] = OrderedDict()
        self._held = 0

    def get(self, client: int, make: Callable[[int], Tensors]) -> Tensors:
        """Return a client's tensors; make them if they are not in the cache."""
        if client in self._tensors:
            self._tensors.move_to_end(client)
            return self._tensors[client]
        self._tensors[client] = tensors = make(client)
        self._held += _nbytes(tensors)
        while self._held > self.most and len(self._tensors) > 1:
            self._held -= _nbytes(self._tensors.popitem(last=False)[1])
        return tensors


class Shards:
    """A population's samples: inputs [n, *shape] and class indices, decoded by `BatchDecoder`.

    Data stay on the device while there is room. If all clients do not fit a GPU, those that leave it stay in pinned
    memory, and are copied back while the device computes.

    Args:
        path: folder of the population.
        device: device of the tensors.
        share: this process's part of the device, in (0, 1].
        standardise: standardisation of the inputs; None for none.
        sites: sites whose shards are on this machine; None for all.
        limits: least and largest label that is a number; None for any.
    """

    def __init__(
        self,
        path: Path,
        device: str = "cpu",
        share: float = 1.0,
        standardise: Standardisation | None = None,
        sites: Collection[str] | None = None,
        limits: tuple[float, float] | None = None,
    ) -> None:
        self._population = Population.open(path, sites=sites)
        self._test_sizes = self._population.test_sizes
        self._decode = decoder_of(self._population, limits)
        self._standardise = standardise
        self._device = device
        room = CACHE_BYTES if device == "cpu" else int(DEVICE_SHARE * share * torch.cuda.mem_get_info(device)[0])
        self._on_device = TensorCache(room)
        self._scored: dict[tuple[tuple[int, ...], SamplePart | None, str | None], Scored] = {}
        self._scored_room = min(SCORED_BYTES, room // 4) if device != "cpu" else SCORED_BYTES
        self._united: tuple[tuple[tuple[int, ...], SamplePart], Tensors] | None = None
        whole = int(self._population.sizes.sum()) * self._decode.nbytes
        # Without a GPU, or if all data fit it, nobody would read a second copy.
        self._pinned = TensorCache(CACHE_BYTES) if device != "cpu" and whole > room else None

    def samples(self, client: int, part: SamplePart) -> Tensors:
        """Return a part of a client's samples; the last `n_test` rows are its own test part."""
        x, y = self._on_device.get(client, self._move)
        if part == "all" or (part == "train" and not self._test_sizes[client]):
            return x, y
        rows = self._rows(client, y.shape[0], part)
        return x[rows], y[rows]

    def union(self, clients: Sequence[int], part: SamplePart) -> Tensors:
        """Return a part of several clients' samples end to end; the latest union stays in memory."""
        if len(clients) == 1:
            return self.samples(clients[0], part)
        key = tuple(clients), part
        if self._united is not None and self._united[0] == key:
            return self._united[1]
        self._united = None  # free it first: memory may not hold two
        x, y, _ = _scored([self.samples(one, part) for one in clients])
        self._united = key, (x, y)
        return x, y

    def test_slice(self, number: int, domain: str | None = None) -> Tensors:
        """Return a fixed slice of the global test set, or of a domain's."""
        with naming_samples(self._population, f"test slice {number}"):
            x, y = self._decode(self._population.test_batch(number, domain))
        return self._scaled(x), y.to(self._device)

    def scored(self, owners: Sequence[int], part: SamplePart | None, domain: str | None = None) -> Scored:
        """Return the samples that a block of an evaluation scores; see `ClientData`.

        An evaluation reads all blocks in turn, again and again. The first ones stay in memory while there is room.
        """
        key = tuple(owners), part, domain
        if key in self._scored:
            return self._scored[key]
        found = self._slices(owners, domain) if part is None else self._neighbours(owners, part)
        if (nbytes := _nbytes(found[:2])) <= self._scored_room:
            self._scored_room -= nbytes
            self._scored[key] = found
        return found

    def _slices(self, numbers: Sequence[int], domain: str | None) -> Scored:
        return _scored([self.test_slice(number, domain) for number in numbers])

    def _neighbours(self, clients: Sequence[int], part: SamplePart) -> Scored:
        """Read a part of several clients' samples, and decode it at once."""
        if self._standardise is not None and self._standardise.per_client:
            return _scored([self.samples(client, part) for client in clients])
        try:
            whole = [(client, self._population.batch(client)) for client in clients]
            batches = [batch[self._rows(client, batch.num_rows, part)] for client, batch in whole]
            x, y = self._decode(pa.concat_batches(batches))
        except InputError:
            for client in clients:
                self._read(client)  # raises the error with the client's name
            raise
        return self._scaled(x), y.to(self._device), np.array([batch.num_rows for batch in batches])

    def _scaled(self, x: torch.Tensor) -> torch.Tensor:
        """Return inputs of no single client, standardised by the scale of all, on the device."""
        return (x if self._standardise is None else self._standardise.scale(x)).to(self._device)

    def _move(self, client: int) -> Tensors:
        if self._pinned is None:
            x, y = self._read(client)
            return x.to(self._device), y.to(self._device)
        x, y = self._pinned.get(client, self._pin)
        # The copy does not block: the device makes it before its next work, while the processor reads the next client.
        # If pinned memory leaves the cache meanwhile, torch does not reuse it before the copy is made.
        return x.to(self._device, non_blocking=True), y.to(self._device, non_blocking=True)

    def _pin(self, client: int) -> Tensors:
        x, y = self._read(client)
        return x.pin_memory(), y.pin_memory()

    def _read(self, client: int) -> Tensors:
        with naming_samples(self._population, f"client {client}"):
            x, y = self._decode(self._population.batch(client))
        return x if self._standardise is None else self._standardise.client(x, self._train_rows(client, len(y))), y

    def _rows(self, client: int, samples: int, part: SamplePart) -> slice:
        """Return the rows of a part of a client's samples."""
        cut = self._train_rows(client, samples)
        return {"train": slice(0, cut), "test": slice(cut, samples), "all": slice(0, samples)}[part]

    def _train_rows(self, client: int, samples: int) -> int:
        """Return the number of a client's samples before its own test part."""
        return samples - int(self._test_sizes[client])


@dataclass(frozen=True)
class Sites:
    """The sites of a population's clients.

    Args:
        names: names of the sites, in alphabetical order.
        numbers: place of each client's site in `names`, int64 [K]; `len(names)` for a client without a site.
    """

    names: tuple[str, ...]
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, population: Population) -> Sites | None:
        """Return the sites of all clients; None if no client has one."""
        if population.sites is None:
            return None
        column = population.sites.cast(pa.string())
        names = sorted(column.drop_null().unique().to_pylist())
        numbers = pc.fill_null(pc.index_in(column, pa.array(names, pa.string())), len(names))
        return cls(tuple(names), np.array(numbers, np.int64))


def _scored(each: Sequence[Tensors]) -> Scored:
    x, y = (torch.cat(tensors) for tensors in zip(*each, strict=True))
    return x, y, np.array([len(own) for _, own in each])


def _nbytes(tensors: Tensors) -> int:
    return sum(tensor.nbytes for tensor in tensors)
