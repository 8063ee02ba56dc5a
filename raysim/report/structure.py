"""The report's charts of a federation's structure: bytes of each link of a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from raysim.plots.charts import Chart, chart
from raysim.plots.panels import Panel
from raysim.plots.style import Stroke
from raysim.report.read import AlgorithmOutput

MOST_EDGES = 20
"""Largest number of edges that a chart shows one by one."""

CLOUD = "cloud"
"""Tick of the links between all edges and the cloud."""


def structure(results: Sequence[AlgorithmOutput], strokes: Mapping[str, Stroke]) -> Iterator[Chart]:
    """Yield the chart of the bytes between each edge and its clients, and between all edges and the cloud."""
    trees = {each.label: tree for each in results if (tree := _links(each))}
    if trees:
        samples = {label: {tick: [value] for tick, value in tree.items()} for label, tree in trees.items()}
        panel = Panel("Bytes by link, up and down", "Bytes of the run", "bytes", samples=samples)
        x = "Edge and its clients; all edges and the cloud"
        yield chart("links", "Bytes by link of the tree", [panel], strokes, "bars", x=x)


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
