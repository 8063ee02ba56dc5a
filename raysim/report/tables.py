"""The report's tables, and sentences about how the algorithms ended."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from raysim.common.units import human_bytes, human_seconds
from raysim.measures.epsilon.outside_epsilon import SENTENCE
from raysim.report.read import AlgorithmOutput
from raysim.report.words import ABSENT, NONFINITE, TARGETS, VIEW, WEIGHTS, ShownMetric, Stage, metric_named, metrics_in

Outputs = Sequence[AlgorithmOutput]

count = "{:,.0f}".format
"""Text of a whole number."""


@dataclass(frozen=True)
class TableColumn:
    """One column of a table.

    Args:
        cells: one text for each row.
        group: heading above it, shared with its neighbours.
        colour: colour of the dot before the heading.
        values: number of each cell in full, for hovering and for CSV; None if it has none.
    """

    title: str
    cells: Sequence[str]
    group: str = ""
    colour: str = ""
    best: frozenset[int] = frozenset()
    starred: frozenset[int] = frozenset()
    values: Sequence[float | None] = ()

    @classmethod
    def of(
        cls,
        title: str,
        values: Sequence[float | None],
        text: Callable[[float], str],
        group: str = "",
        colour: str = "",
        best: frozenset[int] = frozenset(),
    ) -> TableColumn:
        """Return the column of numbers that are shown as `text` of each."""
        cells = [ABSENT if value is None else text(value) for value in values]
        return cls(title, cells, group, colour, best, values=values)

    def full(self, row: int) -> str:
        """Return a cell's number in full; empty if it has none."""
        value = self.values[row] if self.values else None
        return "" if value is None or not math.isfinite(value) else f"{value:.10g}"


@dataclass(frozen=True)
class ResultTable:
    """Columns of equal length; `keys` are the columns that name the rows."""

    columns: Sequence[TableColumn]
    keys: Sequence[TableColumn] = ()

    @property
    def rows(self) -> list[list[tuple[str, bool, bool]]]:
        """Cells of keys and columns, row by row: text, whether it is bold, and whether it has a star."""
        every = [*self.keys, *self.columns]
        cells = [
            [(text, row in each.best, row in each.starred) for row, text in enumerate(each.cells)] for each in every
        ]
        return [list(row) for row in zip(*cells, strict=True)]

    @property
    def filled(self) -> list[int]:
        """Rows with at least one measured value."""
        rows = zip(*(column.cells for column in self.columns), strict=True)
        return [index for index, row in enumerate(rows) if set(row) != {ABSENT}]

    @property
    def has_gaps(self) -> bool:
        """Whether a shown row lacks a value."""
        return any(column.cells[row] == ABSENT for column in self.columns for row in self.filled)

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Upper headings, each with the number of its columns."""
        runs = groupby(self.columns, key=lambda column: column.group)
        return [(group, len(list(members))) for group, members in runs]


@dataclass(frozen=True)
class StageBar:
    """Stacked bar of stages.

    Args:
        parts: title, colour, text and share of the longest bar, in per cent, of each stage.
    """

    label: str
    parts: Sequence[tuple[str, str, str, float]]
    rest: float


def stage_bars(bars: Mapping[str, tuple[float, Mapping[str, float]]], stages: Mapping[str, Stage]) -> list[StageBar]:
    """Return bars of stages.

    Args:
        bars: by label, seconds of the whole (0 if unknown) and seconds by stage.
        stages: words and colours of the stages.
    """
    longest = max(max(whole, sum(parts.values())) for whole, parts in bars.values()) or 1.0
    return [
        StageBar(
            label,
            [
                (stages[name].title, stages[name].colour, human_seconds(took), 100 * took / longest)
                for name, took in parts.items()
            ],
            100 * max(0.0, whole - sum(parts.values())) / longest,
        )
        for label, (whole, parts) in bars.items()
    ]


def headline(results: Outputs) -> ResultTable:
    """Return the first table of a report: accuracy, time and bytes."""
    first = next((metric for metric in _metrics(results) if _targets(results, metric)), None)
    columns = [] if first is None else [
        _of_metric(results, target, first, TARGETS[target].short, metric_named(first).title)
        for target in _targets(results, first)
    ] + _of_views(results, first)  # fmt: skip
    optional = [_total("Simulated time", results, "simulated_seconds", human_seconds)]
    if any(each.total("nonfinite") for each in results):
        optional.append(_total(NONFINITE, results, "nonfinite", count))
    measured = [
        _total("driver", results, "machine_bytes_driver", human_bytes, "Measured bytes"),
        _total("moved", results, "machine_bytes_moved", human_bytes, "Measured bytes"),
    ]
    costs = [
        TableColumn.of("Consensus", [each.final("consensus") for each in results], "{:.3g}".format),
        TableColumn("Weights", [_weights(each) for each in results]),
        TableColumn("Rounds", [str(each.rounds) for each in results]),
        _total("Time", results, "seconds", human_seconds),
        *optional,
        _total("up", results, "bytes_up", human_bytes, "Protocol bytes"),
        _total("down", results, "bytes_down", human_bytes, "Protocol bytes"),
        _total("to the cloud", results, "cloud_bytes_up", human_bytes, "Protocol bytes"),
        _total("from the cloud", results, "cloud_bytes_down", human_bytes, "Protocol bytes"),
        _total("Exchanges", results, "exchanges", count),
        *(column for column in measured if any(column.values)),
    ]
    return ResultTable([*columns, *(column for column in costs if set(column.cells) != {ABSENT})])


def every_metric(results: Outputs) -> list[tuple[str, ResultTable]]:
    """Return the final value of every metric, one table for each target; nothing if the headline shows them all."""
    metrics = [metric for metric in _metrics(results) if _targets(results, metric)]
    targets = [target for target in TARGETS if any(target in _targets(results, metric) for metric in metrics)]
    if len(metrics) < 2:
        return []
    return [
        (
            TARGETS[target].title,
            ResultTable([_of_metric(results, target, metric, metric_named(metric).title) for metric in metrics]),
        )
        for target in targets
    ]


def best_values(results: Outputs) -> ResultTable | None:
    """Return the best value of every metric and its round; None if no summary has any."""
    columns = [
        TableColumn(metric.title, [_best(each, f"{name}_{key}", metric) for each in results], target.title)
        for name, target in TARGETS.items()
        for key, metric in {key: metric_named(key) for key in _metrics(results)}.items()
        if any(f"{name}_{key}" in each.summary.get("best", {}) for each in results)
    ]
    return ResultTable(columns) if columns else None


def goals(results: Outputs) -> ResultTable | None:
    """Return the first evaluated round at each target, and its costs so far; None without targets."""
    every = [each.summary.get("reached", {}) for each in results]
    wanted = list(dict.fromkeys((column, goal["target"]) for reached in every for column, goal in reached.items()))
    columns = [
        TableColumn(f"{column} {target:g}", [_rounds_to(reached, column, target) for reached in every], "Rounds to")
        for column, target in wanted
    ]
    costs = {"bytes_up": (human_bytes, "Bytes sent to"), "simulated_seconds": (human_seconds, "Virtual time to")}
    columns += [
        TableColumn.of(f"{column} {target:g}", [_cost_to(each, cost, column, target) for each in results], text, group)
        for cost, (text, group) in costs.items()
        if any(each.total(cost) is not None for each in results)
        for column, target in wanted
    ]
    return ResultTable(columns) if columns else None


PARTICIPATION: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "clients": ("clients", count),
    "never": ("never took part", count),
    "updates": ("client updates", count),
    "rate": ("a client", "{:.2f}".format),
    "gini": ("Gini", "{:.2f}".format),
    "samples": ("samples", count),
    "bytes_up": ("bytes up", human_bytes),
    "bytes_down": ("bytes down", human_bytes),
}
"""Titles and formats of a kind's participation by the name in `summary.json`; `rate` is the updates of a client."""

