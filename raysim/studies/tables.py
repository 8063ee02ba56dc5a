"""A study's tables: as values, in Markdown, in LaTeX, and live in a terminal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import rich.table

from raysim.report.tables import ABSENT
from raysim.studies.read import Entry, Findings, Standing, entries_of
from raysim.studies.statistics import Row, averages
from raysim.studies.words import Measured, p_value, percent, point_text

AVERAGE = "mean"
"""The row below the data sets."""

STAR = "*"


@dataclass(frozen=True)
class Cell:
    """A text, whether it is the best of its row, and whether its difference is significant."""

    text: str
    best: bool = False
    star: bool = False


@dataclass(frozen=True)
class Line:
    """One row of a table: what it is of, and its cells."""

    of: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """The headings of what a row is of, those of its cells, and the rows."""

    of: tuple[str, ...]
    headings: tuple[str, ...]
    lines: tuple[Line, ...]


def differences(study: Findings, rows: Sequence[Row]) -> Table:
    """A row a data set, a column an algorithm: the baseline's mean, the others' difference in % of it."""
    measured = Measured.of(study.metric)
    lines = [Line((name,), _line([row for row in rows if row.dataset == name], measured)) for name in study.datasets]
    if len(study.datasets) > 1:
        lines.append(Line((AVERAGE,), _averages(study, rows, measured)))
    return Table(("data set",), tuple(study.algorithms), tuple(lines))


def details(study: Findings, rows: Sequence[Row]) -> Table:
    """A row a data set and algorithm: mean and standard deviation, the test, and what was chosen."""
    measured = Measured.of(study.metric)
    headings = (measured.title, "n", "difference, %", "pairs", "p", "p, Holm", "hyper-parameters")
    best = {name: _best([row for row in rows if row.dataset == name], measured) for name in study.datasets}
    lines = [
        Line(
            (row.dataset, row.algorithm),
            (Cell(measured.spread(row.mean, row.std), row.algorithm in best[row.dataset]), *_tested(row)),
        )
        for row in rows
    ]
    return Table(("data set", "algorithm"), headings, tuple(lines))


def markdown(table: Table) -> str:
    """A table as GitHub's Markdown has it."""
    head = [*table.of, *table.headings]
    rule = ["---"] * len(table.of) + ["---:"] * len(table.headings)
    body = [[*map(piped, line.of), *map(_markdown_cell, line.cells)] for line in table.lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in [list(map(piped, head)), rule, *body]) + "\n"


def standings(standing: Standing) -> rich.table.Table:
    """A study on its way: trials done, and the best point so far; no test metric before the point is chosen."""
    planned, select_by, metric = standing.planned, standing.select_by, standing.metric
    found: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for trial in entries_of(standing.trials):
        found[trial.dataset, trial.algorithm].append(trial)
    by = Measured.of(select_by)
    table = rich.table.Table("data set", "algorithm")
    table.add_column("trials", justify="right")
    table.add_column("best point")
    for column in (select_by, metric):
        table.add_column(column.replace("_", " "), justify="right")
    for of in dict.fromkeys([*planned, *found]):
        point, validated = _leader(found[of], by)
        tested = [value for each in found[of] if each.counts and (value := each.value(metric)) is not None]
        table.add_row(
            *of,
            _progress(found[of], planned.get(of)),
            point_text(point),
            _plain(validated),
            _plain(float(np.mean(tested)) if tested else None),
        )
    return table


def means_of(trials: Iterable[Entry], metric: str) -> dict[str, float]:
    """The mean of a metric by point, over a point's trials; none for a point of which a trial has not ended well."""
    values: dict[str, list[float | None]] = defaultdict(list)
    for trial in trials:
        values[trial.point].append(trial.value(metric))
    return {
        point: float(np.mean(known))
        for point, every in values.items()
        if len(known := [value for value in every if value is not None]) == len(every)
    }


def _leader(trials: Sequence[Entry], by: Measured) -> tuple[str | None, float | None]:
    """The chosen point or, while nothing is chosen, the best so far, and its mean by what the search goes by."""
    chosen = [each for each in trials if each.is_chosen]
    if chosen:
        known = [value for each in chosen if (value := each.value(by.column)) is not None]
        return chosen[0].point, float(np.mean(known)) if known else None
    means = means_of(trials, by.column)
    if not means:
        return None, None
    best = by.metric.best(list(means.values()))
    return next((point, mean) for point, mean in means.items() if mean == best)


def _plain(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.4f}"


def _progress(trials: Sequence[Entry], planned: int | None) -> str:
    ended = Counter(each.status for each in trials)
    lost = "".join(f", {ended[status]} {status}" for status in ("diverged", "failed") if ended[status])
    return f"{len(trials)}/{planned or '?'}{lost}"


def _line(rows: Sequence[Row], measured: Measured) -> tuple[Cell, ...]:
    best = _best(rows, measured)
    return tuple(
        Cell(f"({measured.text(row.mean)})", row.algorithm in best)
        if row.difference is None and row.mean is not None
        else Cell(
            percent(row.difference.relative if row.difference else None),
            row.algorithm in best,
            bool(row.difference and row.difference.significant),
        )
        for row in rows
    )


def _averages(study: Findings, rows: Sequence[Row], measured: Measured) -> tuple[Cell, ...]:
    found = averages(rows)
    ahead = {name: 0.0 if name == study.baseline else value for name, value in found.items()}
    best = measured.metric.best(list(ahead.values())) if len(ahead) > 1 else None
    return tuple(
        Cell(ABSENT)
        if name not in found
        else Cell(
            f"({measured.text(found[name])})" if name == study.baseline else percent(found[name]), ahead[name] == best
        )
        for name in study.algorithms
    )


def _best(rows: Sequence[Row], measured: Measured) -> set[str]:
    """The algorithms with the best mean, of two or more."""
    means = {row.algorithm: mean for row in rows if (mean := row.mean) is not None}
    if len(means) < 2:
        return set()
    best = measured.metric.best(list(means.values()))
    return {name for name, mean in means.items() if mean == best}


def _tested(row: Row) -> tuple[Cell, ...]:
    each = row.difference
    return (
        Cell(str(row.n)),
        Cell(percent(each.relative) if each else ABSENT, star=bool(each and each.significant)),
        Cell(str(each.pairs) if each else ABSENT),
        Cell(p_value(each.test.p) if each else ABSENT),
        Cell(p_value(each.p_holm) if each else ABSENT),
        Cell(point_text(row.point)),
    )


def _markdown_cell(cell: Cell) -> str:
    text = piped(cell.text) + (f"\\{STAR}" if cell.star else "")
    return f"**{text}**" if cell.best else text


def piped(text: str) -> str:
    """A text that ends no cell and begins no emphasis."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")
