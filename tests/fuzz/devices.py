"""Hostile tables of devices by seed: `python -m tests.fuzz devices FIRST STOP` stores each, and asks its devices.

It holds where a table is refused in one line, or gives finite times.
"""

import random
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from partitioning.common.text import printable
from raysim.common.errors import InputError
from raysim.devices.stored import open_stored, store, stored
from tests.fuzz.text.hostile import LONGEST, text, wrong

NUMBERS = (None, 0.0, -0.0, -1.0, 1e308, 5e-324, 1e15, 1e16, 1e-6, float("nan"), float("inf"), float("-inf"))
INTERVALS = ([], None, [None], [1.0], [5.0, 1.0], [1e308], [-1.0], [float("nan")], [float("inf")], [1.0] * 1000)
KINDS = (pa.int8(), pa.int64(), pa.uint64(), pa.float16(), pa.string(), pa.decimal128(30, 2), pa.bool_(), pa.binary())


def numbers(rng: random.Random, rows: int) -> pa.Array:
    """Return sound numbers, of which up to two are odd."""
    values: list[float | None] = [rng.choice((1.0, 2.5, 1e6)) for _ in range(rows)]
    for _ in range(rng.randint(0, 2) if rows else 0):
        values[rng.randrange(rows)] = rng.choice(NUMBERS)
    return pa.array(values, pa.float64())


def table(rng: random.Random) -> tuple[pa.Table, int]:
    """Return a table of devices, and the number of its rows."""
    rows = rng.choice((0, 1, 2, 7, 7, 7, 50))
    names = [name for name in ("share", "down", "up", "latency", "period") if rng.random() < 0.3]
    columns = {name: numbers(rng, rows) for name in ("compute", *names)}
    if rng.random() < 0.3:
        columns["client"] = pa.array(range(rows), pa.int64()) if rng.random() < 0.6 else numbers(rng, rows)
    if rng.random() < 0.3:
        columns["device"] = pa.array([text(rng, without="\ud800") for _ in range(rows)], pa.string())
    if rng.random() < 0.4:
        times = sorted(map(float, rng.sample(range(200), 6)))
        odd = rng.random() < 0.5
        for name, given in (("start", times[::2]), ("end", times[1::2])):
            drawn = [rng.choice(INTERVALS) if odd else given for _ in range(rows)]
            columns[name] = pa.array(drawn, pa.list_(pa.float64()))
    if rng.random() < 0.1:
        columns[rng.choice(("", "Compute", "x\n", "client "))] = columns["compute"]
    if rng.random() < 0.2:
        name = rng.choice(list(columns))
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            columns[name] = columns[name].cast(rng.choice(KINDS))
    if rng.random() < 0.05:
        del columns["compute"]
    return pa.table(columns), rows


def check(seed: int) -> tuple[str, str]:
    """Store a drawn table and ask its devices; return the end, and what is wrong."""
    rng = random.Random(seed)
    drawn, rows = table(rng)
    clients = rng.choice((1, max(rows, 1), max(rows, 1), 30))
    with TemporaryDirectory() as home:
        file, folder = Path(home) / "devices.parquet", Path(home) / "stored"
        folder.mkdir()
        pq.write_table(drawn, file)
        if rng.random() < 0.15:
            content = bytearray(file.read_bytes())
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            file.write_bytes(content)
        try:
            store(file, folder, clients)
            place = stored(folder)
            if place is None:
                return "read", "nothing is stored"
            devices, _ = open_stored(place, clients, seed)
            available = [devices.available(np.arange(clients), now).any() for now in (0.0, 3.5, 1e6)]
            seconds = [devices.seconds(0, client, 20, 8, 6) for client in range(min(clients, 3))]
        except InputError as error:
            line = printable(error)
            return "refused", wrong(line) or ("" if len(line) < LONGEST else f"a line of {len(line)}")
        except Exception as error:  # whatever it is, it is wrong
            return "failed", f"{type(error).__name__}: {error!s:.300}"
        finite = len(available) == 3 and bool(np.isfinite(seconds).all()) and min(seconds) >= 0
        return "read", "" if finite else f"seconds = {seconds}"


def main() -> None:
    first, stop = map(int, sys.argv[1:3])
    ends = Counter[str]()
    failed = 0
    for seed in range(first, stop):
        end, found = check(seed)
        ends[end] += 1
        if found:
            failed += 1
            click.echo(f"seed {seed}: {found!a:.700}")
    click.echo(f"{stop - first} drawn, {dict(ends)}, {failed} wrong")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
