"""The measures that `[evaluate] measures` may name, and the columns of `metrics.parquet` that each of them fills."""

from collections.abc import Iterable, Mapping

MEASURES: Mapping[str, tuple[str, ...]] = {
    "dc": ("dc",),
    "concordance": ("twin_test_loss", "concordance"),
    "dl": ("dl", "dl_updates"),
    "bn": ("bn_change", "bn_deviation", "bn_variance"),
}

TWINS = ("dc", "concordance")
"""Those that compare with a centralised twin; the others are the engine's, taken of a round's visits."""


def columns_of(measures: Iterable[str]) -> list[str]:
    """The columns of some measures, in the table's order."""
    wanted = set(measures)
    return [column for name, columns in MEASURES.items() if name in wanted for column in columns]
