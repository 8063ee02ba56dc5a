"""The paper's figures as pictures, in the style of the report's: values in, markup out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

from raysim.report.charts import HEIGHT, INK, LETTERS, WIDE, Stroke, style, to_svg
from raysim.studies.charts import Band, Box, dashed, draw_band, draw_box, shares, write_names

POINTS = 900  # rounds that all lines of a figure have together, which keeps its file small
GROUP = 0.8  # what the bars or boxes at a tick take of the way to the next
COLUMNS = 3  # panels side by side

At: TypeAlias = Mapping[str, Sequence[float]]
"""Values over the splits, by the tick that they stand at."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes; its series are `lines` over the rounds or, by label and tick, `values` over the splits.

    Args:
        title: above it.
        y: the vertical axis.
        is_share: whether that is from 0 to 1, and reads as per cent.
        lines: curves by label.
        values: of points, bars and boxes by label.
    """

    title: str
    y: str
    is_share: bool
    lines: Mapping[str, Band]
    values: Mapping[str, At]

    @property
    def labels(self) -> list[str]:
        """Of its series."""
        return [*self.lines, *self.values]

    @property
    def ticks(self) -> list[str]:
        """All that any of its series has."""
        return list(dict.fromkeys(tick for at in self.values.values() for tick in at))


@dataclass(frozen=True)
class Look:
    """What all panels of a figure have in common.

    Args:
        form: "curves", "points", "bars" or "boxes".
        x: the horizontal axis.
        is_log: whether the vertical axis is logarithmic.
        strokes: how each series is drawn, by label.
    """

    form: str
    x: str
    is_log: bool
    strokes: Mapping[str, Stroke]


def draw(name: str, look: Look, panels: Sequence[Panel]) -> str:
    """A figure: its panels, each on its own scale, and below them what the colours stand for.

    Args:
        name: what the elements' ids start with, unique in a page.
        look: of all panels.
        panels: at least one, each with a series.
    """
    columns = 2 if len(panels) == COLUMNS + 1 else min(len(panels), COLUMNS)
    rows = math.ceil(len(panels) / columns)
    labels = [label for label in look.strokes if any(label in panel.labels for panel in panels)]
    legend = _columns(labels)
    with style(name):
        layout = ConstrainedLayoutEngine(wspace=0.06, hspace=0.08)
        size = (WIDE, HEIGHT * 1.1 * rows + 0.2 * math.ceil(len(labels) / legend))
        figure = Figure(figsize=size, layout=layout, facecolor="white")
        grid = figure.subplots(rows, columns, squeeze=False).flat
        share = POINTS // sum(len(panel.labels) for panel in panels)
        for index, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            axes.set_title(panel.title)
            if index % columns == 0 or panel.y != panels[index - 1].y:
                axes.set_ylabel(panel.y)
            if index + columns >= len(panels):  # nothing below it
                axes.set_xlabel(look.x)
            FORMS[look.form](axes, panel, look, share)
            _scale(axes, panel, look)
        for axes in list(grid)[len(panels) :]:
            axes.remove()
        keys = [_key(look.form, look.strokes[label]) for label in labels]
        figure.legend(keys, labels, loc="outside lower left", ncols=legend, frameon=False, handlelength=1.8)
        return to_svg(figure, name)


def _columns(labels: Sequence[str]) -> int:
    """How many labels fit side by side below the panels."""
    return max(1, min(len(labels), LETTERS // (max(map(len, labels)) + 8)))


def _key(form: str, own: Stroke) -> Artist:
    if form in ("bars", "boxes"):
        return Patch(facecolor=own.colour)
    return Line2D([], [], color=own.colour, linestyle=dashed(own), linewidth=1.8)


def _curves(axes: Axes, panel: Panel, look: Look, share: int) -> None:
    axes.grid(visible=True)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    for band in panel.lines.values():
        draw_band(axes, band, max(share, 8))


def _points(axes: Axes, panel: Panel, look: Look, share: int) -> None:
    axes.grid(axis="y")
    for label, at in panel.values.items():
        own = look.strokes[label]
        # A tick that a series was not run at leaves a gap.
        means = [_mean(at[tick]) if tick in at else np.nan for tick in panel.ticks]
        spreads = [_spread(at[tick]) if tick in at else 0.0 for tick in panel.ticks]
        axes.errorbar(
            range(len(panel.ticks)),
            means,
            spreads if any(spreads) else None,
            color=own.colour,
            linestyle=dashed(own),
            linewidth=1.8,
            marker="o",
            markersize=4,
            capsize=2.5,
            elinewidth=1,
        )
    write_names(axes, panel.ticks)


def _bars(axes: Axes, panel: Panel, look: Look, share: int) -> None:
    axes.grid(axis="y")
    for label, tick, place, width in _places(panel):
        values = panel.values[label][tick]
        spread = _spread(values)
        axes.bar(place, _mean(values), 0.9 * width, color=look.strokes[label].colour)
        if spread:
            axes.errorbar(place, _mean(values), spread, color=INK, capsize=2, elinewidth=1, linestyle="none")
    write_names(axes, panel.ticks)


def _boxes(axes: Axes, panel: Panel, look: Look, share: int) -> None:
    axes.grid(axis="y")
    for label, tick, place, width in _places(panel):
        draw_box(axes, place, Box(label, panel.values[label][tick], look.strokes[label]), 0.75 * width)
    write_names(axes, panel.ticks)


FORMS: Mapping[str, Callable[[Axes, Panel, Look, int], None]] = {
    "curves": _curves,
    "points": _points,
    "bars": _bars,
    "boxes": _boxes,
}


def _places(panel: Panel) -> list[tuple[str, str, float, float]]:
    """Where the bars and boxes of a panel stand, side by side at their tick: label, tick, middle and width."""
    places = []
    for number, tick in enumerate(panel.ticks):
        here = [label for label, at in panel.values.items() if tick in at]
        width = GROUP / len(panel.values)
        first = number - width * (len(here) - 1) / 2
        places += [(label, tick, first + width * index, width) for index, label in enumerate(here)]
    return places


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _spread(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _scale(axes: Axes, panel: Panel, look: Look) -> None:
    """The vertical axis: as far as the means and spreads reach, bars from 0 on."""
    if look.is_log:
        means = np.array([*(value for line in panel.lines.values() for value in line.mean), *_means(panel)])
        if (means > 0).any():
            axes.set_yscale("log", nonpositive="clip")
            axes.set_ylim(means[means > 0].min() / 1.6, means.max() * 1.6)
            axes.yaxis.set_major_locator(LogLocator(numticks=6))
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        return
    if look.form != "bars":
        axes.margins(y=0.08)
    axes.yaxis.set_major_formatter(shares() if panel.is_share else ScalarFormatter())


def _means(panel: Panel) -> list[float]:
    return [_mean(values) for at in panel.values.values() for values in at.values()]
