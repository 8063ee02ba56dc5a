"""Margins of a figure with one pair of axes, from the widths of its texts: much faster than matplotlib's solver."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import LayoutEngine
from matplotlib.text import Text
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedLocator
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

PAD = 3.0  # points between texts and the figure's edge
GAP = 4.0  # points between tick labels and the axis' name
TITLE = 6.0  # points between the axes and the title's baseline
POWER = 3.0  # points below the power of ten of the vertical axis
ASCENT = 0.76  # height of letters above the baseline, in font sizes
ROOM = 0.3  # share of the figure's width that the axes keep beside very long names
BAR = 20  # height of a colour bar, in widths
APART = 4.0  # points between the labels of two ticks
BESIDE = 3.5  # points between a tick's mark and its label
MARK = 3.5  # length of a tick's mark in points
OUTSIDE = 1e-9  # share of an axis by which its last tick may lie outside

Floats = NDArray[np.float64]


class Margins(LayoutEngine):
    """Layout of a figure with one pair of axes, and with a colour bar on their right if it has one.

    Tick labels must be horizontal.

    Args:
        above: points that a legend takes above the axes.
    """

    _adjust_compatible = False
    _colorbar_gridspec = False

    def __init__(self, above: float = 0.0) -> None:
        super().__init__()
        self._above = above

    def execute(self, fig: Figure) -> None:
        """Place the axes and their texts, once; a text is cut off only if it is longer than the figure."""
        axes, *bars = fig.axes
        x, y, text = axes.xaxis, axes.yaxis, axes.get_title(loc="left")
        size = width, height = 72 * fig.get_size_inches()
        line, pad, drawn = x.label.get_fontproperties().get_size_in_points(), TITLE, []
        above = TITLE + ASCENT * line if text else self._above
        left, right, bottom, top = PAD, width - PAD, PAD, height - PAD - above
        if axes.axison:
            bottom, top = bottom + _name(x, line, (0, -1)), min(top, height - PAD - line / 2)
            _set_box(axes, size, left, right, bottom, top)  # the number of ticks follows from the height
            drawn = [Ticks.of(y)]
            left += min(_name(y, drawn[0].widths.max(initial=0), (-1, 0)), (1 - ROOM) * width)
            if y.get_major_formatter().get_offset():
                top, pad = top - POWER - line, pad + POWER + line
        for bar in bars:
            _set_box(bar, size, left, right, bottom, top)
            right -= _name(bar.yaxis, Ticks.of(bar.yaxis).widths.max(initial=0), (1, 0))
            start = right - (top - bottom) / BAR
            _set_box(bar, size, start, right, bottom, top)
            right = start - GAP
        if axes.axison:
            _set_box(axes, size, left, right, bottom, top)
            drawn.append(Ticks.of(x, right - left))
            places, widths = drawn[1].places, drawn[1].widths
            # The labels of ticks at the ends of the axes reach beyond them.
            left = max(left, PAD + (widths / 2 - places * (right - left)).max(initial=0))
            late = places > 0.5
            right = left + ((right - left - widths[late] / 2) / places[late]).min(initial=right - left)
            x.label.set_x(_inside(x.label, (left + right) / 2, width, left, right))
            y.label.set_y(_inside(y.label, (bottom + top) / 2, height, bottom, top))
        _set_box(axes, size, left, right, bottom, top)
        for ticks in drawn:
            ticks.keep()
        if text:
            title = axes.set_title(text, loc="left", y=1.0, pad=pad)
            title.set_x(_inside(title, left, width, left, right))
        fig.set_layout_engine("none")


def _set_box(axes: Axes, size: Floats, left: float, right: float, bottom: float, top: float) -> None:
    """Set the place of axes in a figure of a size, in points."""
    width, height = size
    axes.set_position((left / width, bottom / height, (right - left) / width, (top - bottom) / height))


def _name(axis: Axis, labels: float, side: tuple[int, int]) -> float:
    """Place an axis' name beyond its tick labels; return the points that both take beside the axes.

    Args:
        axis: axis with its name.
        labels: width or height of its tick labels in points.
        side: direction from the middle of the axes.
    """
    away = float(axis.get_tick_params().get("length", MARK)) + BESIDE + labels
    if not axis.label.get_text():
        return away
    right, up = ((away + GAP) / 72 * each for each in side)
    beyond = ScaledTranslation(right, up, axis.axes.figure.dpi_scale_trans)
    axis.set_label_coords(0.5 + side[0] / 2, 0.5 + side[1] / 2, axis.axes.transAxes + beyond)
    return away + GAP + axis.label.get_fontproperties().get_size_in_points()


def _inside(text: Text, at: float, size: float, low: float, high: float) -> float:
    """Return the place of a text, as a share of an axis: as near to `at` as it fits into the figure.

    Args:
        text: text along the axis.
        at: preferred place, in points.
        size: width or height of the figure.
        low: begin of the axis.
        high: end of the axis.
    """
    length = width_of(text.get_text(), text.get_fontproperties())
    before = 0.0 if text.get_horizontalalignment() == "left" else length / 2
    return (max(PAD + before, min(at, size - PAD - length + before)) - low) / (high - low)


@dataclass(frozen=True)
class Ticks:
    """Ticks of a horizontal axis at the bottom, or of a vertical one on the left.

    Args:
        axis: axis in its final limits.
        at: values, [n].
        places: places on the axis, from 0 to 1, [n].
        widths: widths of the labels in points, [n].
    """

    axis: Axis
    at: Floats
    places: Floats
    widths: Floats

    @classmethod
    def of(cls, axis: Axis, length: float = np.inf) -> "Ticks":
        """Return an axis' ticks; of numbers that would touch each other on `length` points, every second one."""
        scaled, at = axis.get_transform().transform, np.asarray(axis.get_majorticklocs(), float)
        low, high = scaled(axis.get_view_interval())
        places = (scaled(at) - low) / (high - low)
        is_inside = np.abs(places - 0.5) <= 0.5 + OUTSIDE
        at, places = at[is_inside], places[is_inside]
        texts, font = axis.get_major_formatter().format_ticks(at.tolist()), axis.label.get_fontproperties()
        widths = np.array([width_of(text, font) for text in texts])
        shown = np.arange(len(at))
        if not isinstance(axis.get_major_locator(), FixedLocator):
            while (
                np.abs(np.diff(places[shown])) * length < (widths[shown[1:]] + widths[shown[:-1]]) / 2 + APART
            ).any():
                shown = shown[::2]
        return cls(axis, at[shown], places[shown], widths[shown])

    def keep(self) -> None:
        """Let matplotlib draw these ticks, and not choose others."""
        self.axis.set_major_locator(FixedLocator(self.at.tolist()))


def width_of(text: str, font: FontProperties) -> float:
    """Return the width of a text in points."""
    return text_to_path.get_text_width_height_descent(text, font, False)[0]
