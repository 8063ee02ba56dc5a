"""The report's curves: metrics, measures, training loss, time and bytes by round; and the stages of a round."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np

from raysim.common.units import human_seconds
from raysim.plots.charts import Chart, chart
from raysim.plots.panels import Curve, Panel
from raysim.plots.style import Stroke
from raysim.report.read import AlgorithmOutput
from raysim.report.tables import ResultTable, StageBar, TableColumn, stage_bars
from raysim.report.words import MEASURES, STAGES, TARGETS, metric_named, metrics_in

Outputs = Sequence[AlgorithmOutput]
Strokes = Mapping[str, Stroke]

BYTES = {
    "Protocol bytes up": "bytes_up",
    "Protocol bytes down": "bytes_down",
    "Bytes held by the driver": "machine_bytes_driver",
}

CLOUD_BYTES = {"Bytes up to the cloud": "cloud_bytes_up", "Bytes down from the cloud": "cloud_bytes_down"}
"""Bytes between edges and the cloud, on an axis of their own: beside the clients' they are few."""

COSTS = {
    "bytes_up": ("bytes that clients sent", "Bytes that clients sent, log10"),
    "cloud_bytes_up": ("bytes that edges sent to the cloud", "Bytes that edges sent to the cloud, log10"),
    "simulated_seconds": ("virtual time", "Virtual seconds"),
}
"""Costs that a metric is shown by: column, words, and label of the axis."""


def evaluation(results: Outputs, strokes: Strokes, prefix: str = "evaluation") -> Iterator[Chart]:
    """Yield one chart for each metric, with one panel for each target; `prefix` begins the ids."""
    for name, panels in _panels(results, _marked):
        yield chart(f"{prefix}-{name}", metric_named(name).title, panels, strokes, is_shared=True)


def by_costs(results: Outputs, strokes: Strokes) -> Iterator[Chart]:
    """Yield the charts of the first metric by each cost that any algorithm has."""
    for cost, (words, x) in COSTS.items():
        paying = [each for each in results if each.total(cost)]
        for name, panels in islice(_panels(paying, partial(_spent, cost=cost)), 1):
            title = f"{metric_named(name).title} by {words}"
            yield chart(f"by-{cost}", title, panels, strokes, x=x, is_shared=True)


def _panels(results: Outputs, drawn: Callable[[Outputs, str], dict[str, Curve]]) -> Iterator[tuple[str, list[Panel]]]:
    """Yield each metric with one panel for each of its targets; `drawn` makes the curves of a column."""
    present = {name for each in results for name in each.measured}
    for name in metrics_in(present):
        metric = metric_named(name)
        panels = [
            Panel(target.title, metric.title, metric.kind, drawn(results, f"{key}_{name}"))
            for key, target in TARGETS.items()
            if f"{key}_{name}" in present
        ]
        if panels:
            yield name, panels


def measures(results: Outputs, strokes: Strokes) -> Iterator[Chart]:
    """Yield one chart for each measure that any round has."""
    present = {name for each in results for name in each.measured}
    for name, measure in MEASURES.items():
        if name in present:
            panel = Panel(measure.title, measure.title, curves=_marked(results, name))
            yield chart(f"measure-{name}", measure.title, [panel], strokes)


def training(results: Outputs, strokes: Strokes) -> Iterator[Chart]:
    """Yield the charts of training loss, time of a round and sums of bytes; nothing without a round."""
    if not any(each.rounds for each in results):
        return
    if losses := _marked(results, "train_loss"):
        yield chart("train-loss", "Training loss", [Panel("Training loss", "Loss", curves=losses)], strokes)
    title = "Seconds a round, without evaluation"
    seconds = Panel(title, "Seconds", "seconds", by_round(results, "seconds"))
    yield chart("seconds", "Seconds", [seconds], strokes)
    for key, heading, columns in (("bytes", "Bytes", BYTES), ("cloud-bytes", "Bytes of the cloud", CLOUD_BYTES)):
        sums = [
            Panel(title, "Sum since the start", "bytes", _sums(results, name))
            for title, name in columns.items()
            if any(each.total(name) for each in results)
        ]
        if sums:
            yield chart(key, heading, sums, strokes, is_shared=True)


def breakdown(results: Outputs) -> tuple[list[StageBar], ResultTable] | None:
    """Return the median seconds of each stage as bars and as a table; None if no algorithm measured them."""
    medians = {each.label: _medians(each) for each in results}
    in_round = [name for name, stage in STAGES.items() if not stage.beside]
    bars = {
        label: (found["whole"] or 0.0, {name: found[name] or 0.0 for name in in_round})
        for label, found in medians.items()
        if found
    }
    if not bars:
        return None
    titles = {"whole": ("Whole round", "", "")} | {
        name: (stage.title, "Beside the rounds" if stage.beside else "In a round", stage.colour)
        for name, stage in STAGES.items()
    }
    columns = [
        TableColumn.of(title, [found.get(name) for found in medians.values()], human_seconds, group, colour)
        for name, (title, group, colour) in titles.items()
    ]
    return stage_bars(bars, STAGES), ResultTable(columns)


def by_round(results: Outputs, name: str) -> dict[str, Curve]:
    """Return a column of every result that measured it."""
    return {each.label: Curve(each.column("round"), each.column(name)) for each in results if name in each.measured}


def _marked(results: Outputs, name: str) -> dict[str, Curve]:
    """Return a column of every result, with marks at the aggregations, which shape the curve."""
    marks = {each.label: each.aggregations for each in results}
    return {label: replace(curve, marks=marks[label]) for label, curve in by_round(results, name).items()}


def _sums(results: Outputs, name: str) -> dict[str, Curve]:
    """Return the sums of a column since the start."""
    return {label: replace(curve, values=np.cumsum(curve.values)) for label, curve in by_round(results, name).items()}


def _spent(results: Outputs, name: str, cost: str) -> dict[str, Curve]:
    curves = {}
    for each in results:
        if name in each.measured:
            spent = np.cumsum(np.nan_to_num(each.column(cost)))
            # Compressed runs lie orders of magnitude below the others.
            shown = np.log10(spent[spent > 0]) if "bytes" in cost else spent[spent > 0]
            curves[each.label] = Curve(shown, each.column(name)[spent > 0])
    return curves


def _medians(result: AlgorithmOutput) -> dict[str, float | None]:
    """Return the medians over the rounds that had the stage; empty without a stage inside the rounds."""
    columns = {name: result.column(f"seconds_{name}") for name in STAGES} | {"whole": result.column("seconds")}
    known = {name: values[np.isfinite(values)] for name, values in columns.items()}
    if not any(known[name].size for name, stage in STAGES.items() if not stage.beside):
        return {}
    return {name: float(np.median(values)) if values.size else None for name, values in known.items()}
