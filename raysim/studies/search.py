"""The search of a grid: each point's trials by the metric that the search compares, and its chart."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from partitioning.common.text import CAPTION, caption
from raysim.common.statistics import mean_and_std
from raysim.config.reference import is_bound
from raysim.plots.charts import HALF, HEIGHT, WIDE, Chart, chart, single_axes
from raysim.plots.panels import FORMATS, Panel, Values
from raysim.plots.style import INK, MUTED, Stroke, themed, to_svg
from raysim.studies.read import Findings, TrialRow, keys_of
from raysim.studies.statistics import complete, complete_mean
from raysim.studies.words import MetricColumn, point_text, value_text

RANKED = 12  # points that a ranking has room for
WORSE, BETTER, UNKNOWN = "#eef4f9", "#3f8fc4", "#f0f1f3"
NUMBER = "#1c2128"  # on cells that stay light in a dark theme


@dataclass(frozen=True)
class SearchedPoint:
    """One point of a grid.

    Args:
        text: hyper-parameters, as JSON.
        values: metric of each trial; None for a trial that has not ended well.
        is_chosen: whether the point won.
    """

    text: str
    values: tuple[float | None, ...]
    is_chosen: bool

    @property
    def keys(self) -> Mapping[str, Any]:
        return keys_of(self.text)

    @property
    def complete(self) -> list[float]:
        """The values; empty if a trial was lost, and then the point cannot win."""
        return complete(self.values)

    @property
    def mean(self) -> float | None:
        return complete_mean(self.values)

    @property
    def std(self) -> float | None:
        return mean_and_std(self.complete)[1]

    @property
    def mark(self) -> str:
        """Mark behind the point's name in a chart."""
        return " ●" if self.is_chosen else ""


@dataclass(frozen=True)
class Search:
    """Points of one algorithm on one data set, with the trials that the search compared."""

    dataset: str
    algorithm: str
    points: tuple[SearchedPoint, ...]

    @property
    def title(self) -> str:
        return f"{self.algorithm} on {self.dataset}"

    @cached_property
    def axes(self) -> dict[str, list[Any]]:
        """Keys that all points have and that vary, with their values: numbers in order, others as they come."""
        points = [point.keys for point in self.points]
        common = [key for key in points[0] if all(key in point for point in points)]
        every = {key: _distinct(point[key] for point in points) for key in common}
        return {key: values for key, values in every.items() if len(values) > 1}


def searches_of(study: Findings) -> list[Search]:
    """Return every search of two points or more."""
    found = [_search(study, dataset, name) for dataset in study.datasets for name in study.algorithms]
    return [each for each in found if len(each.points) > 1]


def edge_notes(study: Findings) -> list[str]:
    """Return a sentence for each key whose chosen value is the smallest or the largest of its grid, and no bound."""
    found = []
    for search in searches_of(study):
        chosen = next((point.keys for point in search.points if point.is_chosen), {})
        for key, values in search.axes.items() if chosen else ():
            if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in values):
                continue
            ends = {values[-1]: ("largest", "larger"), values[0]: ("smallest", "smaller")}
            if chosen[key] in ends and not is_bound(key, chosen[key]):
                end, more = ends[chosen[key]]
                found.append(
                    f"The chosen {key} = {value_text(chosen[key])} of {search.title} is the {end} value of its grid: a "
                    f"better one may lie beyond; add {more} values to study.grid."
                )
    return found


def search_chart(name: str, search: Search, by: MetricColumn) -> Chart:
    """Draw a search: means for one key, a heat map for two, else a ranking of the best points.

    Args:
        name: prefix of the chart's ids.
        search: at least two points.
        by: column that the search compares.
    """
    if len(search.axes) == 2:
        return _heatmap(name, search, by)
    metric, points = by.metric, list(search.points)
    if len(search.axes) == 1:
        ((key, values),) = search.axes.items()
        points.sort(key=lambda point: values.index(point.keys[key]))
        samples = {value_text(point.keys[key]) + point.mark: point.complete or [np.nan] for point in points}
        panel = Panel(search.title, metric.title, metric.kind, samples={"": samples})
        return chart(name, search.title, [panel], {"": Stroke(MUTED, ())}, "points", x=key)
    points = [point for point in points if point.mean is not None]
    points.sort(key=lambda point: point.mean or 0.0, reverse=not by.is_smaller_better)
    best = points[:RANKED]
    means, stds = np.array([point.mean for point in best]), np.array([point.std or 0.0 for point in best])
    labels = [point_text(point.text) + point.mark for point in best]
    x = f"{metric.title}: the best {len(best)} of {len(search.points)} points"
    svg = ranking(name, search.title, labels, means, stds, x, metric.kind)
    return Chart(search.title, [themed(svg)], {}, True)


def _heatmap(name: str, search: Search, by: MetricColumn) -> Chart:
    (down, rows), (right, columns) = search.axes.items()
    means, texts = np.full((len(rows), len(columns)), np.nan), [[""] * len(columns) for _ in rows]
    for point in search.points:
        row, column = rows.index(point.keys[down]), columns.index(point.keys[right])
        means[row, column] = np.nan if point.mean is None else point.mean
        texts[row][column] = by.text(point.mean) + point.mark
    ticks = [value_text(value) for value in rows], [value_text(value) for value in columns]
    svg = heatmap(name, search.title, (down, right), ticks, means, texts, by.is_smaller_better)
    return Chart(search.title, [themed(svg)], {})


def _search(study: Findings, dataset: str, algorithm: str) -> Search:
    trials = study.of(dataset, algorithm)
    if study.config["study"].get("tune", {}).get("local_validation") is not None:
        # The trials of the table have whole clients, and do not measure what the search compares.
        trials = [each for each in trials if not each.is_final]
    # The winner has since run on all seeds and folds; its later trials were no part of the search.
    seen = {each.split for each in trials if not each.is_chosen}
    by_point: dict[str, list[TrialRow]] = defaultdict(list)
    for each in trials:
        if each.split in seen or not seen:
            by_point[each.point].append(each)
    points = [
        SearchedPoint(text, tuple(each.value(study.select_by) for each in own), any(each.is_chosen for each in own))
        for text, own in by_point.items()
    ]
    return Search(dataset, algorithm, tuple(points))


def _distinct(every: Iterable[Any]) -> list[Any]:
    values: list[Any] = []  # of any TOML type: lists cannot be hashed
    for each in every:
        if each not in values:
            values.append(each)
    return sorted(values) if all(isinstance(each, int | float) for each in values) else values


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
    colours = LinearSegmentedColormap.from_list("search", ends).with_extremes(bad=UNKNOWN)
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
