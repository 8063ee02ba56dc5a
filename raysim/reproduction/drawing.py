"""Drawing the paper's figures from a study's folder, as far as their parts were run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from raysim.common.errors import unknown
from raysim.report.charts import Stroke, stroke
from raysim.report.tables import MEASURES, METRICS, TARGETS
from raysim.reproduction.charts import At, Look, Panel, draw
from raysim.reproduction.figure import Figure, Place
from raysim.reproduction.figure import Panel as Asked
from raysim.reproduction.taking import TAKEN
from raysim.studies.bands import band_of, runs_of
from raysim.studies.charts import Band
from raysim.studies.read import Entry, Findings, Values

AXES = {"rounds": "Round", "progress": "Rounds, % of all"}
IN_WORDS = {"best": ", largest", "least": ", smallest", "mean": ", mean over the rounds"}


def drawn(name: str, figure: Figure, study: Findings) -> str:
    """A figure's markup; what was not run is left out, and where that is everything it is empty.

    Args:
        name: what the elements' ids start with.
        figure: of the paper.
        study: with its trials.

    Raises:
        InputError: none of the trials has a column of the figure.
    """
    _check_columns(figure, study)
    strokes = _strokes(figure, study)
    panels = [_panel(figure, asked, study, strokes) for asked in figure.panels]
    if not (there := [panel for panel in panels if panel.labels]):
        return ""
    x = figure.table.x or (AXES[figure.table.along or "rounds"] if figure.table.form == "curves" else "")
    return draw(name, Look(figure.table.form, x, figure.table.scale == "log", strokes), there)


def _check_columns(figure: Figure, study: Findings) -> None:
    """That what was run has the figure's columns: a name that is not right would leave it out without a word."""
    places = [place for panel in figure.panels for at in panel.series.values() for place in at.values()]
    for column in dict.fromkeys(place.column for place in places):
        trials = [
            trial for each in places if each.column == column for trial in study.counting(each.dataset, each.algorithm)
        ]
        names = dict.fromkeys(name for trial in trials for name in (*trial.metrics, *study.columns(trial)))
        if trials and column not in names:
            raise unknown(f"figure {figure.table.title!r}: column {column!r}", column, list(names))


def _strokes(figure: Figure, study: Findings) -> Mapping[str, Stroke]:
    """How each series is drawn: algorithms as they are all over the study's report, others in their order."""
    labels = list(dict.fromkeys(label for panel in figure.panels for label in panel.series))
    order = study.algorithms if set(labels) <= set(study.algorithms) else labels
    return {label: stroke(order.index(label)) for label in labels}


def _panel(figure: Figure, asked: Asked, study: Findings, strokes: Mapping[str, Stroke]) -> Panel:
    table, take = figure.table, figure.table.take or "final"
    words = dict(words_of(place.column) for at in asked.series.values() for place in at.values())
    y = table.y or " and ".join(words) + IN_WORDS.get(take, "")
    lines: dict[str, Band] = {}
    values: dict[str, At] = {}
    for label, at in asked.series.items():
        if table.form == "curves":
            line = _band(at[""], study, strokes[label], table.smooth or 1)
            lines[label] = line.as_progress() if table.along == "progress" else line
        else:
            values[label] = _values(at, study, take)
    there = {label: line for label, line in lines.items() if len(line.rounds)}
    return Panel(asked.title, y, all(words.values()), there, {label: at for label, at in values.items() if at})


def words_of(column: str) -> tuple[str, bool]:
    """What a column is called on an axis, and whether it is a share."""
    name = next((name for name in METRICS if column.endswith(f"_{name}")), None)
    if column in MEASURES or name is None:
        return MEASURES[column].title if column in MEASURES else column.replace("_", " ").capitalize(), False
    target = column.removesuffix(f"_{name}")
    short = TARGETS[target].short if target in TARGETS else target.replace("_", " ")
    return f"{METRICS[name].title}, {short}", METRICS[name].kind == "share"


def _band(place: Place, study: Findings, own: Stroke, smooth: int) -> Band:
    """Mean and deviation of a column by round, over the trials that have it."""
    runs = [run for run in runs_of(study, place.dataset, place.algorithm, [place.column]) if place.column in run]
    return band_of([_smoothed(run, place.column, smooth) for run in runs], place.column, own)


def _smoothed(run: Mapping[str, Values], column: str, count: int) -> dict[str, Values]:
    """The rounds that have a value, each with the mean of it and of those before, so many at most together."""
    known = np.isfinite(run[column])
    rounds, sums = run["round"][known], np.cumsum([0.0, *run[column][known]])
    last = np.arange(1, len(rounds) + 1)
    first = np.maximum(last - count, 0)
    return {"round": rounds, column: run[column][known] if count == 1 else (sums[last] - sums[first]) / (last - first)}


def _values(at: Mapping[str, Place], study: Findings, take: str) -> At:
    """What is taken of a column by tick, on each split that was run."""
    found = {
        tick: [
            value
            for trial in study.counting(place.dataset, place.algorithm)
            if (value := _value(study, trial, place.column, take)) is not None
        ]
        for tick, place in at.items()
    }
    return {tick: values for tick, values in found.items() if values}


def _value(study: Findings, trial: Entry, column: str, take: str) -> float | None:
    """What is taken of a trial's column; None where it is undefined."""
    if take == "final":
        return trial.value(column)
    by_round = study.curves(trial, [column]).get(column, np.empty(0))
    known = by_round[np.isfinite(by_round)]
    return TAKEN[take](known.tolist()) if known.size else None