NEVER_COUNTED = {"late": "late", "vanished": "vanished", "samples_wasted": "samples"}
"""Titles of a kind's client updates that never counted, by the name in `summary.json`."""


def kinds(results: Outputs) -> ResultTable | None:
    """Return participation and metrics of each kind of devices, a row each; None without devices."""
    rows = [
        (f"{each.label}: {kind}", {**own, "rate": own["updates"] / own["clients"]})
        for each in results
        for kind, own in each.summary.get("kinds", {}).items()
    ]
    if not rows:
        return None

    def column(title: str, name: str, text: Callable[[float], str], group: str = "") -> TableColumn:
        return TableColumn.of(title, [own.get(name) for _, own in rows], text, group)

    first = {name for _, own in rows for name in own if not name.startswith("mean_")}
    columns = [
        *(column(title, name, text, "Participation") for name, (title, text) in PARTICIPATION.items()),
        *(column(title, name, count, "Never counted") for name, title in NEVER_COUNTED.items() if name in first),
        *(
            column(metric_named(name).title, name, metric_named(name).text, "Own test parts")
            for name in metrics_in(f"local_{name}" for name in first - PARTICIPATION.keys() - NEVER_COUNTED.keys())
            if name in first
        ),
    ]
    return ResultTable(columns, [TableColumn("", [label for label, _ in rows])])


def endings(results: Outputs) -> list[str]:
    """Return sentences about options, stops, updates that were not finite, models of an earlier round, and epsilon."""
    sentences = []
    for each in results:
        if each.model_round is not None:
            sentences.append(
                f"{each.label}: the model and the values shown here are those of round {each.model_round}."
            )
        sentences += [f"{each.label}: {text}." for text in each.summary.get("options", ())]
        if each.summary.get("stopped"):
            sentences.append(f"{each.label} was stopped after round {each.rounds}: {each.summary['stopped']}.")
        if updates := each.total("nonfinite"):
            sentences.append(
                f"{each.label}: {updates:,.0f} client updates were not finite and were left out or replaced."
            )
        if each.summary.get("stopped_early"):
            sentences.append(f"{each.label} stopped early, after round {each.summary['rounds']}.")
    if any(each.summary.get("epsilon") is not None for each in results):
        sentences.append(SENTENCE)
    return sentences


