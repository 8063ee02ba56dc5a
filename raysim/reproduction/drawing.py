"""A paper's figures, drawn from the trials in a study's folder."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from raysim.common.errors import check_known
from raysim.plots.charts import draw
from raysim.plots.panels import Curve, Panel
from raysim.plots.style import Stroke, stroke
from raysim.report.words import MEASURES, METRICS
from raysim.reproduction.claim import TAKEN
from raysim.reproduction.figure import Figure, Place
from raysim.studies.read import Findings, TrialRow, Values, mean_curve
from raysim.studies.words import MetricColumn

AXES = {"rounds": "Round", "progress": "Rounds, % of all"}
IN_WORDS = {"best": ", largest", "least": ", smallest", "mean": ", mean over the rounds"}

SIZE = 56_000  # bytes of a figure's file; limits the rounds that its curves show
OF_PANEL, OF_CURVE, OF_ROUND = 2400, 450, 14  # bytes of a panel, a curve, and a round of a curve; a band takes two more
CROWD = 6  # more bands in a panel would hide each other, and are left out


def drawn(name: str, figure: Figure, study: Findings) -> str:
    """Return a figure's markup, without the parts that were not run; empty if nothing was run.

    Args:
        name: prefix of the elements' ids.
        figure: figure of the paper.
        study: study with its trials.

    Raises:
        InputError: no trial has a column of the figure.
    """
    _check_columns(figure, study)
    table = figure.table
    panels = [_panel(figure, title, study) for title in figure.panels]
    if not (there := [panel for panel in panels if panel.labels]):
        return ""
    return draw(
        name,
        there,
        _strokes(figure, study),
        table.form,
        x=table.x or (AXES[table.along or "rounds"] if table.form == "curves" else ""),
        columns=2 if len(there) == 4 else 3,
        is_log=table.scale == "log",
        most=rounds_that_fit(there),
    )


def rounds_that_fit(panels: list[Panel]) -> int:
    """Return the number of rounds that each curve may show, so that the figure's file stays small."""
    curves = [curve for panel in panels for curve in panel.curves.values()]
    widths = sum(1 if curve.std is None else 3 for curve in curves)
    return max(16, (SIZE - OF_PANEL * len(panels) - OF_CURVE * len(curves)) // (OF_ROUND * max(widths, 1)))


def words_of(column: str) -> tuple[str, bool]:
    """Return the name of a column on an axis, and whether it is a share."""
    if column in MEASURES:
        return MEASURES[column].title, False
    if not any(column.endswith(f"_{name}") for name in METRICS):
        return column.replace("_", " ").capitalize(), False
    found = MetricColumn.of(column)
    return f"{found.metric.title}, {found.short}", found.metric.kind == "share"


def _check_columns(figure: Figure, study: Findings) -> None:
    """Raise InputError for a misspelt column, which would otherwise leave an empty figure."""
    places = [place for series in figure.panels.values() for at in series.values() for place in at.values()]
    for column in dict.fromkeys(column for _, _, column in places):
        at = [(dataset, algorithm) for dataset, algorithm, own in places if own == column]
        trials = [trial for dataset, algorithm in at for trial in study.counting(dataset, algorithm)]
        final = [name for trial in trials for name in trial.metrics if trial.value(name) is not None]
        names = dict.fromkeys([*final, *(name for trial in trials for name in study.columns(trial))])
        if trials:
            check_known(f"figure {figure.table.title!r}: column {column!r}", column, names)


def _strokes(figure: Figure, study: Findings) -> Mapping[str, Stroke]:
    """Return the stroke of each series; algorithms have those of the study's report."""
    labels = list(dict.fromkeys(label for series in figure.panels.values() for label in series))
    order = study.algorithms if set(labels) <= set(study.algorithms) else labels
    return {label: stroke(order.index(label)) for label in labels}


def _panel(figure: Figure, title: str, study: Findings) -> Panel:
    table, series, take = figure.table, figure.panels[title], figure.table.take or "final"
    words = dict(words_of(column) for at in series.values() for _, _, column in at.values())
    y, kind = table.y or " and ".join(words) + IN_WORDS.get(take, ""), "share" if all(words.values()) else "number"
    if table.form != "curves":
        samples = {label: _samples(at, study, take) for label, at in series.items()}
        return Panel(title, y, kind, samples={label: at for label, at in samples.items() if at})
    curves = {label: _curve(at[""], study, table.smooth or 1) for label, at in series.items()}
    curves = {label: curve for label, curve in curves.items() if len(curve.rounds)}
    if table.along == "progress":  # the last round is always evaluated
        curves = {
            label: replace(curve, rounds=100 * curve.rounds / curve.rounds[-1]) for label, curve in curves.items()
        }
    if len(curves) > CROWD:
        curves = {label: replace(curve, std=None) for label, curve in curves.items()}
    return Panel(title, y, kind, curves)


def _curve(place: Place, study: Findings, smooth: int) -> Curve:
    """Return the mean and the standard deviation of a column by round, over the trials that have it."""
    dataset, algorithm, column = place
    runs = study.runs(dataset, algorithm, column)
    curve = mean_curve([_smoothed(run, column, smooth) for run in runs], column)
    return curve if curve.std is not None and curve.std.any() else replace(curve, std=None)


def _smoothed(run: Mapping[str, Values], column: str, count: int) -> dict[str, Values]:
    """Return the rounds with a value; each value is the mean over itself and up to `count` - 1 values before it."""
    known = np.isfinite(run[column])
    rounds, sums = run["round"][known], np.cumsum([0.0, *run[column][known]])
    last = np.arange(1, len(rounds) + 1)
    first = np.maximum(last - count, 0)
    return {"round": rounds, column: run[column][known] if count == 1 else (sums[last] - sums[first]) / (last - first)}


def _samples(at: Mapping[str, Place], study: Findings, take: str) -> dict[str, list[float]]:
    found = {
        tick: [
            value
            for trial in study.counting(dataset, algorithm)
            if (value := _value(study, trial, column, take)) is not None
        ]
        for tick, (dataset, algorithm, column) in at.items()
    }
    return {tick: values for tick, values in found.items() if values}


def _value(study: Findings, trial: TrialRow, column: str, take: str) -> float | None:
    if take == "final":
        return trial.value(column)
    by_round = study.rounds(trial, column).get(column, np.empty(0))
    known = by_round[np.isfinite(by_round)]
    return TAKEN[take](known.tolist()) if known.size else None
