"""Drawn tables of devices: kinds of phones with log-normal speeds and networks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from algorithms import Purpose, generator
from partitioning.common.disk import write_whole
from raysim.common.errors import InputError
from raysim.data.export import check_file
from raysim.devices.night import nights
from raysim.devices.source import BATCH, LEAST, MOST, SCHEMA

COMPUTE_SPREAD, NETWORK_SPREAD, LATENCY, LATENCY_SPREAD = 0.3, 0.7, 0.05, 0.5
"""Standard deviations of the logarithms of speeds, networks and latency, and the median latency in seconds."""

MOST_CLIENTS = 10**8
"""Most clients of a drawn table, which then takes some 10 GB."""


def in_bounds(value: object) -> bool:
    """Return whether a value is a number in the bounds; whole numbers beyond the largest float are not."""
    return isinstance(value, int | float) and LEAST <= value <= MOST


@dataclass(frozen=True)
class DeviceKind:
    """Kind of devices; all its numbers are from 1e-6 to 1e15.

    Args:
        name: name of the kind.
        share: weight of the kind among the devices.
        compute: samples a second of the median device.
        down: bytes a second from the server to the median device.
        up: bytes a second from the median device to the server.
    """

    name: str
    share: float
    compute: float
    down: float
    up: float

    @classmethod
    def of(cls, text: str) -> DeviceKind:
        """Return the kind of a text NAME=SHARE,COMPUTE,DOWN,UP; raise InputError if it is none."""
        name, _, rest = text.partition("=")
        try:
            share, compute, down, up = map(float, rest.split(","))
            if not (name.strip() and all(map(in_bounds, (share, compute, down, up)))):
                raise ValueError
        except ValueError:
            raise InputError(
                f"--kind = {text!r}: must be NAME=SHARE,COMPUTE,DOWN,UP with four numbers from {LEAST:g} to {MOST:g}; "
                "for example, --kind tablet=0.2,300,4e6,1e6"
            ) from None
        return cls(name.strip(), share, compute, down, up)


KINDS = (
    DeviceKind("high-end", 0.2, 400.0, 5e6, 2e6),
    DeviceKind("mid-range", 0.5, 150.0, 2.5e6, 1e6),
    DeviceKind("low-end", 0.3, 40.0, 1e6, 4e5),
)
"""Kinds of phones by default."""


@contextmanager
def written_table(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Yield the writer of a new table, which appears at the end; raise InputError if the path is no place for it."""
    check_file(path)
    try:
        with write_whole(path) as draft, pq.ParquetWriter(draft, schema) as writer:
            yield writer
    except PermissionError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): choose another place") from None


def make(path: Path, clients: int, seed: int = 0, kinds: tuple[DeviceKind, ...] = KINDS, night: bool = True) -> None:
    """Write a table with one row a client.

    Each client draws its kind k by the shares, and its numbers around the medians of the kind:

        compute = compute_k e^(0.3 a),   down = down_k e^(0.7 b),   up = up_k e^(0.7 b),   latency = 0.05 s e^(0.5 c)

    with a, b, c ~ N(0, 1): both directions of a network are good or bad together. Phones of three classes, and speeds
    and networks that are spread over an order of magnitude, are the findings of FLASH (Yang et al., 2021) and FedScale
    (Lai et al., 2022); the medians are round numbers of raysim.

    Args:
        path: new Parquet file.
        clients: number of clients, from 1 to `MOST_CLIENTS`.
        seed: seed of all draws.
        kinds: kinds of devices.
        night: whether clients are available at night alone, see `raysim.devices.night.nights`; otherwise always.

    Raises:
        InputError: `clients` is out of range, or the path is no place for a table.
    """
    if not 1 <= clients <= MOST_CLIENTS:
        raise InputError(f"--clients = {clients}: must be from 1 to {MOST_CLIENTS}; set fewer, or write your own table")
    names = [name for name in SCHEMA.names if name != "share" and (night or name not in ("period", "start", "end"))]
    schema = pa.schema([SCHEMA.field(name) for name in names])
    sums = np.cumsum([kind.share for kind in kinds])
    medians = np.array([(kind.compute, kind.down, kind.up) for kind in kinds]).T
    labels = pa.array([kind.name for kind in kinds])
    with written_table(path, schema) as writer:
        for number, begin in enumerate(range(0, clients, BATCH)):
            random, count = generator(seed, Purpose.DEVICE_TABLE, number), min(BATCH, clients - begin)
            drawn = np.searchsorted(sums / sums[-1], random.random(count), side="right")
            speed, network, wait = random.standard_normal((3, count))
            compute, down, up = medians[:, drawn]
            moving = np.exp(NETWORK_SPREAD * network)
            columns = {
                "client": np.arange(begin, begin + count),
                "device": labels.take(pa.array(drawn)),
                "compute": compute * np.exp(COMPUTE_SPREAD * speed),
                "down": down * moving,
                "up": up * moving,
                "latency": LATENCY * np.exp(LATENCY_SPREAD * wait),
            }
            if night:
                times = nights(random, count)
                offsets = pa.array(times.first.astype(np.int32))
                columns["period"] = times.periods
                columns["start"] = pa.ListArray.from_arrays(offsets, times.starts)
                columns["end"] = pa.ListArray.from_arrays(offsets, times.ends)
            writer.write_batch(pa.record_batch([pa.array(columns[name]) for name in names], schema=schema))
