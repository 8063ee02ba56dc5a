"""Reader of FedScale's traces of phones: pickles of plain dictionaries, from which no code ever runs."""

import pickle  # noqa: TID251 - PlainUnpickler reads plain values alone
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from partitioning.common.paths import open_regular
from raysim.common.errors import InputError
from raysim.devices.make import in_bounds, written_table
from raysim.devices.source import BATCH, LEAST, MOST, SCHEMA

PASSES, KBIT = 3, 1024 / 8
"""FedScale counts a training sample as three inferences; its sizes are in kilobits of 1024 bits."""

SHORT = reprlib.Repr()
SHORT.maxlevel = 2  # a few bytes may be lists of lists of any length


class PlainUnpickler(pickle.Unpickler):
    """Unpickler of numbers, texts, lists and dictionaries alone."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Refuse every class and function."""
        raise pickle.UnpicklingError(f"it names {module_name}.{global_name}, which could run code")


def read_fedscale(capacity: Path, behaviour: Path | None, out: Path) -> None:
    """Write FedScale's traces as a table of devices; clients draw its rows.

    `client_device_capacity` has for each client `computation`, the milliseconds of an inference, and `communication`,
    kilobits a second. `client_behave_trace` has for each client the seconds at which it becomes `active` and
    `inactive`, and the `finish_time` after which they repeat. FedScale's `client_metadata.py` uses them as here:

        compute = 1000 / (3 computation),   down = up = 128 communication,   period = finish_time

    Row k gets the trace k modulo their number, as in FedScale's client manager. Times after the `finish_time` are cut,
    and intervals that overlap are joined.

    Args:
        capacity: file `client_device_capacity`.
        behaviour: file `client_behave_trace`; None if all devices are always available.
        out: new Parquet file.

    Raises:
        InputError: a file is no such pickle, or a number makes no sense.
    """
    clients = _entries(capacity, "computation", "communication")
    numbers = np.array([_positive(capacity, client, entry) for client, entry in clients.items()])
    compute, network = 1000 / (PASSES * numbers[:, 0]), KBIT * numbers[:, 1]
    columns = {"compute": pa.array(compute), "down": pa.array(network), "up": pa.array(network)}
    traces = None if behaviour is None else _traces(behaviour)
    names = [*columns, *(traces.schema.names if traces else [])]
    schema = pa.schema([field for field in SCHEMA if field.name in names])
    with written_table(out, schema) as writer:
        for begin in range(0, len(compute), BATCH):
            part = {name: column.slice(begin, BATCH) for name, column in columns.items()}
            if traces is not None:
                rows = np.arange(begin, begin + len(part["up"])) % traces.num_rows
                part |= {name: traces.column(name).take(pa.array(rows)) for name in traces.schema.names}
            writer.write_batch(pa.record_batch([part[field.name] for field in schema], schema=schema))


def _entries(path: Path, *keys: str) -> Mapping[Any, Mapping[str, Any]]:
    """Return the dictionaries of all clients; each has these keys."""
    remedy = f"must be FedScale's pickle of a dictionary by client with the keys {', '.join(keys)}; check the path"
    try:
        with open_regular(path) as file:
            entries = PlainUnpickler(file).load()
    except Exception as error:  # A damaged pickle may raise anything.
        raise InputError(f"{path} ({type(error).__name__}: {error}): {remedy}") from None
    if not (isinstance(entries, dict) and entries):
        raise InputError(f"{path}: {remedy}")
    for client, entry in entries.items():
        if not (isinstance(entry, dict) and set(keys) <= set(entry)):
            raise InputError(f"{path}, client {_shown(client)}: {remedy}")
    return entries


def _shown(value: Any) -> str:
    """Return a value for a message, cut if it is long; Python refuses to write a number of thousands of digits."""
    try:
        return SHORT.repr(value)
    except ValueError:
        return type(value).__name__


def _positive(path: Path, client: Any, entry: Mapping[str, Any]) -> tuple[float, ...]:
    values = tuple(entry[key] for key in ("computation", "communication"))
    if not all(map(in_bounds, values)):
        raise InputError(
            f"{path}, client {_shown(client)}: computation, communication = {_shown(values)}: must be numbers from "
            f"{LEAST:g} to {MOST:g}; correct it"
        )
    return values


def _traces(path: Path) -> pa.RecordBatch:
    first, starts, ends, periods = [0], [], [], []
    for client, entry in _entries(path, "active", "inactive", "finish_time").items():
        try:
            period, (begin, end) = float(entry["finish_time"]), _joined(entry)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"{path}, client {_shown(client)}: active, inactive and finish_time ({error}): must be two lists of "
                f"equally many seconds >= 0, and a number > 0, none above {MOST:g}; correct it"
            ) from None
        starts.append(begin)
        ends.append(end)
        periods.append(period)
        first.append(first[-1] + len(begin))
    lists = (pa.ListArray.from_arrays(pa.array(first, pa.int32()), np.concatenate(each)) for each in (starts, ends))
    return pa.record_batch([pa.array(periods), *lists], names=["period", "start", "end"])


def _joined(entry: Mapping[str, Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a trace's intervals in order, cut at the period; those that overlap or touch are one."""
    lists = [entry["active"], entry["inactive"]]
    # A few bytes may be lists of lists that NumPy would make an array of terabytes.
    if not all(isinstance(time, int | float) for each in lists for time in each):
        raise TypeError("not numbers")
    times, period = np.array(lists, float), float(entry["finish_time"])
    if not (in_bounds(period) and ((times >= 0) & (times <= MOST)).all()):
        raise ValueError("out of range")
    starts, ends = np.minimum(times, period)
    order = np.argsort(starts[starts < ends], kind="stable")
    starts, ends = starts[starts < ends][order], np.maximum.accumulate(ends[starts < ends][order])
    begins = np.r_[True, starts[1:] > ends[:-1]][: len(starts)]
    return starts[begins], ends[np.r_[begins[1:], True][: len(ends)]]
