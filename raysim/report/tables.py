"""The report's tables, the words for what a run measures, and how a value of each kind reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from raysim.common.units import human_bytes, human_seconds, percent
from raysim.report.read import Result

ABSENT = "–"


@dataclass(frozen=True)
class Target:
    """On whose samples a model is evaluated."""

    title: str
    short: str
    meaning: str


@dataclass(frozen=True)
class Metric:
    """One number of an evaluation; `best` picks the better of two, `kind` is a scale of the charts."""

    title: str
    kind: str
    best: Callable[[Sequence[float]], float]
    meaning: str

    def text(self, value: float | None) -> str:
        if value is None:
            return ABSENT
        if not math.isfinite(value):
            return "diverged"
        return percent(value) if self.kind == "share" else f"{value:.3f}"


@dataclass(frozen=True)
class Measure:
    """One column of `[evaluate] measures`."""

    title: str
    meaning: str


@dataclass(frozen=True)
class Stage:
    """Part of what the driver does for a round; `beside`: perhaps while the next round runs already."""

    title: str
    colour: str
    meaning: str
    beside: bool = False


TARGETS = {
    "test": Target("Global test set", "test set", "the data set's own test samples, which no client holds"),
    "held_out": Target(
        "Held-out clients, pooled", "held out", "all samples of the clients that never train, as one set"
    ),
    "held_out_mean": Target(
        "Held-out clients, mean",
        "held out, mean",
        "the mean over the clients that never train, each counting once",
    ),
    "validation": Target(
        "Validation clients, pooled", "validation", "all samples of the clients held out for validation, as one set"
    ),
    "validation_mean": Target(
        "Validation clients, mean",
        "validation, mean",
        "the mean over the clients held out for validation, each counting once",
    ),
    "local": Target(
        "Own test parts, pooled",
        "own test",
        "the training clients' own test samples, each under its client's model",
    ),
    "local_mean": Target(
        "Own test parts, mean",
        "own test, mean",
        "the mean over the training clients, each on its own test samples",
    ),
    "domains": Target(
        "Test sets of domains, mean",
        "domains, mean",
        "the mean over domains, each the mean over its clients on the domain's test set",
    ),
}

METRICS = {
    "accuracy": Metric("Accuracy", "share", max, "the share of samples whose label is predicted"),
    "macro_f1": Metric("Macro F1", "number", max, "F1 a class, averaged over the classes"),
    "weighted_f1": Metric("Weighted F1", "number", max, "F1 a class, averaged by the class's samples"),
    "auc": Metric("AUC", "number", max, "area under the ROC curve, each class against the rest, averaged"),
    "miou": Metric(
        "mIoU",
        "number",
        max,
        "a class's hits by all samples that are or are predicted as it, averaged over the classes",
    ),
    "loss": Metric("Loss", "number", min, "mean cross-entropy in nats; less is better"),
}

MEASURES = {
    "dc": Measure(
        "Weight divergence",
        "distance of the global model's parameters from those of a model that trains on "
        "the union of each round's data, as a share of their norm",
    ),
    "twin_test_loss": Measure("Twin's test loss", "of a model that trains on mini-batches of all clients' data"),
    "concordance": Measure("Discordance", "mean squared difference of the test loss from the twin's, over the rounds"),
    "dl": Measure("Divergence of local models", "how far the models of a round, as sent, point apart"),
    "dl_updates": Measure("Divergence of local updates", "how far the changes that a round's visits made point apart"),
    "bn_change": Measure("Change of batch-norm statistics", "from one round to the next"),
    "bn_deviation": Measure("Deviation of batch-norm statistics", "of the clients' from the merged ones"),
    "bn_variance": Measure("Variance of batch-norm statistics", "of clients' deviations over their latest visits"),
}

COSTS = {
    "Round": "every model trains once on one client: the unit in which algorithms compare at equal work",
    "Merge": "the models become the next global model; between merges, the equal-weight mean is evaluated",
    "Time": "of all rounds, without evaluation, as this machine took it",
    "Simulated time": "of all rounds in virtual time, as [devices] say how fast clients are; the same on any machine",
    "Visits not finite": "visits that gave NaN or infinity, and were left out, or replaced by the model as it was",
    "Protocol bytes": "what a real federation would send through its server: up from clients, down to them",
    "Exchanges": "how often in turn the clients and the server waited for each other: once a round in most algorithms",
    "Driver bytes": "array data that the driving process held here, as measured: what it put, and what it took",
    "Moved bytes": "array data that actors took from the object store, as measured",
}

STAGES = {
    "sample": Stage("Sample", "#d9a441", "draw the cohort, and deal the models to it"),
    "send": Stage("Send", "#e07b54", "put the model where the actors find it, and hand out the blocks of visits"),
    "train": Stage("Train", "#7d95a8", "wait for the visits: the one stage that a plain loop has too"),
    "sum": Stage("Sum", "#b58bb5", "add the blocks' partial sums up as they arrive"),
    "aggregate": Stage("Merge", "#6fae8f", "apply the server's rule, and keep the state"),
    "evaluate": Stage("Evaluate", "#c3ccd5", "measure the model, in the rounds that are evaluated", beside=True),
    "write": Stage("Write", "#8c9aa8", "write the rows of the round and of its visits to disk", beside=True),
}

GLOSSARY = (
    ("Evaluated on", [(each.title, each.meaning) for each in TARGETS.values()]),
    ("Metrics", [(each.title, each.meaning) for each in METRICS.values()]),
    ("Measures", [(each.title, each.meaning) for each in MEASURES.values()]),
    ("Costs", list(COSTS.items())),
    ("Stages of a round, in the driver's seconds", [(each.title, each.meaning) for each in STAGES.values()]),
)


@dataclass(frozen=True)
class TableColumn:
    """One column: the heading it shares with its neighbours, its own, one cell a row, its colour, and the best rows."""

    group: str
    title: str
    cells: Sequence[str]
    colour: str = ""
    best: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Table:
    """Columns of equal length."""

    columns: Sequence[TableColumn]

    @property
    def filled(self) -> list[int]:
        """The rows in which anything was measured."""
        rows = zip(*(column.cells for column in self.columns), strict=True)
        return [index for index, row in enumerate(rows) if set(row) != {ABSENT}]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The upper headings, each with the number of columns it spans."""
        runs = groupby(self.columns, key=lambda column: column.group)
        return [(group, len(list(members))) for group, members in runs]


