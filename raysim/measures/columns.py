"""Measures of `[evaluate] measures` and their columns in `metrics.parquet`."""

from collections.abc import Iterable, Mapping

MEASURES: Mapping[str, tuple[str, ...]] = {
    "dc": ("dc",),
    "concordance": ("twin_test_loss", "concordance"),
    "dl": ("dl", "dl_updates"),
    "bn": ("bn_change", "bn_deviation", "bn_variance"),
}
"""Columns by measure."""

TWINS = ("dc", "concordance")
"""Measures that compare a run with a centralised twin; options of the engine take the others."""


def columns_of(measures: Iterable[str]) -> list[str]:
    """Return the columns of some measures in the table's order."""
    wanted = set(measures)
    return [column for name, columns in MEASURES.items() if name in wanted for column in columns]
