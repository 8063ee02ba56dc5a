"""A run in a notebook: its table and first curves as HTML, and figures of its columns."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from raysim.common.errors import InputError, check_known
from raysim.plots.charts import figure
from raysim.plots.panels import Panel
from raysim.plots.style import strokes_of
from raysim.report import curves, tables
from raysim.report.read import AlgorithmOutput, read_runs
from raysim.report.templates import template
from raysim.report.words import TARGETS, metric_named, metrics_in


def as_html(folder: Path, report: Path, name: str) -> str:
    """Return a run's results, its first curves and a link to its report.

    Args:
        folder: folder of the run.
        report: path of its report page from the current folder.
        name: prefix of the ids, which differ between the runs of a notebook.
    """
    (run,) = read_runs([folder])
    strokes = strokes_of(each.label for each in run.results)
    return template("notebook.html.j2").render(
        name=run.name,
        strokes=strokes,
        headline=tables.headline(run.results),
        evaluated=tables.evaluated(run.results),
        endings=tables.endings(run.results),
        chart=next(curves.evaluation(run.results, strokes, name), None),
        report=report.as_posix(),
    )


def plot(folder: Path, columns: Sequence[str]) -> Figure:
    """Draw columns of a run by round.

    Raises:
        InputError: no algorithm has a column.
    """
    (run,) = read_runs([folder])
    measured = list(dict.fromkeys(name for each in run.results for name in each.measured))
    evaluated = {f"{target}_{metric}": (target, metric) for target in TARGETS for metric in metrics_in(measured)}
    columns = columns or [name for name in measured if name in evaluated][:1]
    if not columns:
        raise InputError(f"{folder}: no round was evaluated, so there is no curve; set evaluate.every")
    for name in columns:
        check_known(f"column {name!r}", name, measured)
    panels = [_panel(name, evaluated.get(name), run.results) for name in columns]
    return figure(panels, strokes_of(each.label for each in run.results), columns=min(2, len(panels)))


def _panel(name: str, words: tuple[str, str] | None, results: Sequence[AlgorithmOutput]) -> Panel:
    drawn = curves.by_round(results, name)
    if words is None:
        return Panel(name, "", curves=drawn)
    target, metric = TARGETS[words[0]], metric_named(words[1])
    return Panel(target.title, metric.title, metric.kind, drawn)
