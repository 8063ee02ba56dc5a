"""Each client on the page: quantiles of its metrics, groups of clients, and a table of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from partitioning.common.columns import is_label
from raysim.plots.charts import Chart, chart
from raysim.plots.panels import Curve, Panel
from raysim.plots.style import Stroke
from raysim.report.read import AlgorithmOutput, RunOutput
from raysim.report.tables import ResultTable, TableColumn, best_rows, count
from raysim.report.words import ABSENT, METRICS, ShownMetric, metric_named
from raysim.store.tables import ACCOUNTS

Outputs = Sequence[AlgorithmOutput]

PARTS = {"test": "Own test part", "train": "Training part"}
"""Titles of the parts of a client's samples, by the prefix of their columns in `clients.parquet`."""

QUANTILES = {"10 %": 0.1, "Median": 0.5, "90 %": 0.9}

TENTH = 0.1
"""Share of the clients in the worst and in the best group."""

BINS = 20
"""Bins of the clients' values, at most."""

GROUPS = 20
"""Values of a column, at most, by which clients are grouped."""

LISTED = 200
"""Clients of the table on the page, at most: those with the worst values."""

NUMBERS = ("client", "samples", "test_samples", *ACCOUNTS)
"""Columns by which nothing is grouped."""


def describe(runs: Sequence[RunOutput], strokes: Mapping[str, Stroke]) -> Mapping[str, Any] | None:
    """Return the charts and tables of the clients for the template; None if no run scored them."""
    scored = [each for run in runs for each in run.results if _measured(each)]
    if not scored:
        return None
    tables = [(run, [each for each in run.results if _measured(each)]) for run in runs]
    return {
        "charts": list(_charts(scored, strokes)),
        "spread": _spread(scored),
        "groups": list(_groups(scored)),
        "listed": [(run.name, _listing(results)) for run, results in tables if results],
        "most": LISTED,
    }


def _measured(result: AlgorithmOutput) -> list[tuple[str, str]]:
    """Return the parts and metrics that at least one client has."""
    names = [name for name in result.clients.column_names if name not in NUMBERS]
    scores = [name.partition("_") for name in names]
    metrics = dict.fromkeys([*METRICS, *sorted({metric for part, _, metric in scores if part in PARTS})])
    return [
        (part, metric)
        for part in PARTS
        for metric in metrics
        if f"{part}_{metric}" in names
        and result.clients.column(f"{part}_{metric}").null_count < result.clients.num_rows
    ]


def _first(results: Outputs) -> list[tuple[str, ShownMetric, str]]:
    """Return each part with its first metric, and the column."""
    found: dict[str, tuple[str, ShownMetric, str]] = {}
    for each in results:
        for part, metric in _measured(each):
            found.setdefault(part, (part, metric_named(metric), f"{part}_{metric}"))
    return list(found.values())


def _values(result: AlgorithmOutput, column: str) -> NDArray[np.float64]:
    """Return a column of all clients; NaN for a client without it."""
    if column not in result.clients.column_names:
        return np.full(result.clients.num_rows, np.nan)
    values: NDArray[np.float64] = result.clients.column(column).cast(pa.float64()).to_numpy()
    return values


def _worst_first(result: AlgorithmOutput, column: str, metric: ShownMetric) -> NDArray[np.float64]:
    """Return the finite values of a column, the worst first."""
    values = _values(result, column)
    values = np.sort(values[np.isfinite(values)])
    return values if metric.best is max else values[::-1]


def _charts(results: Outputs, strokes: Mapping[str, Stroke]) -> Iterator[Chart]:
    """Yield two charts of the first metric, with a panel for each part: its quantiles, and its histogram."""
    quantiles, histograms, title = [], [], ""
    for part, metric, column in _first(results):
        each = {one.label: _worst_first(one, column, metric) for one in results}
        each = {label: values for label, values in each.items() if len(values) > 1}
        if not each:
            continue
        title = metric.title
        ranks = {label: 100 * (np.arange(len(values)) + 0.5) / len(values) for label, values in each.items()}
        curves = {label: Curve(ranks[label], values) for label, values in each.items()}
        quantiles.append(Panel(f"{PARTS[part]}, worst first", title, metric.kind, curves))
        clients = max(len(values) for values in each.values())
        edges = np.histogram_bin_edges(np.concatenate(list(each.values())), min(BINS, 4 + round(clients**0.5)))
        middles = (edges[:-1] + edges[1:]) / 2
        counted = {label: np.histogram(values, edges)[0].astype(float) for label, values in each.items()}
        drawn = {label: Curve(middles, counts) for label, counts in counted.items()}
        histograms.append(Panel(f"{PARTS[part]}, clients by {title.lower()}", "Clients", "number", drawn))
    if quantiles:
        yield chart(
            "client-quantiles", f"{title} of each client, worst first", quantiles, strokes, x="Per cent of clients"
        )
        yield chart("client-histogram", f"Clients by {title.lower()}", histograms, strokes, x=title)


