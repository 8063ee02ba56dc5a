"""Opening a path as a source."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from partitioning.common.errors import InputError
from partitioning.common.paths import check_path, regular
from partitioning.sources.arrays import open_arrays
from partitioning.sources.arrow import open_arrow
from partitioning.sources.delimited import open_delimited
from partitioning.sources.images import open_images
from partitioning.sources.parquet import open_parquet
from partitioning.sources.source import Source

_OPENERS: Mapping[str, Callable[[Path], Source]] = MappingProxyType(
    {
        ".parquet": open_parquet,
        ".pq": open_parquet,
        ".arrow": open_arrow,
        ".feather": open_arrow,
        ".ipc": open_arrow,
        ".csv": open_delimited,
        ".tsv": open_delimited,
        ".npz": open_arrays,
    }
)


def open_source(path: str | Path) -> Source:
    """Open a file by its suffix, or a folder of images by class.

    Raises:
        InputError: the text is no path, or the path does not exist, is of an unknown kind, or is damaged.
    """
    path = check_path("source", path)
    if path.is_dir():
        return open_images(path)
    opener = _OPENERS.get(path.suffix.lower())
    if opener is None:
        raise InputError(
            f"{path} is of an unknown kind: give a folder of images by class, or one of {', '.join(_OPENERS)}"
        )
    try:
        source = opener(regular(path))
        _check_names(source, path)
        return source
    except OSError as error:  # the readers turn their own into InputError
        raise InputError(f"{path} cannot be opened ({error.strerror}): check the path") from error


def _check_names(source: Source, path: Path) -> None:
    """Raise InputError if the name of a column is not UTF-8; Arrow decodes names only when they are asked for."""
    for number in range(len(source.schema)):
        try:
            str(source.schema.field(number).name)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}: the name of column {number} has byte {error.object[error.start]:#x}: must be text in UTF-8; "
                "read the table in its own encoding, often Latin-1, and save it in UTF-8"
            ) from None
