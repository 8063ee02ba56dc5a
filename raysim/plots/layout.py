"""Layout of a figure with one axes."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import LayoutEngine

PAD = 1 / 24  # inches around the figure, as in matplotlib's constrained layout
TRIES = 3  # each may change the ticks


class SnugLayout(LayoutEngine):
    """Axes as large as their title and labels leave room for.

    The figure is the one of matplotlib's constrained layout, which measures each label twice. Measuring takes longer
    than drawing.
    """

    _adjust_compatible = True
    _colorbar_gridspec = False

    def execute(self, fig: Figure) -> None:
        (axes,) = fig.axes
        renderer = fig._get_renderer()  # type: ignore[attr-defined]
        ticks = None
        for _ in range(TRIES):
            if ticks == (ticks := _ticks(axes)):
                break
            position, outside = axes.get_position(), axes.get_tightbbox(renderer, for_layout_only=True)
            assert outside is not None
            box = outside.transformed(fig.transFigure.inverted())
            pad = PAD / np.asarray(fig.get_size_inches())
            low = np.asarray(position.min) - box.min + pad
            high = 1 - (np.asarray(box.max) - position.max) - pad
            left, bottom, width, height = [*low, *(high - low)]
            axes._set_position((left, bottom, width, height))  # type: ignore[attr-defined]  # `set_position` ends a layout


def _ticks(axes: Axes) -> Any:
    return [np.asarray(axis.get_majorticklocs()).tolist() for axis in (axes.xaxis, axes.yaxis)]
