"""Charts of a hyper-parameter search: a line for one key, a heat map for two, a ranking for more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from numpy.typing import NDArray

from raysim.plots.charts import FORMATS, HALF, HEIGHT, WIDE, Values, name_ticks, single_axes
from raysim.plots.style import COLOURS, INK, MUTED, to_svg

RANKED = 12  # points shown of a search over three keys or more
WORSE, BETTER, ABSENT = "#eef4f9", "#3f8fc4", "#f0f1f3"


def search_line(
    name: str,
    title: str,
    key: str,
    labels: Sequence[str],
    places: NDArray[np.int64],
    means: Values,
    stds: Values,
    chosen: int | None,
    y: str,
    kind: str,
) -> str:
    """Draw the metric over the values of one key.

    Args:
        name: prefix of the element's ids.
        title: text above the chart.
        key: label of the horizontal axis.
        labels: values of the key.
        places: index of each point's value, [n].
        means: mean of the metric at each point, [n]; NaN if a trial was lost.
        stds: standard deviations, [n].
        chosen: index of the chosen point; None before the choice.
        y: label of the vertical axis.
        kind: format of its values; see `Panel`.
    """
    with single_axes(name, HALF, HEIGHT * 1.1) as (figure, axes):
        axes.set_title(title)
        axes.grid(axis="y")
        known = np.isfinite(means)
        axes.errorbar(places[known], means[known], stds[known], fmt="o-", color=MUTED, capsize=3, elinewidth=1)
        if chosen is not None:
            _mark_chosen(axes, places[chosen], means[chosen])
        name_ticks(axes, labels)
        axes.set_xlabel(key)
        axes.set_ylabel(y)
        axes.yaxis.set_major_formatter(FORMATS[kind]())
        axes.margins(y=0.1)
        return to_svg(figure, name)


def search_heatmap(
    name: str,
    title: str,
    keys: tuple[str, str],
    labels: tuple[Sequence[str], Sequence[str]],
    means: Values,
    texts: Sequence[Sequence[str]],
    chosen: tuple[int, int] | None,
    is_smaller_better: bool,
) -> str:
    """Draw the metric over the values of two keys.

    Args:
        name: prefix of the element's ids.
        title: text above the chart.
        keys: labels of the vertical and the horizontal axis.
        labels: values of the two keys, [r] and [c].
        means: mean of the metric at each pair, [r, c]; NaN if a trial was lost.
        texts: the same as text, [r, c].
        chosen: row and column of the chosen pair; None before the choice.
        is_smaller_better: whether small means get the strong colour.
    """
    ends = [BETTER, WORSE] if is_smaller_better else [WORSE, BETTER]
    colours = LinearSegmentedColormap.from_list("search", ends).with_extremes(bad=ABSENT)
    with single_axes(name, HALF, HEIGHT * 1.1) as (figure, axes):
        axes.set_title(title)
        axes.pcolormesh(np.ma.masked_invalid(means), cmap=colours, edgecolors="white", linewidth=3)
        for row, column in np.ndindex(means.shape):
            is_chosen = (row, column) == chosen
            text, weight = texts[row][column] + " ●" * is_chosen, "bold" if is_chosen else "normal"
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=INK, weight=weight)
        axes.invert_yaxis()
        axes.set_yticks(np.arange(len(labels[0])) + 0.5, labels[0])
        axes.set_xticks(np.arange(len(labels[1])) + 0.5, labels[1])
        axes.tick_params(length=0, labelcolor=INK)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set_ylabel(keys[0])
        axes.set_xlabel(keys[1])
        return to_svg(figure, name)


def search_ranking(
    name: str, title: str, labels: Sequence[str], means: Values, stds: Values, chosen: int | None, x: str, kind: str
) -> str:
    """Draw the metric of points, the best on top.

    Args:
        name: prefix of the element's ids.
        title: text above the chart.
        labels: names of the points in order, [n].
        means: their means, [n].
        stds: their standard deviations, [n].
        chosen: index of the chosen point; None if it is not among them.
        x: label of the horizontal axis.
        kind: format of its values; see `Panel`.
    """
    with single_axes(name, WIDE, 0.9 + 0.24 * RANKED) as (figure, axes):
        axes.set_title(title)
        axes.grid(axis="x")
        places = np.arange(len(labels))
        axes.errorbar(means, places, xerr=stds, fmt="o", color=MUTED, capsize=2, elinewidth=1, markersize=5)
        if chosen is not None:
            _mark_chosen(axes, means[chosen], chosen)
        axes.set_yticks(places, labels)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_xlabel(x)
        axes.xaxis.set_major_formatter(FORMATS[kind]())
        return to_svg(figure, name)


def _mark_chosen(axes: Axes, x: float, y: float) -> None:
    axes.plot([x], [y], marker="o", markersize=8, color=COLOURS[0], linestyle="none")
