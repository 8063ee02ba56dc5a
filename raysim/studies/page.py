"""A study's report."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from raysim.common.units import human_seconds
from raysim.plots.charts import Chart, chart
from raysim.plots.panels import Curve, Panel
from raysim.plots.style import Stroke, strokes_of
from raysim.report.templates import template
from raysim.report.words import ABSENT, EVALUATION_TERMS
from raysim.studies.read import Findings, keys_of, mean_curve, metrics_of
from raysim.studies.search import Search, edge_notes, search_chart, searches_of
from raysim.studies.statistics import ResultRow
from raysim.studies.tables import details, differences
from raysim.studies.words import MetricColumn, caption, notes, point_text, value_text

STATUSES = ("done", "diverged", "failed")


DatasetCurves: TypeAlias = tuple[int, str, list[Panel]]
"""Number and name of a data set, and the panels of its curves."""


def render(study: Findings, rows: Sequence[ResultRow], curves: Iterable[DatasetCurves], lead: str = "") -> str:
    """Return the page's markup, with these `curves`; `lead` is markup that stands before the results."""
    strokes = strokes_of(study.algorithms)
    by = MetricColumn.of(study.select_by)
    searches = searches_of(study)
    counted = [each for each in study.trials if each.counts]
    return template("study.html.j2", "raysim.studies").render(
        title=study.name,
        facts=_facts(study, has_search=bool(searches)),
        lead=lead,
        strokes=strokes,
        has_marks=False,
        differences=differences(study, rows),
        details=details(study, rows),
        caption=caption(study, rows),
        notes=sentences(study, rows),
        curves=[chart(f"curves{n}", dataset, panels, strokes) for n, dataset, panels in curves],
        lost_curves=sum(
            metrics_of(study.folder, each.folder, each.algorithm) is None for each in counted if each.status == "done"
        ),
        boxes=_boxes(rows, strokes, MetricColumn.of(study.metric)),
        # Wide charts come last, so that the others stand side by side.
        searches=sorted(
            (search_chart(f"search{n}", each, by) for n, each in enumerate(searches)), key=lambda each: each.is_wide
        ),
        points=[(each.title, list(_points(each, by))) for each in searches],
        select_by=by,
        statuses=STATUSES,
        counts=list(_counts(study)),
        settings=[(row, settings) for row in rows if (settings := _settings(study, row))],
        config=study.config_text.strip(),
        example=next(iter(counted), None),
        glossary=EVALUATION_TERMS,
    )


def sentences(study: Findings, rows: Sequence[ResultRow]) -> list[str]:
    """Return all notes on the results and on the search."""
    return [*notes(study, rows), *edge_notes(study)]


def _facts(study: Findings, *, has_search: bool) -> dict[str, str]:
    folds = {each.split.fold for each in study.trials if each.split.fold is not None}
    drawn = {each.split.partition for each in study.trials if each.split.partition is not None}
    return {
        "Data sets": f"{len(study.datasets)}",
        "Algorithms": f"{len(study.algorithms)}",
        "Seeds": f"{len({each.split.seed for each in study.trials})}",
        **({"Partitions": f"{len(drawn)}"} if drawn else {}),
        "Test folds": f"{len(folds)}" if folds else ABSENT,
        "Trials": f"{len(study.trials):,}",
        "Time of all rounds": human_seconds(sum(each.seconds or 0.0 for each in study.trials)),
        "Reported": study.metric,
        **({"Chosen by": study.select_by} if has_search else {}),
        "Baseline": study.baseline,
    }


def curves_of(study: Findings) -> Iterator[DatasetCurves]:
    """Yield the number and name of each data set that has curves, and their panels.

    They show the metric that the search compares, then the reported one: means over trials, and standard deviations.
    """
    columns = [MetricColumn.of(name) for name in dict.fromkeys((study.select_by, study.metric))]
    for number, dataset in enumerate(study.datasets):
        curves: dict[str, dict[str, Curve]] = {each.column: {} for each in columns}
        for name in study.algorithms:
            runs = study.runs(dataset, name, *curves)
            for column, found in curves.items():
                if own := [run for run in runs if column in run]:
                    found[name] = mean_curve(own, column)
        panels = [Panel(each.target, each.metric.title, each.metric.kind, curves[each.column]) for each in columns]
        if panels := [panel for panel in panels if panel.curves]:
            yield number, dataset, panels


def _boxes(rows: Sequence[ResultRow], strokes: Mapping[str, Stroke], column: MetricColumn) -> Chart | None:
    """Draw the distribution of each algorithm's values, one panel for each data set."""
    samples: dict[str, dict[str, dict[str, list[float]]]] = {}
    for row in rows:
        if row.values:
            samples.setdefault(row.dataset, {})[row.algorithm] = {row.algorithm: list(row.values.values())}
    panels = [Panel(dataset, column.metric.title, column.metric.kind, samples=own) for dataset, own in samples.items()]
    return chart("boxes", "Values by algorithm", panels, strokes, "boxes", x="") if panels else None


def _points(search: Search, by: MetricColumn) -> Iterator[tuple[str, str, int, bool]]:
    """Yield name, mean and deviation, number of trials, and whether it was chosen, of each point."""
    for point in search.points:
        yield point_text(point.text), by.spread(point.mean, point.std), len(point.values), point.is_chosen


def _counts(study: Findings) -> Iterator[tuple[str, str, list[int], str]]:
    """Yield, for each data set and algorithm, the number of trials by status and the time of their rounds."""
    for dataset in study.datasets:
        for name in study.algorithms:
            trials = study.of(dataset, name)
            ended = [sum(each.status == status for each in trials) for status in STATUSES]
            yield dataset, name, ended, human_seconds(sum(each.seconds or 0.0 for each in trials))


def _settings(study: Findings, row: ResultRow) -> list[tuple[str, str, str]]:
    """Return key, value and source of each hyper-parameter; the source is empty if it is not inherited."""
    sources = study.inherited(row.algorithm)
    return [
        (key, value_text(value), str(sources.get(key, "")).partition(":")[0])
        for key, value in keys_of(row.point or "").items()
    ]
