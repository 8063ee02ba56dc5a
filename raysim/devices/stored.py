"""Devices of an experiment, and a run's table of them: one mapped record batch of Arrow, with its SHA-256."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from algorithms import Availability, Devices, DeviceTable, Purpose, generator
from partitioning.common.disk import report_full_disk
from partitioning.common.paths import regular
from partitioning.store.files import sha256
from raysim.common.errors import InputError
from raysim.common.names import DEVICES
from raysim.config.experiment import Experiment
from raysim.devices.night import night_devices
from raysim.devices.source import DeviceSource

INTERVALS = "intervals"
"""Column of the intervals in the Arrow file: lists of (start, end)."""


class Spool(ExitStack):
    """Arrays that grow in nameless files, so that memory does not grow with the table; the context closes them.

    Args:
        folder: folder whose disk holds them.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._files: dict[str, Any] = {}
        self._dtypes: dict[str, np.dtype[Any]] = {}

    def append(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Append values to arrays by name."""
        for name, values in arrays.items():
            if name not in self._files:
                self._files[name] = self.enter_context(TemporaryFile(dir=self._folder))  # noqa: SIM115
                self._dtypes[name] = values.dtype
            self._files[name].write(np.ascontiguousarray(values).data)

    def array(self, name: str) -> NDArray[Any]:
        """Return an array, mapped."""
        file = self._files[name]
        file.flush()
        return np.memmap(file, self._dtypes[name], "r") if file.tell() else np.zeros(0, self._dtypes[name])


def store(source: Path, folder: Path, clients: int, expected: str | None = None) -> None:
    """Check a table of devices and write it into the folder of a run; the file's name has its SHA-256.

    Args:
        source: table in Parquet.
        folder: folder of the run.
        clients: number of clients of the population.
        expected: SHA-256 that the table must have; None for any.

    Raises:
        InputError: the table is wrong, or is another one.
        DiskFullError: the disk is full.
    """
    table, digest = DeviceSource(source, clients), sha256(source)
    if expected not in (None, digest):
        raise InputError(
            f"devices.sha256 = {expected!r}: must be that of {source}, {digest}; restore the table, or remove the key "
            "in a new run"
        )
    draft = folder / ".devices.partial.arrow"
    try:
        with report_full_disk(folder / DEVICES), Spool(folder) as spool:
            for rows in table.batches():
                spool.append({**rows.numbers, "counts": rows.counts, "starts": rows.starts, "ends": rows.ends})
            batch = _whole(table, spool, digest)
            with pa.OSFile(str(draft), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
                writer.write_batch(batch)
        draft.replace(folder / DEVICES.replace("*", sha256(draft)))
    finally:
        draft.unlink(missing_ok=True)


def _whole(table: DeviceSource, spool: Spool, digest: str) -> pa.RecordBatch:
    """Return the whole table as one record batch of mapped arrays, with the names of the kinds."""
    names = ["compute", "down", "up", "latency", "kind", *table.columns & {"client", "share"}]
    columns = {name: pa.array(spool.array(name)) for name in names}
    if "start" in table.columns:
        first = pa.array(np.concatenate([[0], np.cumsum(spool.array("counts"))]))
        times = pa.StructArray.from_arrays(
            [pa.array(spool.array(name)) for name in ("starts", "ends")], ["start", "end"]
        )
        columns |= {"period": pa.array(spool.array("period")), INTERVALS: pa.LargeListArray.from_arrays(first, times)}
    return pa.RecordBatch.from_pydict(columns, metadata={"kinds": json.dumps(list(table.kinds)), "source": digest})


def stored(folder: Path) -> Path | None:
    """Return the file of a run's devices; None if there is none."""
    return next(folder.glob(DEVICES), None)


def open_stored(path: Path, clients: int, seed: int) -> tuple[DeviceTable, str]:
    """Return the devices of a run, whose arrays are views of the mapped file, and the SHA-256 of the table's source.

    A row belongs to the client that it names. Without a column `client`, each client draws a row, in proportion to the
    column `share`.

    Args:
        path: file that `store` wrote.
        clients: number of clients of the population.
        seed: seed of the run.

    Raises:
        InputError: the file is damaged.
    """
    if path.name != DEVICES.replace("*", sha256(path)):
        raise InputError(
            f"{path} is damaged (its sha256 is not that in its name): must be as raysim wrote it; restore it, remove "
            "it if devices.table is still there, or start a new run"
        )
    batch = pa.ipc.open_file(pa.memory_map(str(regular(path)))).get_batch(0)
    about, names = batch.schema.metadata, batch.schema.names
    arrays = {name: batch.column(name).to_numpy() for name in names if name != INTERVALS}
    availability = None
    if INTERVALS in names:
        lists = batch.column(INTERVALS)
        starts, ends = (lists.values.field(name).to_numpy() for name in ("start", "end"))
        availability = Availability(lists.offsets.to_numpy(), starts, ends, arrays["period"])
    rows, kinds = _rows(arrays, clients, seed), tuple(json.loads(about[b"kinds"]))
    compute, down, up, latency, numbers = map(arrays.__getitem__, ("compute", "down", "up", "latency", "kind"))
    devices = DeviceTable(rows, compute, down, up, latency, numbers, kinds, availability)
    return devices, about[b"source"].decode()


def open_devices(experiment: Experiment, folder: Path, clients: int) -> tuple[Devices | None, str | None]:
    """Return the devices of an experiment, and the SHA-256 of their table; None for what there is not.

    A new run copies the table into its folder. A run that continues reads only the copy.

    Args:
        experiment: experiment as its file has it.
    """
    table = experiment.devices
    if table is None:
        return None, None
    if table.table is None:
        drawn = table.profile()
        nights = table.availability == "day-night"
        return night_devices(drawn, experiment.seed, clients, table.zones, table.hours) if nights else drawn, None
    if stored(folder) is None and (source := table.source) is not None:
        store(source, folder, clients, table.sha256)
    return open_stored(stored(folder) or folder, clients, experiment.seed)


def _rows(arrays: Mapping[str, NDArray[Any]], clients: int, seed: int) -> NDArray[np.int64]:
    if "client" in arrays:
        return np.argsort(arrays["client"], kind="stable")
    drawn = generator(seed, Purpose.DEVICE_ROW).random(clients)
    sums = np.cumsum(arrays.get("share", np.ones(len(arrays["compute"]))))
    return np.searchsorted(sums / sums[-1], drawn, side="right")
