"""A study's tables: as values, in Markdown, in LaTeX with the package booktabs, and live in a terminal."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import rich.table

from partitioning.common.text import latex, markdown
from raysim.common.units import human_seconds
from raysim.report.tables import ResultTable, TableColumn, best_rows
from raysim.report.words import ABSENT, in_words
from raysim.studies.course import StudyProgress
from raysim.studies.folder import VIRTUAL_TIME
from raysim.studies.read import Findings, TrialRow, trial_rows
from raysim.studies.statistics import (
    DIGITS,
    Contest,
    Difference,
    ResultRow,
    averages,
    best_point,
    complete_mean,
    tallies_of,
)
from raysim.studies.words import MetricColumn, p_value, percent, point_text

AVERAGE = "mean"
"""Name of the row below the data sets."""

STAR = "*"

Cell = tuple[str, bool]
"""Text, and whether it has a star."""


def means(study: Findings, rows: Sequence[ResultRow]) -> ResultTable:
    """Return mean and standard deviation: a row a data set, a column an algorithm."""
    column = MetricColumn.of(study.metric)
    lines, best = [], []
    for name in study.datasets:
        own = [row for row in rows if row.dataset == name]
        lines.append([(column.spread(row.mean, row.std), row.significant) for row in own])
        best.append(best_rows([row.mean for row in own], column.metric.best))
    return _table(study.datasets, study.algorithms, lines, best)


def contests(study: Findings) -> ResultTable:
    """Return wins, ties and losses of each algorithm, a row, against each other one, a column, over all data sets."""
    names, found = study.algorithms, tallies_of(study)
    totals = [sum((found[name, other] for other in names if other != name), Contest()) for name in names]
    columns = [
        TableColumn(other, [ABSENT if name == other else str(found[name, other]) for name in names]) for other in names
    ]
    return ResultTable(
        [*columns, TableColumn("all", [str(each) for each in totals])], [TableColumn("algorithm", names)]
    )


def differences(study: Findings, rows: Sequence[ResultRow]) -> ResultTable:
    """Return the baseline's mean and the others' relative differences: a row a data set, a column an algorithm."""
    column = MetricColumn.of(study.metric)
    names, lines, best = list(study.datasets), [], []
    for name in study.datasets:
        own = [row for row in rows if row.dataset == name]
        lines.append([_difference_cell(row, column) for row in own])
        best.append(best_rows([_ahead(row) for row in own], column.metric.best))
    if len(names) > 1:
        found = averages(rows)
        names.append(AVERAGE)
        lines.append([(_average_text(name, study, found, column), False) for name in study.algorithms])
        ahead = [found[name] * (name != study.baseline) if name in found else None for name in study.algorithms]
        best.append(best_rows(ahead, column.metric.best))
    return _table(names, study.algorithms, lines, best)


def details(study: Findings, rows: Sequence[ResultRow]) -> ResultTable:
    """Return mean and standard deviation, test and chosen point: a row for each data set and algorithm."""
    shown = MetricColumn.of(study.metric)
    best = frozenset(
        place
        for name in study.datasets
        for place in best_rows([row.mean if row.dataset == name else None for row in rows], shown.metric.best)
    )

    def column(title: str, text: Callable[[ResultRow], str]) -> TableColumn:
        return TableColumn(title, [text(row) for row in rows])

    def tested(title: str, text: Callable[[Difference], str]) -> TableColumn:
        return column(title, lambda row: text(row.difference) if row.difference else ABSENT)

    times = sorted({name for each in study.trials for name in each.metrics if name.startswith(VIRTUAL_TIME)})
    significant = frozenset(place for place, row in enumerate(rows) if _difference_cell(row, shown)[1])
    columns = [
        replace(column(shown.title, lambda row: shown.spread(row.mean, row.std)), best=best),
        column("n", lambda row: str(row.n)),
        replace(tested("difference, %", lambda each: percent(each.relative)), starred=significant),
        tested("pairs", lambda each: str(each.pairs)),
        tested("p", lambda each: p_value(each.test.p)),
        tested("p, Holm", lambda each: p_value(each.p_holm)),
        *(column(_time_title(study, name), partial(_time_text, study, column=name)) for name in times),
        column("hyper-parameters", lambda row: point_text(row.point)),
    ]
    return ResultTable(
        columns, [column("data set", lambda row: row.dataset), column("algorithm", lambda row: row.algorithm)]
    )


def markdown_table(table: ResultTable) -> str:
    """Return a table in GitHub's Markdown."""
    head = [markdown(column.title) for column in (*table.keys, *table.columns)]
    rule = ["---"] * len(table.keys) + ["---:"] * len(table.columns)
    body = [[_markdown_cell(*cell) for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *body]) + "\n"


