"""A study's report: what the template is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from raysim.common.units import human_seconds
from raysim.report.charts import Stroke, stroke
from raysim.report.tables import ABSENT, METRICS, TARGETS
from raysim.report.templates import template
from raysim.studies import charts
from raysim.studies.bands import band_of, runs_of
from raysim.studies.read import Findings, Values, keys_of
from raysim.studies.search import Point, Search, searches_of
from raysim.studies.statistics import Row
from raysim.studies.tables import details, differences
from raysim.studies.words import Measured, caption, notes, point_text, value_text

STATUSES = ("done", "diverged", "failed")


@dataclass(frozen=True)
class Series:
    """One algorithm, under the label and the stroke it has all over the page."""

    label: str
    stroke: Stroke


@dataclass(frozen=True)
class Picture:
    """A chart under a heading, and what it shows in words."""

    title: str
    svg: str
    wide: bool = True


@dataclass(frozen=True)
class Setting:
    """A hyper-parameter: its value, and the algorithm it was inherited from; that is empty where it was not."""

    key: str
    value: str
    source: str


def render(study: Findings, rows: Sequence[Row], lead: str = "") -> str:
    """The page's markup; `lead` is some that stands before the results."""
    series = [Series(name, stroke(index)) for index, name in enumerate(study.algorithms)]
    by = Measured.of(study.select_by)
    searches = searches_of(study)
    return template("study.html.j2", "raysim.studies").render(
        title=study.name,
        facts=_facts(study),
        lead=lead,
        series=series,
        aggregates_marked=False,
        strokes={each.label: each.stroke for each in series},
        differences=differences(study, rows),
        details=details(study, rows),
        caption=caption(study, rows),
        notes=notes(study, rows),
        curves=list(_curves(study, series)),
        lost_curves=sum(not study.curves(each, ()) for each in study.trials if each.counts and each.status == "done"),
        boxes=_boxes(rows, series, Measured.of(study.metric)),
        # The wide ones last, so that the others stand side by side.
        searches=sorted((_searched(*each, by) for each in enumerate(searches)), key=lambda each: each.wide),
        points=[(each, [_point_cells(point, by) for point in each.points]) for each in searches],
        select_by=by,
        statuses=STATUSES,
        counts=list(_counts(study)),
        settings=[(row, settings) for row in rows if (settings := _settings(study, row))],
        config=study.config_text.strip(),
        example=next((each for each in study.trials if each.counts), None),
        glossary=(
            ("Evaluated on", [(each.title, each.meaning) for each in TARGETS.values()]),
            ("Metrics", [(each.title, each.meaning) for each in METRICS.values()]),
        ),
    )


def _facts(study: Findings) -> dict[str, str]:
    units = {each.unit for each in study.trials}
    folds = {unit.fold for unit in units if unit.fold is not None}
    return {
        "Data sets": f"{len(study.datasets)}",
        "Algorithms": f"{len(study.algorithms)}",
        "Seeds": f"{len({unit.seed for unit in units})}",
        "Test folds": f"{len(folds)}" if folds else ABSENT,
        "Trials": f"{len(study.trials):,}",
        "Time of all rounds": human_seconds(sum(each.seconds or 0.0 for each in study.trials)),
        "Reported": study.metric,
        "Chosen by": study.select_by,
        "Baseline": study.baseline,
    }


def _curves(study: Findings, series: Sequence[Series]) -> Iterator[Picture]:
    """For each data set the metric that the search goes by, then the reported one, over the trials that count."""
    columns = list(dict.fromkeys((study.select_by, study.metric)))
    for index, dataset in enumerate(study.datasets):
        runs = {each.label: runs_of(study, dataset, each.label, columns) for each in series}
        panels = [charts.Panel(Measured.of(column), _bands(series, runs, column)) for column in columns]
        if panels := [panel for panel in panels if panel.bands]:
            yield Picture(dataset, charts.curves(f"curves{index}", panels))


def _bands(series: Sequence[Series], runs: Mapping[str, Sequence[dict[str, Values]]], column: str) -> list[charts.Band]:
    there = {each: [run for run in runs[each.label] if column in run] for each in series}
    return [band_of(own, column, each.stroke) for each, own in there.items() if own]


def _boxes(rows: Sequence[Row], series: Sequence[Series], measured: Measured) -> str:
    strokes = {each.label: each.stroke for each in series}
    panels = [
        (
            dataset,
            [
                charts.Box(row.algorithm, list(row.values.values()), strokes[row.algorithm])
                for row in rows
                if row.dataset == dataset and row.values
            ],
        )
        for dataset in dict.fromkeys(row.dataset for row in rows if row.values)
    ]
    return charts.boxes("boxes", panels, measured) if panels else ""


def _searched(index: int, search: Search, by: Measured) -> Picture:
    title = f"{search.algorithm} on {search.dataset}"
    return Picture(title, charts.searched(f"search{index}", search, by), wide=len(search.axes) > 2)


def _point_cells(point: Point, by: Measured) -> tuple[str, str, str, bool]:
    return (
        point_text(point.text),
        by.spread(point.mean, point.std),
        str(len(point.values) + point.lost),
        point.is_chosen,
    )


def _counts(study: Findings) -> Iterator[tuple[str, str, list[int], str]]:
    """For each data set and algorithm how many trials ended how, and the time of their rounds."""
    for dataset in study.datasets:
        for name in study.algorithms:
            trials = study.of(dataset, name)
            ended = [sum(each.status == status for each in trials) for status in STATUSES]
            yield dataset, name, ended, human_seconds(sum(each.seconds or 0.0 for each in trials))


def _settings(study: Findings, row: Row) -> list[Setting]:
    sources = study.inherited(row.algorithm)
    return [
        Setting(key, value_text(value), str(sources.get(key, "")).partition(":")[0])
        for key, value in keys_of(row.point or "").items()
    ]
