"""Pictures of populations, by matplotlib's object-oriented interface: no window and no global state."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from partitioning.common.checks import Integers
from partitioning.common.errors import InputError, listing, suggestion
from partitioning.common.text import CAPTION, caption
from partitioning.measures.statistics import summarise
from partitioning.pictures.panels import PANELS, Panel, count_norm, is_written_out, name_rows, ticks, write_counts
from partitioning.pictures.plain import PLAIN_TEXT, missing_glyphs_shown, plain_text
from partitioning.pictures.views import View, share_classes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PANELS", "View", "draw", "heatmap", "save"]

MOST_COLUMNS = 4096
"""Largest number of columns of a heatmap; more than the pixels of its width would only take memory."""

_KEY = 0.22  # width of a colour bar, in inches


@plain_text()
def draw(views: Sequence[View], panels: Sequence[str] = ()) -> "Figure":
    """Draw populations side by side on shared scales, in panels from top to bottom.

    Args:
        views: one or more; a class that a view lacks is empty there.
        panels: names in `PANELS`; by default all that have something to show.

    Raises:
        InputError: a panel is unknown or has nothing to show.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = _panels(share_classes(views), panels)
    heights, width = [height for height, _ in rows], 9.0 if len(views) == 1 else 6.5
    layout = ConstrainedLayoutEngine(h_pad=0.1)
    figure = Figure(figsize=(width * len(views) + 1, sum(heights) + 0.8 * len(rows) + 0.4), layout=layout)
    grid = figure.subplots(
        len(rows), len(views) + 1, squeeze=False, width_ratios=[width] * len(views) + [_KEY], height_ratios=heights
    )
    for (_, draw_panel), (*axes, key) in zip(rows, grid, strict=True):
        draw_panel(axes, key)
    for axes, view in zip(grid[0], views, strict=False):
        axes.set_title(f"{_headline(view)}\n\n{axes.get_title('left')}", loc="left", fontsize=10)
    return figure


def save(figure: "Figure", path: Path) -> None:
    """Write a figure as .png, .svg or .pdf; equal figures give equal bytes."""
    import matplotlib as mpl

    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    # The ids of an SVG are random otherwise.
    with mpl.rc_context({**PLAIN_TEXT, "svg.hashsalt": "partitioning"}), missing_glyphs_shown():
        _settle(figure)
        figure.savefig(path, dpi=150, metadata=undated.get(path.suffix.lower()))


@plain_text()
def heatmap(
    class_counts: Integers, classes: Sequence[object], *, title: str | None = None, width: float = 10.0
) -> "Figure":
    """Draw the samples of each client and class: one column per client, one row per class.

    Colours grow with the square root of the count, so that small clients show beside large ones.

    Args:
        class_counts: samples per client and class [K, C].
        classes: label of each class [C].
        title: headline; by default the counts and the C-score.
        width: width in inches; the height follows from the number of classes.
    """
    from matplotlib.figure import Figure

    clients, count = class_counts.shape
    norm = count_norm(int(class_counts.max()))
    figure = Figure(figsize=(width, float(np.clip(1.6 + 0.28 * count, 3.0, 9.0))), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(
        _columns(class_counts).T,
        aspect="auto",
        extent=(-0.5, clients - 0.5, count - 0.5, -0.5),
        cmap="YlGnBu",
        norm=norm,
        interpolation="antialiased",
    )
    axes.set_title(caption(title) if title is not None else _summary(class_counts))
    axes.set_xlabel("client")
    axes.set_ylabel("class")
    axes.set_xticks(ticks(clients))
    name_rows(axes, classes)
    if is_written_out(class_counts):
        write_counts(axes, class_counts, norm)
    figure.colorbar(image, ax=axes, label="samples", pad=0.01)
    return figure


def _columns(class_counts: Integers) -> "Integers | np.typing.NDArray[np.float64]":
    """Return a column's samples of each class, [columns, C]; if there are many clients, neighbours share a column."""
    if len(class_counts) <= MOST_COLUMNS:
        return class_counts
    edges = np.linspace(0, len(class_counts), MOST_COLUMNS + 1).astype(np.int64)
    sums = np.add.reduceat(class_counts, edges[:-1], axis=0, dtype=np.float64)
    return sums / np.diff(edges)[:, None]


def _settle(figure: "Figure") -> None:
    # The layout solver's positions differ in the last bits from call to call; round them.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        left, bottom, width, height = np.round(axes.get_position().bounds, 6).tolist()
        axes.set_position((left, bottom, width, height))


def _panels(views: Sequence[View], names: Sequence[str]) -> list[Panel]:
    for name in names:
        if name not in PANELS:
            raise InputError(f"panel {name!r} is unknown: choose {listing(PANELS)}{suggestion(name, PANELS)}")
    found = {name: PANELS[name](views) for name in dict.fromkeys(names or PANELS)}
    for name in names:
        if not found[name]:
            full = [panel for panel in PANELS if panel != name]
            raise InputError(f"panel {name!r} has nothing to show: choose {listing(full)}")
    return [panel for panels in found.values() for panel in panels]


def _headline(view: View) -> str:
    classes = int(view.class_counts.any(axis=0).sum())
    name = caption(view.name, 2 * CAPTION)
    return f"{name}\n{view.sizes.sum():,} samples on {view.sizes.size:,} clients, {classes:,} classes"


def _summary(class_counts: Integers) -> str:
    numbers = summarise(class_counts)
    return (
        f"{numbers.samples:,} samples on {numbers.clients:,} clients, {numbers.classes:,} classes, "
        f"C-score {numbers.c_score:.2f}"
    )
