"""Number of clusters of a round, which the phases of an algorithm share."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Clustered:
    """Part of a round of several global models.

    Args:
        clusters: number of models, k.
    """

    clusters: int
