"""Ticks of an axis, drawn together: matplotlib makes five artists of each tick, which takes most of a chart's time."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axis import Axis, XAxis
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.markers import TICKDOWN, TICKLEFT
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedLocator, NullLocator
from numpy.typing import NDArray

from raysim.plots.style import EDGE, GRID, MUTED

GAP = 4.0  # points between the labels of two ticks
PAD = 3.5  # points between a tick's mark and its label
MARKS = ((3.5, 0.8), (2.0, 0.6))  # length and width in points of the marks of major and of minor ticks
INSIDE = 1e-9  # share of an axis by which its last tick may lie outside
BELOW = 0.5  # order of drawing: below curves, above the background

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ticks:
    """Ticks of a horizontal axis at the bottom, or of a vertical one on the left.

    Args:
        axis: axis in its final limits.
        at: values, [n].
        places: places on the axis, from 0 to 1, [n].
        texts: labels, [n].
        widths: widths of the labels in points, [n].
    """

    axis: Axis
    at: Floats
    places: Floats
    texts: tuple[str, ...]
    widths: Floats

    @classmethod
    def of(cls, axis: Axis, length: float = np.inf) -> "Ticks":
        """Return an axis' ticks; of numbers that would touch each other on `length` points, every second one."""
        at, places = _inside(axis, axis.get_majorticklocs())
        texts, font = axis.get_major_formatter().format_ticks(at.tolist()), axis.label.get_fontproperties()
        widths = np.array([width_of(text, font) for text in texts])
        shown = np.arange(len(at))
        if not isinstance(axis.get_major_locator(), FixedLocator):
            while (np.abs(np.diff(places[shown])) * length < (widths[shown[1:]] + widths[shown[:-1]]) / 2 + GAP).any():
                shown = shown[::2]
        return cls(axis, at[shown], places[shown], tuple(texts[index] for index in shown), widths[shown])

    def draw(self) -> None:
        """Draw the ticks in the place of the axis' own; those with a power of ten stay matplotlib's."""
        axis, axes, given = self.axis, self.axis.axes, self.axis.get_tick_params()
        if axis.get_major_formatter().get_offset():
            axis.set_major_locator(FixedLocator(self.at.tolist()))
            return
        is_x, minor = isinstance(axis, XAxis), _inside(axis, axis.get_minorticklocs())[0]
        for at, (size, width) in zip((self.at, minor), MARKS, strict=True):
            if len(at) and given.get("length", size):
                marker = TICKDOWN if is_x else TICKLEFT
                options = {"marker": marker, "markersize": size, "markeredgewidth": width, "clip_on": False}
                self._add(at, np.zeros(len(at)), linestyle="none", color=EDGE, **options)
        if given.get("gridOn"):
            ends = np.tile([0.0, 1.0, np.nan], len(self.at))
            self._add(np.repeat(self.at, 3), ends, color=GRID, linewidth=0.8)
        find = axes.get_xaxis_text1_transform if is_x else axes.get_yaxis_text1_transform
        place, vertical, horizontal = find(depth_of(axis))
        for value, text in zip(self.at.tolist(), self.texts, strict=True):
            x, y = (value, 0.0) if is_x else (0.0, value)
            colour = given.get("labelcolor", MUTED)
            axes.text(x, y, text, transform=place, va=vertical, ha=horizontal, color=colour, zorder=BELOW)
        axis.set_major_locator(NullLocator())
        axis.set_minor_locator(NullLocator())

    def _add(self, along: Floats, across: Floats, **options: Any) -> None:
        """Add a line without a change of the axes' limits; `across` is from 0 to 1."""
        axes, is_x = self.axis.axes, isinstance(self.axis, XAxis)
        place = axes.get_xaxis_transform() if is_x else axes.get_yaxis_transform()
        x, y = (along, across) if is_x else (across, along)
        axes.add_artist(Line2D(x, y, transform=place, zorder=BELOW, **options))


def depth_of(axis: Axis) -> float:
    """Return the points between the axes and the labels of an axis' ticks."""
    return float(axis.get_tick_params().get("length", MARKS[0][0])) + PAD


def width_of(text: str, font: FontProperties) -> float:
    """Return the width of a text in points."""
    return text_to_path.get_text_width_height_descent(text, font, False)[0]


def _inside(axis: Axis, at: Any) -> tuple[Floats, Floats]:
    """Return the values that lie in an axis' limits, and their places on it, from 0 to 1."""
    scaled, values = axis.get_transform().transform, np.asarray(at, float)
    low, high = scaled(axis.get_view_interval())
    places = (scaled(values) - low) / (high - low)
    is_shown = np.abs(places - 0.5) <= 0.5 + INSIDE
    return values[is_shown], places[is_shown]
