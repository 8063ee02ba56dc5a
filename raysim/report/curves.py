"""The report's curves: metrics, measures, training loss, time and bytes by round; and the stages of a round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from raysim.common.units import human_seconds
from raysim.plots import charts
from raysim.plots.charts import Chart, Curve, Panel
from raysim.plots.style import Stroke
from raysim.report.read import AlgorithmOutput
from raysim.report.tables import ResultTable, TableColumn
from raysim.report.words import ABSENT, MEASURES, METRICS, STAGES, TARGETS

Outputs = Sequence[AlgorithmOutput]
Strokes = Mapping[str, Stroke]

BYTES = {
    "Protocol bytes up": "bytes_up",
    "Protocol bytes down": "bytes_down",
    "Bytes held by the driver": "machine_bytes_driver",
}


def evaluation(results: Outputs, strokes: Strokes) -> Iterator[Chart]:
    """Yield one chart for each metric, with one panel for each target; the first is the page's largest."""
    present = {name for each in results for name in each.measured}
    wide = True
    for name, metric in METRICS.items():
        targets = [target for target in TARGETS if f"{target}_{name}" in present]
        if targets:
            panels = [
                Panel(TARGETS[target].title, metric.title, metric.kind, _curves(results, f"{target}_{name}"))
                for target in targets
            ]
            wide = wide or len(targets) > 1
            svg = charts.draw(f"evaluation-{name}", panels, strokes, is_shared=True, is_wide=wide)
            yield metric.title, svg, wide
            wide = False


def measures(results: Outputs, strokes: Strokes) -> Iterator[Chart]:
    """Yield one chart for each measure that any round has."""
    present = {name for each in results for name in each.measured}
    for name, measure in MEASURES.items():
        if name in present:
            panel = Panel(measure.title, measure.title, curves=_curves(results, name))
            yield measure.title, charts.draw(f"measure-{name}", [panel], strokes, is_wide=False), False


def training(results: Outputs, strokes: Strokes) -> Iterator[Chart]:
    """Yield the charts of training loss, time of a round and sums of bytes; nothing without a round."""
    if not any(each.rounds for each in results):
        return
    loss = Panel("Training loss", "Loss", curves=_curves(results, "train_loss"))
    yield "Training loss", charts.draw("train-loss", [loss], strokes, is_wide=False), False
    title = "Seconds a round, without evaluation"
    seconds = Panel(title, "Seconds", "seconds", _curves(results, "seconds", is_marked=False))
    yield "Seconds", charts.draw("seconds", [seconds], strokes, is_wide=False), False
    sums = [
        Panel(title, "Sum since the start", "bytes", _curves(results, name, is_marked=False, is_sum=True))
        for title, name in BYTES.items()
    ]
    yield "Bytes", charts.draw("bytes", sums, strokes, is_shared=True), True


def breakdown(results: Outputs) -> tuple[str, ResultTable] | None:
    """Return the median seconds of each stage as a picture and as a table; None if no algorithm measured them."""
    medians = {each.label: _medians(each) for each in results}
    in_round = {name: stage.title for name, stage in STAGES.items() if not stage.beside}
    bars = {
        label: (found["whole"], {title: found[name] or 0.0 for name, title in in_round.items()})
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
        TableColumn(title, [_seconds(found.get(name)) for found in medians.values()], group, colour)
        for name, (title, group, colour) in titles.items()
    ]
    colours = {stage.title: stage.colour for stage in STAGES.values()}
    return charts.stages("stages", bars, colours), ResultTable(columns)


def _curves(results: Outputs, name: str, is_marked: bool = True, is_sum: bool = False) -> dict[str, Curve]:
    """Return a column of every result; aggregations are marked if they shape the curve."""
    return {
        each.label: Curve(
            each.column("round"),
            np.cumsum(each.column(name)) if is_sum else each.column(name),
            marks=each.aggregations if is_marked else np.empty(0),
        )
        for each in results
    }


def _medians(result: AlgorithmOutput) -> dict[str, float | None]:
    """Return the medians over the rounds that had the stage; empty without a stage inside the rounds."""
    columns = {name: result.column(f"seconds_{name}") for name in STAGES} | {"whole": result.column("seconds")}
    known = {name: values[np.isfinite(values)] for name, values in columns.items()}
    if not any(known[name].size for name, stage in STAGES.items() if not stage.beside):
        return {}
    return {name: float(np.median(values)) if values.size else None for name, values in known.items()}


def _seconds(value: float | None) -> str:
    return ABSENT if value is None else human_seconds(value)
