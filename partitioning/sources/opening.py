"""Which kind of source a path is."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from partitioning.common.errors import InputError
from partitioning.sources.arrays import ArraysSource
from partitioning.sources.arrow import ArrowSource
from partitioning.sources.delimited import DelimitedSource
from partitioning.sources.images import ImageFolder
from partitioning.sources.parquet import ParquetSource
from partitioning.sources.source import Source

_KINDS: Mapping[str, Callable[[Path], Source]] = MappingProxyType(
    {
        ".parquet": ParquetSource,
        ".pq": ParquetSource,
        ".arrow": ArrowSource,
        ".feather": ArrowSource,
        ".ipc": ArrowSource,
        ".csv": DelimitedSource,
        ".tsv": DelimitedSource,
        ".npz": ArraysSource,
    }
)


def open_source(path: str | Path) -> Source:
    """Open a file by its suffix, or a folder of images by class; raises InputError where it is none or is damaged."""
    path = Path(path)
    if path.is_dir():
        return ImageFolder(path)
    kind = _KINDS.get(path.suffix.lower())
    if kind is None:
        raise InputError(
            f"{path} is of an unknown kind: give a folder of images by class, or one of {', '.join(_KINDS)}"
        )
    if not path.is_file():
        raise InputError(f"{path} is not a file: check the path")
    return kind(path)
