"""Margins of a figure with one pair of axes, from the widths of its texts: much faster than matplotlib's solver."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.layout_engine import LayoutEngine
from matplotlib.text import Text
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

from raysim.plots.ticks import Ticks, depth_of, width_of

PAD = 3.0  # points between texts and the figure's edge
GAP = 4.0  # points between tick labels and the axis' name
TITLE = 6.0  # points between the axes and the title's baseline
POWER = 3.0  # points below the power of ten of the vertical axis
ASCENT = 0.76  # height of letters above the baseline, in font sizes
ROOM = 0.3  # share of the figure's width that the axes keep beside very long names
BAR = 20  # height of a colour bar, in widths

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
    away = depth_of(axis) + labels
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
