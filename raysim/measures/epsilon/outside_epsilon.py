"""Output of a private run that epsilon does not cover, because it describes training clients without noise."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch

from raysim.measures.columns import MEASURES, columns_of


@dataclass(frozen=True)
class Uncovered:
    """Output that epsilon does not cover.

    Args:
        name: name in texts for users.
        columns: patterns of columns of `metrics.parquet`.
        files: patterns of paths in the run's folder.
    """

    name: str
    columns: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


PERSONAL_MODELS = ("domain_*", "domains_*")
"""Columns that describe training clients only if these have models of their own."""

UNCOVERED = (
    Uncovered(
        "sizes of cohorts and the bytes that follow",
        ("updates", "samples*", "nonfinite", "exchanges", "late", "vanished", "bytes_*", "machine_*"),
    ),
    Uncovered("times", ("seconds*", "simulated_seconds"), ("wall-clock.json",)),
    Uncovered("training losses and measures of client updates", ("train_*", *columns_of(MEASURES))),
    Uncovered("evaluations on training clients or of their own models", ("local_*", *PERSONAL_MODELS)),
    Uncovered("`updates.parquet` and `clients.parquet`", files=("*/updates.parquet", "*/clients.parquet")),
    Uncovered("personal state", files=("*/personal.safetensors", "*/personal/*")),
    Uncovered("checkpoints and journals", files=("*/checkpoint/*", "*.journal")),
    Uncovered("rows of training clients in a test set"),
    Uncovered("last digits of evaluations on held-out clients, which depend on the order of their rows"),
    Uncovered("the shape of the model, set by the classes, columns and vocabulary of all data"),
    Uncovered("the data of clients", files=("population/*", "devices-*.arrow", "columns.json")),
    Uncovered(
        "the log, the report, summaries and loggers, which repeat these",
        files=("run.log", "report.html", "*/summary.json", "watch/*"),
    ),
)
"""Output that epsilon does not cover."""

SENTENCE = (
    "Epsilon covers the sequence of global models. It does not cover: "
    f"{'; '.join(each.name.replace('`', '') for each in UNCOVERED)}."
)
"""Sentence that stands beside every epsilon."""


def covers(column: str, own_models: bool) -> bool:
    """Return whether epsilon covers a column of `metrics.parquet`.

    Args:
        column: name of the column.
        own_models: whether training clients have models of their own.
    """
    outside = [pattern for each in UNCOVERED for pattern in each.columns]
    return not any(fnmatch(column, each) for each in outside if own_models or each not in PERSONAL_MODELS)