def _spread(results: Outputs) -> ResultTable:
    """Return quantiles of each part's first metric, a row for each algorithm and part."""
    rows = [
        (f"{each.label}, {PARTS[part].lower()}", metric, values)
        for part, metric, column in _first(results)
        for each in results
        if len(values := _worst_first(each, column, metric))
    ]
    tenths = [max(1, round(TENTH * len(values))) for _, _, values in rows]

    def column(title: str, numbers: Sequence[float], group: str = "") -> TableColumn:
        texts = [metric.text(number) for (_, metric, _), number in zip(rows, numbers, strict=True)]
        return TableColumn(title, texts, group, values=list(numbers))

    worst = [float(values[:tenth].mean()) for (_, _, values), tenth in zip(rows, tenths, strict=True)]
    best = [float(values[-tenth:].mean()) for (_, _, values), tenth in zip(rows, tenths, strict=True)]
    return ResultTable(
        [
            TableColumn("Clients", [f"{len(values):,}" for _, _, values in rows]),
            column("Mean", [float(values.mean()) for _, _, values in rows]),
            column("Deviation", [float(values.std()) for _, _, values in rows]),
            *(
                column(title, [float(np.quantile(values, share)) for _, _, values in rows], "Quantiles")
                for title, share in QUANTILES.items()
            ),
            column("Worst tenth", worst, "Means of"),
            column("Best tenth", best, "Means of"),
            column("Gap", [abs(high - low) for low, high in zip(worst, best, strict=True)]),
        ],
        [TableColumn("", [label for label, _, _ in rows])],
    )


def _groups(results: Outputs) -> Iterator[tuple[str, ResultTable]]:
    """Yield each column that groups clients, with the mean of each part's first metric in each group."""
    shown = _first(results)
    names = dict.fromkeys(name for each in results for name in _grouping(each))
    for name in names:
        rows = [(each, *group) for each in results if name in _grouping(each) for group in _members(each, name)]
        columns = [TableColumn("Clients", [f"{len(members):,}" for _, _, members in rows])]
        for part, metric, column in shown:
            means = [_mean(_values(each, column), members) for each, _, members in rows]
            best = best_rows(means, metric.best)
            columns.append(TableColumn.of(metric.title, means, metric.text, PARTS[part], best=best))
        yield name, ResultTable(columns, [TableColumn("", [f"{each.label}: {value}" for each, value, _ in rows])])


def _grouping(result: AlgorithmOutput) -> list[str]:
    """Return the columns of texts, truths or whole numbers with a few values, not one a client."""
    clients = result.clients
    named = {f"{part}_{metric}" for part, metric in _measured(result)}
    found = [name for name in clients.column_names if name not in named and name not in NUMBERS]
    kinds = {name: clients.schema.field(name).type for name in found}
    few = [name for name in found if is_label(kinds[name])]
    return [name for name in few if 1 < len(clients.column(name).unique()) <= min(GROUPS, clients.num_rows - 1)]


def _members(result: AlgorithmOutput, column: str) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield each value of a column with the places of its clients, in the values' order; those without one last."""
    values = np.array(result.clients.column(column).to_pylist(), object)
    known = sorted({value for value in values if value is not None})
    for value in [*known, *([None] if any(each is None for each in values) else [])]:
        yield ("none" if value is None else str(value)), np.flatnonzero([each == value for each in values])


def _mean(values: NDArray[np.float64], members: NDArray[np.int64]) -> float | None:
    known = values[members]
    known = known[np.isfinite(known)]
    return float(known.mean()) if known.size else None


def _listing(results: Outputs) -> ResultTable:
    """Return the clients of one run, those with the worst values first, with the metrics of each algorithm."""
    shown, table = _first(results), results[0].clients
    ranks = [_ranks(_values(each, shown[0][2]), shown[0][1]) for each in results]
    order = np.argsort(np.min(ranks, axis=0), kind="stable")[:LISTED]
    facts = [name for name in table.column_names if name == "name" or name in _grouping(results[0])]
    columns = [
        TableColumn(
            name, [ABSENT if value is None else str(value) for value in table.column(name).take(order).to_pylist()]
        )
        for name in facts
    ]
    for name, title in (("samples", "Samples"), ("test_samples", "Test samples")):
        columns.append(TableColumn.of(title, _values(results[0], name)[order].tolist(), count))
    for each in results:
        columns.append(TableColumn.of(each.label, _values(each, "updates")[order].tolist(), count, "Updates"))
    for part, metric, column in shown:
        for each in results:
            known = [None if np.isnan(value) else value for value in _values(each, column)[order].tolist()]
            columns.append(TableColumn.of(each.label, known, metric.text, f"{metric.title}, {PARTS[part].lower()}"))
    return ResultTable(columns, [TableColumn("", [str(client) for client in order.tolist()])])


def _ranks(values: NDArray[np.float64], metric: ShownMetric) -> NDArray[np.int64]:
    """Return each client's rank, the worst value first; clients without a value come last."""
    signed = np.nan_to_num(values if metric.best is max else -values, nan=np.inf, neginf=-np.inf, posinf=np.inf)
    ranks: NDArray[np.int64] = np.argsort(np.argsort(signed, kind="stable"), kind="stable")
    return ranks
