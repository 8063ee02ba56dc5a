"""The report's charts of a federation's structure: bytes of each link of a tree, and scores of models of each size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from raysim.plots.charts import Chart, chart
from raysim.plots.panels import Panel
from raysim.plots.style import Stroke
from raysim.report.read import AlgorithmOutput
from raysim.report.words import TARGETS, VIEW, metric_named, metrics_in

MOST_EDGES = 20
"""Largest number of edges that a chart shows one by one."""

CLOUD = "cloud"
"""Tick of the links between all edges and the cloud."""


def structure(results: Sequence[AlgorithmOutput], strokes: Mapping[str, Stroke]) -> Iterator[Chart]:
    """Yield the chart of the bytes of each link of a tree, and that of the first metric of models of each size."""
    trees = {each.label: tree for each in results if (tree := _links(each))}
    if trees:
        samples = {label: {tick: [value] for tick, value in tree.items()} for label, tree in trees.items()}
        panel = Panel("Bytes by link, up and down", "Bytes of the run", "bytes", samples=samples)
        x = "Clients with edge 0, 1, ...; all edges with the cloud"
        yield chart("tree", "Bytes by link of the tree", [panel], strokes, "bars", x=x)
    yield from _sizes(results, strokes)


def _sizes(results: Sequence[AlgorithmOutput], strokes: Mapping[str, Stroke]) -> Iterator[Chart]:
    """Yield the chart of the first metric by the level of the model, with a panel for each target."""
    panels, columns = [], {name for each in results for name in each.measured}
    first = next(iter(metrics_in(columns)), "")
    for key, target in TARGETS.items():
        levels = {each.label: found for each in results if (found := _by_level(each, f"{key}_{first}"))}
        if levels:
            metric = metric_named(first)
            panels.append(Panel(target.title, metric.title, metric.kind, samples=levels))
    if panels:
        yield chart("levels", f"{metric_named(first).title} by level", panels, strokes, "points", x="Level")


def _by_level(result: AlgorithmOutput, column: str) -> dict[str, list[float]]:
    """Return the last value of a column for the model of each level, smallest first; empty without smaller models."""
    views = {name: match for name in result.measured if (match := VIEW.fullmatch(name))}
    smaller = sorted((float(match[1]), name) for name, match in views.items() if match[2] == column)
    found = {f"{level:g}": result.final(name) for level, name in [*smaller, (1.0, column)]} if smaller else {}
    return {level: [value] for level, value in found.items() if value is not None}


def _links(result: AlgorithmOutput) -> dict[str, float]:
    """Return the bytes of each link of a tree; empty without edges, or if there are too many."""
    if result.clients is None or "edge" not in result.clients.column_names:
        return {}
    table = result.clients.select(["edge", "bytes_up", "bytes_down"]).to_pylist()
    rows = [row for row in table if row["edge"] is not None]
    edges = sorted({row["edge"] for row in rows})
    if len(edges) > MOST_EDGES:
        return {}
    found = {f"{edge}": sum(r["bytes_up"] + r["bytes_down"] for r in rows if r["edge"] == edge) for edge in edges}
    return {**found, CLOUD: sum(result.total(f"cloud_bytes_{way}") or 0.0 for way in ("up", "down"))}
