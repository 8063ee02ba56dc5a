"""What the page draws by round: the metrics of every evaluation, the training loss, time and bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from raysim.report import charts
from raysim.report.read import Column, Result, Run
from raysim.report.tables import MEASURES, METRICS, TARGETS

BYTES = {
    "Protocol bytes up": "bytes_up",
    "Protocol bytes down": "bytes_down",
    "Bytes held by the driver": "machine_bytes_driver",
}


@dataclass(frozen=True)
class Series:
    """One algorithm of one run, under the label and the stroke it has all over the page."""

    label: str
    result: Result
    stroke: charts.Stroke

    @property
    def aggregates(self) -> Column:
        """The rounds that ended in a merge, or none if every round did: then nothing is to be told apart."""
        aggregated = self.result.column("aggregated") == 1
        return np.empty(0) if aggregated.all() else self.result.column("round")[aggregated]


@dataclass(frozen=True)
class Chart:
    """A picture of something by round, and whether it takes the page's whole width."""

    title: str
    svg: str
    wide: bool = False


def series_of(runs: Sequence[Run]) -> list[Series]:
    """Every algorithm of every run, in order; the run's name is part of the label if there are several."""
    every = [(run, result) for run in runs for result in run.results]
    return [
        Series(result.name if len(runs) == 1 else f"{run.name}/{result.name}", result, charts.stroke(index))
        for index, (run, result) in enumerate(every)
    ]


def evaluation(series: Sequence[Series]) -> Iterator[Chart]:
    """One chart a metric, one panel a target; the first is the page's largest."""
    present = {name for each in series for name in each.result.measured}
    wide = True
    for name, metric in METRICS.items():
        targets = [target for target in TARGETS if f"{target}_{name}" in present]
        if targets:
            panels = [charts.Panel(TARGETS[target].title, _lines(series, f"{target}_{name}")) for target in targets]
            wide = wide or len(targets) > 1
            svg = charts.lines(f"evaluation-{name}", panels, metric.title, metric.kind, wide)
            yield Chart(metric.title, svg, wide)
            wide = False


def measures(series: Sequence[Series]) -> Iterator[Chart]:
    """One chart a measure that was taken in any round."""
    present = {name for each in series for name in each.result.measured}
    for name, measure in MEASURES.items():
        if name in present:
            panel = charts.Panel(measure.title, _lines(series, name))
            yield Chart(measure.title, charts.lines(f"measure-{name}", [panel], measure.title))


def training(series: Sequence[Series]) -> Iterator[Chart]:
    """The loss while training, the time of a round, and what was sent, summed up; nothing without a round."""
    if not any(each.result.rounds for each in series):
        return
    loss = charts.Panel("Training loss", _lines(series, "train_loss"))
    yield Chart("Training loss", charts.lines("train-loss", [loss], "Loss"))
    seconds = charts.Panel("Seconds a round, without evaluation", _lines(series, "seconds", is_cost=True))
    yield Chart("Seconds", charts.lines("seconds", [seconds], "Seconds", "seconds"))
    sums = [charts.Panel(title, _lines(series, name, np.cumsum, is_cost=True)) for title, name in BYTES.items()]
    yield Chart("Bytes", charts.lines("bytes", sums, "Sum since the start", "bytes"), wide=True)


def _lines(
    series: Sequence[Series],
    name: str,
    transform: Callable[[Column], Column] = lambda values: values,
    is_cost: bool = False,
) -> list[charts.Line]:
    """A column of every series. Merges are marked where they shape the curve, not where they only cost."""
    return [
        charts.Line(
            each.result.column("round"),
            transform(each.result.column(name)),
            each.stroke,
            np.empty(0) if is_cost else each.aggregates,
        )
        for each in series
    ]
