"""Ticks of an axis and the widths of their labels, before matplotlib draws them."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axis import Axis
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedLocator
from numpy.typing import ArrayLike, NDArray

GAP = 4.0  # points between the labels of two ticks
PAD = 3.5  # points between a tick's mark and its label
MARK = 3.5  # length of a tick's mark in points
INSIDE = 1e-9  # share of an axis by which its last tick may lie outside

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

    def keep(self) -> None:
        """Let matplotlib draw these ticks, and not choose others."""
        self.axis.set_major_locator(FixedLocator(self.at.tolist()))


def depth_of(axis: Axis) -> float:
    """Return the points between the axes and the labels of an axis' ticks."""
    return float(axis.get_tick_params().get("length", MARK)) + PAD


def width_of(text: str, font: FontProperties) -> float:
    """Return the width of a text in points."""
    return text_to_path.get_text_width_height_descent(text, font, False)[0]


def _inside(axis: Axis, at: ArrayLike) -> tuple[Floats, Floats]:
    """Return the values that lie in an axis' limits, and their places on it, from 0 to 1."""
    scaled, values = axis.get_transform().transform, np.asarray(at, float)
    low, high = scaled(axis.get_view_interval())
    places = (scaled(values) - low) / (high - low)
    is_shown = np.abs(places - 0.5) <= 0.5 + INSIDE
    return values[is_shown], places[is_shown]
