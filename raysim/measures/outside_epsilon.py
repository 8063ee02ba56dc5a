"""Output of a private run that epsilon does not cover, because it describes training clients without noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

from raysim.common.errors import InputError
from raysim.measures.columns import MEASURES, columns_of
from raysim.measures.selection import Selection


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
    Uncovered("`updates.parquet`", files=("*/updates.parquet",)),
    Uncovered("personal state", files=("*/personal.safetensors", "*/personal/*")),
    Uncovered("checkpoints and journals", files=("*/checkpoint/*", "*.journal")),
    Uncovered("rows of training clients in a test set"),
    Uncovered("last digits of evaluations on held-out clients, which depend on the order of their rows"),
    Uncovered("the shape of the model, set by the classes, columns and vocabulary of all data"),
    Uncovered("the data of clients", files=("population/*", "devices.parquet")),
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


def check_preparation(epochs: float | None, standardise: str, test: str | float, scheme: str | None) -> None:
    """Check that neither the length of a private run nor its data tell of clients without noise.

    Args:
        epochs: budget of epochs; None for a number of rounds.
        standardise: value of `data.standardise`.
        test: value of `data.test`: a share of the rows, or a table.
        scheme: partitioning scheme; None for a population made before.

    Raises:
        InputError: one of them depends on the training clients' samples.
    """
    if epochs is not None:
        raise InputError(
            f"epochs = {epochs:g} with [privacy]: must be rounds, because the clients' numbers of samples would set "
            "the number of rounds without noise; set rounds"
        )
    if standardise != "none":
        raise InputError(
            f'data.standardise = "{standardise}" with [privacy]: must be "none", because the means over all clients, '
            'which test sets take too, have no noise; set data.standardise = "none"'
        )
    if scheme == "natural" and not isinstance(test, str) and test:
        raise InputError(
            f'data.test = {test:g} with [privacy] and partition.scheme = "natural": must be a table without rows of '
            "training clients, because evaluations on their rows have no noise; set partition.test_clients = 0.2"
        )


def check_privacy(delta: float, clients: int, selection: Selection, columns: Sequence[str], own_models: bool) -> None:
    """Check that a private run's delta says something, and that no rule publishes a choice without noise.

    Args:
        delta: delta of the guarantee.
        clients: number of training clients.
        selection: rules that act on evaluations.
        columns: columns of the evaluations.
        own_models: whether training clients have models of their own.

    Raises:
        InputError: delta is at least 1 / clients, or a rule acts on a column that epsilon does not cover.
    """
    if delta * clients >= 1:
        raise InputError(
            f"privacy.delta = {delta:g} with {clients} training clients: must be below 1 / {clients} = "
            f"{1 / clients:.2g}, because publishing one client's data whole has such a delta; set privacy.delta = "
            f"{0.1 / clients:.1g}"
        )
    rule = 'evaluate.select = "best"' if selection.best else f"evaluate.patience = {selection.patience}"
    if (selection.best or selection.patience is not None) and not covers(selection.by, own_models):
        others = [column for column in columns if covers(column, own_models)]
        remedy = f"set evaluate.select_by = {others[0]!r}" if others else "set partition.validation_clients = 0.2"
        raise InputError(
            f"{rule} by {selection.by!r} with [privacy]: must be by an evaluation without training clients, because "
            f"the chosen round would tell of them without noise; {remedy}"
        )