def _simulated(results: Sequence[Result]) -> list[TableColumn]:
    """The virtual time of the rounds, where there are devices."""
    cells = [_sum(each, "simulated_seconds", human_seconds) for each in results]
    return [] if set(cells) == {ABSENT} else [TableColumn("", "Simulated time", cells)]


def _nonfinite(results: Sequence[Result]) -> list[TableColumn]:
    """The visits that were not finite, where there are any."""
    counts = [each.total("nonfinite") for each in results]
    cells = [ABSENT if count is None else f"{count:,.0f}" for count in counts]
    return [TableColumn("", "Visits not finite", cells)] if any(counts) else []


def headline(results: Sequence[Result]) -> Table:
    """What a reader looks for first: how good, how long, how much was sent."""
    first = next((metric for metric in METRICS if _targets(results, metric)), None)
    columns = [] if first is None else _of_targets(results, first)
    return Table(
        [
            *columns,
            TableColumn("", "Rounds", [str(each.rounds) for each in results]),
            TableColumn("", "Time", [_sum(each, "seconds", human_seconds) for each in results]),
            *_simulated(results),
            TableColumn("Protocol bytes", "up", [_sum(each, "bytes_up", human_bytes) for each in results]),
            TableColumn("Protocol bytes", "down", [_sum(each, "bytes_down", human_bytes) for each in results]),
            *_nonfinite(results),
            TableColumn("", "Exchanges", [_sum(each, "exchanges", lambda n: f"{n:,.0f}") for each in results]),
            TableColumn(
                "Measured bytes",
                "driver",
                [_sum(each, "machine_bytes_driver", human_bytes) for each in results],
            ),
            TableColumn(
                "Measured bytes",
                "moved",
                [_sum(each, "machine_bytes_moved", human_bytes) for each in results],
            ),
        ]
    )


def every_metric(results: Sequence[Result]) -> list[tuple[str, Table]]:
    """The final value of every metric, one table a target; empty where the headline has them all."""
    metrics = [metric for metric in METRICS if _targets(results, metric)]
    targets = [target for target in TARGETS if any(target in _targets(results, metric) for metric in metrics)]
    if len(metrics) < 2:
        return []
    return [
        (
            TARGETS[target].title,
            Table([_of_metric(results, target, metric, METRICS[metric].title) for metric in metrics]),
        )
        for target in targets
    ]


