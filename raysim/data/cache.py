"""Where raysim keeps what it downloads and decodes: where the partitioner keeps what it fetches."""

from partitioning.common.caching import cache

__all__ = ["cache"]
