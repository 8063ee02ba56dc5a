"""What can be partitioned: one small protocol, and a class for each kind of source."""

from partitioning.sources.joined import JoinedSource
from partitioning.sources.opening import open_source
from partitioning.sources.source import Source, TableSource, read_columns

__all__ = ["JoinedSource", "Source", "TableSource", "open_source", "read_columns"]