def best_values(results: Sequence[Result]) -> Table | None:
    """The best value of every metric, and its round; None where no summary has any."""
    columns = [
        TableColumn(target.title, metric.title, [_best(each, f"{name}_{key}", metric) for each in results])
        for name, target in TARGETS.items()
        for key, metric in METRICS.items()
        if any(f"{name}_{key}" in each.summary.get("best", {}) for each in results)
    ]
    return Table(columns) if columns else None


def _best(result: Result, column: str, metric: Metric) -> str:
    found = result.summary.get("best", {}).get(column)
    return ABSENT if found is None else f"{metric.text(found['value'])} ({found['round']})"


def goals(results: Sequence[Result]) -> Table | None:
    """The first evaluated round at each target; None where there are no targets."""
    every = [each.summary.get("reached", {}) for each in results]
    wanted = list(dict.fromkeys((column, goal["target"]) for reached in every for column, goal in reached.items()))
    columns = [
        TableColumn("Rounds to", f"{column} {target:g}", [_rounds_to(reached, column, target) for reached in every])
        for column, target in wanted
    ]
    return Table(columns) if columns else None


def _rounds_to(reached: Mapping[str, Any], column: str, target: float) -> str:
    found = reached.get(column)
    if found is None or found["target"] != target:
        return ABSENT
    return "not reached" if found["round"] is None else str(found["round"])


def endings(results: Sequence[Result], labels: Sequence[str]) -> list[str]:
    """Sentences on every algorithm that was stopped, left visits out, or whose model is not the last round's."""
    told = []
    for label, each in zip(labels, results, strict=True):
        if each.model_round is not None:
            told.append(f"{label}'s model, and its values here, are those of round {each.model_round}.")
        if each.summary.get("stopped"):
            told.append(f"{label} was stopped after round {each.rounds}: {each.summary['stopped']}.")
        if updates := each.total("nonfinite"):
            told.append(f"{label}: {updates:,.0f} visits were not finite, and were left out or replaced.")
        if each.summary.get("stopped_early"):
            told.append(f"{label} stopped early, after round {each.summary['rounds']}.")
    return told


def concordance(result: Result) -> str:
    """Whether a result is concordant with centralised training, in words; empty where nobody asked."""
    verdict = result.summary.get("concordance")
    if not verdict:
        return ""
    no = "" if verdict["concordant"] else "not "
    delta, epsilon = float(verdict["delta"]), verdict["epsilon"]
    return f"{no}concordant with centralised training: discordance {delta:.2g}, {no}below {epsilon:g}"


def evaluated(results: Sequence[Result]) -> str:
    """After which round the tables' values were taken, in words; empty if there was no evaluation."""
    last = {round_ for each in results if (round_ := _last_evaluation(each)) is not None}
    if not last:
        return ""
    if any(each.model_round is not None for each in results):
        return "after the round that left each algorithm's model"
    return f"after round {last.pop()}" if len(last) == 1 else "at each algorithm's last evaluation"


def indented(description: str) -> str:
    """A one-line `repr` with one argument a line where a call would not fit on one."""
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


def _targets(results: Sequence[Result], metric: str) -> list[str]:
    """The targets for which at least one result has the metric."""
    return [target for target in TARGETS if any(each.final(f"{target}_{metric}") is not None for each in results)]


def _of_targets(results: Sequence[Result], metric: str) -> list[TableColumn]:
    targets = _targets(results, metric)
    return [_of_metric(results, each, metric, TARGETS[each].short, METRICS[metric].title) for each in targets]


def _of_metric(results: Sequence[Result], target: str, metric: str, title: str, group: str = "") -> TableColumn:
    values = [each.final(f"{target}_{metric}") for each in results]
    known = [value for value in values if value is not None and math.isfinite(value)]
    top = METRICS[metric].best(known) if len(known) > 1 else None
    best = frozenset(row for row, value in enumerate(values) if value is not None and value == top)
    return TableColumn(group, title, [METRICS[metric].text(value) for value in values], best=best)


def _sum(result: Result, name: str, text: Callable[[float], str]) -> str:
    total = result.total(name)
    return ABSENT if total is None else text(total)


def _last_evaluation(result: Result) -> int | None:
    columns = [f"{target}_{metric}" for target in TARGETS for metric in METRICS]
    filled = np.any([~np.isnan(result.column(name)) for name in columns], axis=0)
    return int(result.column("round")[filled][-1]) if filled.any() else None
