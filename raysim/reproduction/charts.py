"""The paper's figures as pictures, in the style of the report's: values in, markup out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from raysim.studies.charts import (
    Band,
    Box,
    dashed,
    draw_band,
    draw_box,
    draw_dots,
    draw_spreads,
    draw_values,
    shares,
    write_names,
)

SIZE = 56_000  # bytes of a figure's file, which decides in how many rounds its lines are drawn
OF_AXES, OF_LINE = 2200, 450  # bytes of a panel and of a line
OF_ROUND = 14  # bytes of a line in a round; of its band twice as many
CROWD = 6  # with more lines than this in a panel their bands would hide each other, and are left out
DOTTED = 12  # with more rounds or values than this a line or a box goes without a dot at each
BESIDE = 0.05  # of the way to the next tick, from one point to another at a tick, so that their deviations show
DENSE = 100  # with less room than so many rounds a line is of means over intervals, for its peaks would be all of it
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
        grid = list(figure.subplots(rows, columns, squeeze=False).flat)
        panels = [replace(panel, lines=_fitted(panel, _room(panels))) for panel in panels]
        for index, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            axes.set_title(panel.title)
            if index % columns == 0 or panel.y != panels[index - 1].y:
                axes.set_ylabel(panel.y)
            if index + columns >= len(panels):  # nothing below it
                axes.set_xlabel(look.x)
            FORMS[look.form](axes, panel, look)
            if panel.ticks:
                write_names(axes, panel.ticks, LETTERS // columns)
            _scale(axes, panel, look)
        for axes in grid[len(panels) :]:
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


def _room(panels: Sequence[Panel]) -> int:
    """In how many rounds each line can be drawn, of as many as all their files may be long."""
    lines = sum(len(panel.lines) for panel in panels)
    widths = sum(3 if _has_bands(panel) else 1 for panel in panels for _ in panel.lines)
    return max(16, (SIZE - OF_AXES * len(panels) - OF_LINE * lines) // (OF_ROUND * max(widths, 1)))


def _has_bands(panel: Panel) -> bool:
    return len(panel.lines) <= CROWD and any(line.std.any() for line in panel.lines.values())


def _fitted(panel: Panel, room: int) -> Mapping[str, Band]:
    """A panel's lines as they are drawn."""
    fitted = {
        label: line.thinned(room) if room >= DENSE else line.averaged(room) for label, line in panel.lines.items()
    }
    if _has_bands(panel):
        return fitted
    return {label: replace(line, std=np.zeros_like(line.std)) for label, line in fitted.items()}


def _curves(axes: Axes, panel: Panel, look: Look) -> None:
    axes.grid(axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    axes.tick_params(axis="y", length=0)
    for band in panel.lines.values():
        draw_band(axes, band, len(band.rounds) <= DOTTED)


def _points(axes: Axes, panel: Panel, look: Look) -> None:
    axes.grid(axis="y")
    middle = (len(panel.values) - 1) / 2
    for number, (label, at) in enumerate(panel.values.items()):
        ticks = np.arange(len(panel.ticks)) + BESIDE * (number - middle)
        own = look.strokes[label]
        # A tick that a series was not run at leaves a gap.
        means = [_mean(at[tick]) if tick in at else np.nan for tick in panel.ticks]
        spreads = [_spread(at[tick]) if tick in at else 0.0 for tick in panel.ticks]
        axes.plot(ticks, means, color=own.colour, linestyle=dashed(own), linewidth=1.8)
        draw_dots(axes, ticks, means, own.colour, 4.5)
        draw_spreads(axes, ticks, means, spreads, own.colour)


def _bars(axes: Axes, panel: Panel, look: Look) -> None:
    axes.grid(axis="y")
    places = _places(panel)
    means = [_mean(panel.values[label][tick]) for label, tick, _, _ in places]
    for (label, _, place, width), mean in zip(places, means, strict=True):
        axes.bar(place, mean, 0.9 * width, color=look.strokes[label].colour)
    spreads = [_spread(panel.values[label][tick]) for label, tick, _, _ in places]
    draw_spreads(axes, [place for _, _, place, _ in places], means, spreads, INK)


def _boxes(axes: Axes, panel: Panel, look: Look) -> None:
    axes.grid(axis="y")
    for label, tick, place, width in _places(panel):
        box = Box(label, panel.values[label][tick], look.strokes[label])
        draw_box(axes, place, box, 0.75 * width)
        if len(box.values) <= DOTTED:
            draw_values(axes, place, box, 0.75 * width)


FORMS: Mapping[str, Callable[[Axes, Panel, Look], None]] = {
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
        means = np.array([*(value for line in panel.lines.values() for value in line.mean), *_values(panel)])
        if (means > 0).any():
            low, high = means[means > 0].min(), means.max()
            axes.set_yscale("log", nonpositive="clip")
            axes.set_ylim(low / 1.3, high * 1.3)
            axes.yaxis.set_major_locator(LogLocator(numticks=6) if high > 20 * low else MaxNLocator(5))
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        return
    if look.form != "bars":
        axes.margins(y=0.08)
    axes.yaxis.set_major_formatter(shares() if panel.is_share else ScalarFormatter())


def _values(panel: Panel) -> list[float]:
    return [value for at in panel.values.values() for values in at.values() for value in values]
