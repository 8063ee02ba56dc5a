"""Tables that the command line reads."""

from pathlib import Path

import pyarrow as pa

from partitioning.errors import InputError

_PARQUET = (".parquet", ".pq")
_ARROW = (".arrow", ".feather", ".ipc")


def read_table(path: Path) -> pa.Table:
    """Read a Parquet file or an Arrow file or stream; raises InputError where it is none or is damaged."""
    kind = path.suffix.lower()
    if kind not in _PARQUET + _ARROW:
        raise InputError(f"{path} is of an unknown kind: give one of {', '.join(_PARQUET + _ARROW)}")
    if not path.is_file():
        raise InputError(f"{path} is not a file: check the path")
    try:
        return _read_parquet(path) if kind in _PARQUET else _read_arrow(path)
    except (pa.ArrowException, OSError) as error:
        form = "Parquet" if kind in _PARQUET else "Arrow"
        raise InputError(f"{path} cannot be read as {form} ({error}): export it again") from error


def _read_parquet(path: Path) -> pa.Table:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        table: pa.Table = file.read()
        return table


def _read_arrow(path: Path) -> pa.Table:
    # Public hubs write streams under the same suffix as files.
    with path.open("rb") as stream:
        is_file = stream.read(6) == b"ARROW1"
    source = pa.memory_map(str(path))
    table = (pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)).read_all()
    table.validate(full=True)
    return table