def concordance(result: AlgorithmOutput) -> str:
    """Return whether a result is concordant with centralised training, in words; empty if it was not measured."""
    verdict = result.summary.get("concordance")
    if not verdict:
        return ""
    no = "" if verdict["concordant"] else "not "
    delta, epsilon = float(verdict["delta"]), verdict["epsilon"]
    return f"{no}concordant with centralised training: discordance {delta:.2g}, {no}below {epsilon:g}"


def evaluated(results: Outputs) -> str:
    """Return the round of the tables' values, in words; empty without an evaluation."""
    last = {round_ for each in results if (round_ := _last_evaluation(each)) is not None}
    if not last:
        return ""
    if any(each.model_round is not None for each in results):
        return "after the round of each algorithm's selected model"
    return f"after round {last.pop()}" if len(last) == 1 else "after the last evaluated round of each algorithm"


def indented(description: str) -> str:
    """Break a one-line `repr` of a call into one argument a line."""
    lines, depth, start = [], 0, 0
    for index, sign in enumerate(description):
        depth += (sign in "([{") - (sign in ")]}")
        opens = sign == "(" and depth == 1
        if opens or (sign == "," and depth == 1):
            lines.append(description[start : index + 1].strip())
            start = index + 1
    if len(lines) < 2:
        return description
    last = description[start:].strip().removesuffix(")")
    return "\n".join([lines[0], *(f"    {line}" for line in [*lines[1:], f"{last},"]), ")"])


def best_rows(values: Sequence[float | None], best: Callable[[Sequence[float]], float]) -> frozenset[int]:
    """Return the rows with the best of two or more finite values."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    top = best(known) if len(known) > 1 else None
    return frozenset(row for row, value in enumerate(values) if value is not None and value == top)


def _metrics(results: Outputs) -> list[str]:
    return metrics_in(name for each in results for name in each.measured)


def _targets(results: Outputs, metric: str) -> list[str]:
    """Return the targets for which at least one result has the metric."""
    return [target for target in TARGETS if any(each.final(f"{target}_{metric}") is not None for each in results)]


def _of_metric(results: Outputs, target: str, metric: str, title: str, group: str = "") -> TableColumn:
    values = [each.final(f"{target}_{metric}") for each in results]
    shown = metric_named(metric)
    return TableColumn.of(title, values, shown.text, group, best=best_rows(values, shown.best))


def _of_views(results: Outputs, metric: str) -> list[TableColumn]:
    """Return the columns of a metric for the further models that an evaluation scores, such as smaller ones."""
    known = sorted(
        {(match[1], match[2]) for each in results for name in each.measured if (match := VIEW.fullmatch(name))}
    )
    return [
        _of_metric(
            results, f"level_{level}_{target}", metric, f"{term.short}, level {level}", metric_named(metric).title
        )
        for target, term in TARGETS.items()
        for level, column in sorted(known, key=lambda each: -float(each[0]))
        if column == f"{target}_{metric}"
    ]


def _total(title: str, results: Outputs, name: str, text: Callable[[float], str], group: str = "") -> TableColumn:
    return TableColumn.of(title, [each.total(name) for each in results], text, group)


def _weights(result: AlgorithmOutput) -> str:
    """Return the weights of client updates in an aggregation, phase by phase, from the algorithm's parts."""
    found = re.findall(r"\bweighting=(\w+)", str(result.summary.get("algorithm", "")))
    return ", then ".join(WEIGHTS.get(name, name) for name in dict.fromkeys(found)) or ABSENT


def _best(result: AlgorithmOutput, column: str, metric: ShownMetric) -> str:
    found = result.summary.get("best", {}).get(column)
    return ABSENT if found is None else f"{metric.text(found['value'])} ({found['round']})"


def _rounds_to(reached: Mapping[str, Any], column: str, target: float) -> str:
    found = reached.get(column)
    if found is None or found["target"] != target:
        return ABSENT
    return "not reached" if found["round"] is None else str(found["round"])


def _cost_to(result: AlgorithmOutput, cost: str, column: str, target: float) -> float | None:
    """Return the sum of a cost up to the round that reached a target; None if none did, or without the cost."""
    found = result.summary.get("reached", {}).get(column, {"target": None})
    if found["target"] != target or found["round"] is None or result.total(cost) is None:
        return None
    return float(np.nansum(result.column(cost)[result.column("round") <= found["round"]]))


def _last_evaluation(result: AlgorithmOutput) -> int | None:
    columns = [f"{target}_{metric}" for target in TARGETS for metric in _metrics([result])]
    filled = np.any([~np.isnan(result.column(name)) for name in columns], axis=0)
    return int(result.column("round")[filled][-1]) if filled.any() else None
