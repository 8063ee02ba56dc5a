"""Charts of a hyper-parameter search: a heat map for two keys, a ranking for more."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from partitioning.common.text import CAPTION, caption
from raysim.plots.charts import HALF, HEIGHT, WIDE, single_axes
from raysim.plots.panels import FORMATS, Values
from raysim.plots.style import INK, MUTED, to_svg

RANKED = 12  # points that a ranking has room for
WORSE, BETTER, ABSENT = "#eef4f9", "#3f8fc4", "#f0f1f3"
NUMBER = "#1c2128"  # on cells that stay light in a dark theme


def heatmap(
    name: str,
    title: str,
    axes_labels: tuple[str, str],
    ticks: tuple[Sequence[str], Sequence[str]],
    means: Values,
    texts: Sequence[Sequence[str]],
    is_smaller_better: bool,
) -> str:
    """Draw a metric over the values of two keys.

    Args:
        name: prefix of the element's ids.
        title: text above the chart.
        axes_labels: labels of the vertical and the horizontal axis.
        ticks: values of the two keys, [r] and [c].
        means: metric at each pair, [r, c]; NaN if it has none.
        texts: texts in the cells, [r, c].
        is_smaller_better: whether small values get the strong colour.
    """
    ends = [BETTER, WORSE] if is_smaller_better else [WORSE, BETTER]
    colours = LinearSegmentedColormap.from_list("search", ends).with_extremes(bad=ABSENT)
    with single_axes(name, HALF, HEIGHT * 1.1) as (figure, axes):
        figure.set_layout_engine("constrained")  # long names of rows take more than `Margins` gives them
        axes.set_title(caption(title))
        axes.pcolormesh(np.ma.masked_invalid(means), cmap=colours, edgecolors="white", linewidth=3)
        for row, column in np.ndindex(means.shape):
            axes.text(column + 0.5, row + 0.5, texts[row][column], ha="center", va="center", color=NUMBER)
        axes.invert_yaxis()
        axes.set_yticks(np.arange(len(ticks[0])) + 0.5, [caption(tick) for tick in ticks[0]])
        axes.set_xticks(np.arange(len(ticks[1])) + 0.5, [caption(tick) for tick in ticks[1]])
        axes.tick_params(length=0, labelcolor=INK)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set_ylabel(caption(axes_labels[0]))
        axes.set_xlabel(caption(axes_labels[1]))
        return to_svg(figure, name)


def ranking(name: str, title: str, labels: Sequence[str], means: Values, stds: Values, x: str, kind: str) -> str:
    """Draw means with error bars from top to bottom.

    Args:
        name: prefix of the element's ids.
        title: text above the chart.
        labels: names, [n].
        means: [n].
        stds: standard deviations, [n].
        x: label of the horizontal axis.
        kind: format of its values; see `Panel`.
    """
    with single_axes(name, WIDE, 0.9 + 0.24 * RANKED) as (figure, axes):
        axes.set_title(caption(title))
        axes.grid(axis="x")
        places = np.arange(len(labels))
        axes.errorbar(means, places, xerr=stds, fmt="o", color=MUTED, capsize=2, elinewidth=1, markersize=5)
        axes.set_yticks(places, [caption(label, 2 * CAPTION) for label in labels])
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_xlabel(caption(x))
        axes.xaxis.set_major_formatter(FORMATS[kind]())
        return to_svg(figure, name)
