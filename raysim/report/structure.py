"""The report's charts of a federation's structure: the links of a tree or of a graph, and models of each size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

from partitioning.common.text import caption
from raysim.plots.charts import HALF, Chart, chart, single_axes
from raysim.plots.panels import Curve, Panel
from raysim.plots.style import INK, MUTED, Stroke, themed, to_svg
from raysim.report.read import AlgorithmOutput
from raysim.report.words import TARGETS, VIEW, metric_named, metrics_in, parted

Ids = NDArray[np.int64]

MOST_EDGES = 20
"""Largest number of edges that a chart shows one by one."""

CLOUD = "cloud"
"""Tick of the links between all edges and the cloud."""

DRAWN = 2000
"""Links of a graph that is drawn, at most; of a larger one the page shows a matrix."""

CELLS = 100
"""Rows and columns of the matrix, at most."""

NAMED = 40
"""Clients whose numbers stand beside their points, at most."""


def structure(results: Sequence[AlgorithmOutput], strokes: Mapping[str, Stroke]) -> Iterator[Chart]:
    """Yield the chart of the bytes of each link of a tree, and that of the first metric of models of each size."""
    trees = {each.label: tree for each in results if (tree := _bytes_of_tree(each))}
    if trees:
        samples = {label: {tick: [value] for tick, value in tree.items()} for label, tree in trees.items()}
        panel = Panel("Bytes by link, up and down", "Bytes of the run", "bytes", samples=samples)
        x = "Clients with edge 0, 1, ...; all edges with the cloud"
        yield chart("tree", "Bytes by link of the tree", [panel], strokes, "bars", x=x)
    yield from _sizes(results, strokes)


def _sizes(results: Sequence[AlgorithmOutput], strokes: Mapping[str, Stroke]) -> Iterator[Chart]:
    """Yield the chart of the first metric by the level of the model, with a panel for each target."""
    panels, views = [], [match[2] for each in results for name in each.measured if (match := VIEW.fullmatch(name))]
    scored = {metric for _, metric in map(parted, views)}
    first = next((name for name in metrics_in(views) if name in scored), "")
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


def _bytes_of_tree(result: AlgorithmOutput) -> dict[str, float]:
    """Return the bytes of each link of a tree; empty without edges, or if there are too many."""
    if "edge" not in result.clients.column_names:
        return {}
    table = result.clients.select(["edge", "bytes_up", "bytes_down"]).to_pylist()
    rows = [row for row in table if row["edge"] is not None]
    edges = sorted({row["edge"] for row in rows})
    if len(edges) > MOST_EDGES:
        return {}
    found = {f"{edge}": sum(r["bytes_up"] + r["bytes_down"] for r in rows if r["edge"] == edge) for edge in edges}
    return {**found, CLOUD: sum(result.total(f"cloud_bytes_{way}") or 0.0 for way in ("up", "down"))}


def links(results: Sequence[AlgorithmOutput], strokes: Mapping[str, Stroke]) -> Iterator[Chart]:
    """Yield a picture of each algorithm's links, and a chart of the bytes of all; nothing without links."""
    linked = {each.label: each.edges for each in results if each.edges.num_rows}
    for number, (label, edges) in enumerate(linked.items()):
        yield _picture(f"graph{number}", label, edges, strokes[label])
    curves = {}
    for label, edges in linked.items():
        largest = np.sort(edges.column("bytes").to_numpy())[::-1].astype(float)
        curves[label] = Curve(100 * (np.arange(len(largest)) + 0.5) / len(largest), largest)
    if curves:
        panel = Panel("Bytes by link", "Sum over the rounds", "bytes", curves)
        yield chart("bytes-by-link", "Bytes by link", [panel], strokes, x="Per cent of links, largest first")


def _picture(name: str, label: str, edges: pa.Table, stroke: Stroke) -> Chart:
    """Return the picture of a graph: its clients in a circle, or the bytes from client to client as a matrix."""
    senders, receivers = (edges.column(each).to_numpy() for each in ("from", "to"))
    sent: NDArray[np.float64] = edges.column("bytes").to_numpy().astype(float)
    clients, places = np.unique(np.concatenate([senders, receivers]), return_inverse=True)
    ends = places.reshape(2, -1)
    pairs, pair_of = np.unique(np.sort(ends, axis=0), axis=1, return_inverse=True)
    both = np.zeros(pairs.shape[1])
    np.add.at(both, pair_of.ravel(), sent)
    with single_axes(name, HALF, HALF) as (figure, axes):
        axes.set_title(caption(f"{label}: {len(clients):,} clients, {edges.num_rows:,} links"))
        if pairs.shape[1] <= DRAWN:
            _draw_circle(axes, clients, pairs.T, both, stroke)
        else:
            _draw_matrix(axes, ends, sent, len(clients))
        axes.set_aspect("equal")
        svg = themed(to_svg(figure, name))
    return Chart(f"Links of {label}", [svg], {})


def _draw_circle(axes: Axes, clients: Ids, pairs: Ids, sent: NDArray[np.float64], stroke: Stroke) -> None:
    """Draw clients as points in a circle, and their links as lines whose width shows their bytes."""
    angles = 2 * np.pi * np.arange(len(clients)) / len(clients)
    points = np.stack([np.sin(angles), np.cos(angles)], axis=1)
    widths = (0.3 + 1.2 * sent / sent.max()).tolist()
    axes.add_collection(LineCollection(list(points[pairs]), linewidths=widths, colors=stroke.colour, alpha=0.6))
    axes.scatter(points[:, 0], points[:, 1], s=min(30.0, 1500 / len(clients)), color=INK, zorder=2)
    for client, (x, y) in zip(clients.tolist() if len(clients) <= NAMED else [], 1.12 * points, strict=False):
        axes.text(x, y, str(client), ha="center", va="center", color=MUTED)
    axes.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2))
    axes.set_axis_off()


def _draw_matrix(axes: Axes, ends: Ids, sent: NDArray[np.float64], clients: int) -> None:
    """Draw the bytes from clients to clients, several of them in a cell if they are many."""
    cells = min(CELLS, clients)
    rows, columns = ends * cells // clients
    matrix = np.bincount(rows * cells + columns, sent, cells * cells).reshape(cells, cells)
    axes.imshow(matrix, cmap="Greys", extent=(0, clients, clients, 0), interpolation="nearest")
    axes.set(xlabel="To", ylabel="From")