def latex_table(table: ResultTable, caption: str, label: str) -> str:
    r"""Return a floating table with its caption above it.

    Args:
        label: name for `\ref`.
    """
    head = [latex(column.title) for column in (*table.keys, *table.columns)]
    rows = [[_latex_cell(*cell) for cell in row] for row in table.rows]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{latex(caption)}}}",
            rf"\label{{{label}}}",
            rf"\begin{{tabular}}{{{'l' * len(table.keys) + 'r' * len(table.columns)}}}",
            r"\toprule",
            _latex_row(head),
            r"\midrule",
            *map(_latex_row, rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def progress_table(progress: StudyProgress) -> rich.table.Table:
    """Return a study's state for the terminal: trials done and the best point so far.

    Test metrics stay hidden until the point is chosen.
    """
    planned, by = progress.planned, MetricColumn.of(progress.select_by)
    found: dict[tuple[str, str], list[TrialRow]] = defaultdict(list)
    for trial in trial_rows(progress.trials):
        found[trial.dataset, trial.algorithm].append(trial)
    table = rich.table.Table("data set", "algorithm")
    table.add_column("trials", justify="right")
    table.add_column("best point")
    for column in (progress.select_by, progress.metric):
        table.add_column(in_words(column), justify="right")
    for of in dict.fromkeys([*planned, *found]):
        point, validated = _leader(found[of], by.column)
        tested = [value for each in found[of] if each.counts and (value := each.value(progress.metric)) is not None]
        table.add_row(
            *of,
            _counted(found[of], planned.get(of)),
            point_text(point),
            _plain(validated),
            _plain(complete_mean(tested)),
        )
    return table


def _leader(trials: Sequence[TrialRow], column: str) -> tuple[str | None, float | None]:
    """Return the chosen point or, before the choice, the best so far; and its mean."""
    chosen = [each for each in trials if each.is_chosen]
    if chosen:
        known = [value for each in chosen if (value := each.value(column)) is not None]
        return chosen[0].point, complete_mean(known)
    values: dict[str, list[float | None]] = defaultdict(list)
    for trial in trials:
        values[trial.point].append(trial.value(column))
    return best_point(values, column) or (None, None)


def _plain(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.4f}"


def _counted(trials: Sequence[TrialRow], planned: int | None) -> str:
    ended = Counter(each.status for each in trials)
    lost = "".join(f", {ended[status]} {status}" for status in ("diverged", "failed") if ended[status])
    return f"{len(trials)}/{planned or '?'}{lost}"


def _table(
    datasets: Sequence[str],
    algorithms: Sequence[str],
    lines: Sequence[Sequence[Cell]],
    best: Sequence[frozenset[int]],
) -> ResultTable:
    """Return a table from its lines, one for each data set; `best` has the best cells of each line."""
    columns = [
        TableColumn(
            algorithm,
            [line[place][0] for line in lines],
            best=frozenset(row for row, places in enumerate(best) if place in places),
            starred=frozenset(row for row, line in enumerate(lines) if line[place][1]),
        )
        for place, algorithm in enumerate(algorithms)
    ]
    return ResultTable(columns, [TableColumn("data set", datasets)])


def _ahead(row: ResultRow) -> float | None:
    """Return the relative difference to the baseline, 0 for the baseline itself; None without one.

    Means would not do, because those of trials without a partner may contradict the difference in the cell.
    """
    if row.difference is None:
        return None if row.mean is None else 0.0
    relative = row.difference.relative
    return None if relative is None else round(relative, DIGITS)


def _difference_cell(row: ResultRow, column: MetricColumn) -> Cell:
    if row.difference is None:
        return (ABSENT if row.mean is None else f"({column.text(row.mean)})"), False
    relative = row.difference.relative
    return percent(relative), row.significant and relative is not None


def _average_text(name: str, study: Findings, found: Mapping[str, float], column: MetricColumn) -> str:
    if name not in found:
        return ABSENT
    return f"({column.text(found[name])})" if name == study.baseline else percent(found[name])


def _time_title(study: Findings, column: str) -> str:
    metric = column.removeprefix(VIRTUAL_TIME)
    target = study.config.get("evaluate", {}).get("target", {}).get(metric)
    return f"virtual time to {metric}" + ("" if target is None else f" {target:g}")


def _time_text(study: Findings, row: ResultRow, column: str) -> str:
    """Return the mean virtual time to a target over the trials that reached it, and their number if not all did."""
    trials = study.counting(row.dataset, row.algorithm)
    reached = [seconds for each in trials if (seconds := each.value(column)) is not None]
    if not reached:
        return ABSENT
    text = human_seconds(sum(reached) / len(reached))
    return text if len(reached) == len(trials) else f"{text} ({len(reached)} of {len(trials)})"


def _markdown_cell(text: str, is_best: bool, is_starred: bool) -> str:
    text = markdown(text) + f"\\{STAR}" * is_starred
    return f"**{text}**" if is_best else text


def _latex_cell(text: str, is_best: bool, is_starred: bool) -> str:
    text = latex(text)
    if text[:1] == "-" and text[1:2].isdigit():  # a sign, neither hyphen nor dash
        text = f"$-${text[1:]}"
    starred = f"{text}$^{STAR}$" if is_starred else text
    return rf"\textbf{{{starred}}}" if is_best else starred


def _latex_row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"
