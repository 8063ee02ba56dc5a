"""A study's pictures, in the style of the run report's: values in, markup out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle
from matplotlib.ticker import Formatter, FuncFormatter, MaxNLocator, ScalarFormatter
from numpy.typing import ArrayLike, NDArray

from raysim.report.charts import HALF, HEIGHT, INK, LETTERS, MARKER_ROUNDS, MUTED, WIDE, Stroke, style, to_svg
from raysim.studies.search import Point, Search
from raysim.studies.words import Measured, point_text, value_text

Values = NDArray[np.float64]

BAND, BOX = 0.15, 0.22  # how opaque a band of deviations and the inside of a box are
RANKED = 12  # points shown of a grid of three keys or more
DENSE = 600  # rounds of a curve that are drawn at most: more of them no eye tells apart
BETTER, WORSE, NONE = np.array(to_rgba("#3f8fc4")), np.array(to_rgba("#eef4f9")), "#f0f1f3"


@dataclass(frozen=True)
class Band:
    """One algorithm's curve: mean and deviation over trials, by evaluated round."""

    rounds: Values
    mean: Values
    std: Values
    stroke: Stroke

    def thinned(self, most: int) -> Band:
        """The same in so many rounds at most, the ends and the peaks and troughs of the mean among them."""
        if len(self.rounds) <= most:
            return self
        ends = np.array([0, len(self.rounds) - 1])
        parts = np.array_split(np.arange(len(self.rounds)), max(1, most // 2 - 1))
        peaks = [part[pick(self.mean[part])] for part in parts for pick in (np.argmin, np.argmax)]
        kept = np.unique([*ends, *peaks])
        return Band(self.rounds[kept], self.mean[kept], self.std[kept], self.stroke)

    def averaged(self, most: int) -> Band:
        """The same as means over so many intervals at most."""
        if len(self.rounds) <= most:
            return self
        parts = np.array_split(np.arange(len(self.rounds)), most)
        rounds, mean, std = (
            np.array([each[part].mean() for part in parts]) for each in (self.rounds, self.mean, self.std)
        )
        return Band(rounds, mean, std, self.stroke)

    def as_progress(self) -> Band:
        """The same with per cent of the last round, which is always evaluated, in the place of rounds."""
        return replace(self, rounds=100 * self.rounds / self.rounds[-1:])


@dataclass(frozen=True)
class Panel:
    """A metric by round."""

    measured: Measured
    bands: Sequence[Band]


@dataclass(frozen=True)
class Box:
    """One algorithm's values by (seed, fold)."""

    label: str
    values: Sequence[float]
    stroke: Stroke


def curves(name: str, panels: Sequence[Panel]) -> str:
    """Metrics over rounds: a line at the mean over trials, in a band of one standard deviation to each side."""
    with style(name):
        figure = Figure(figsize=(WIDE, HEIGHT * 1.15), layout=ConstrainedLayoutEngine(wspace=0.06))
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            axes.grid(visible=True)
            axes.set_title(panel.measured.target)
            axes.set_xlabel("Round")
            axes.set_ylabel(panel.measured.metric.title)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
            axes.yaxis.set_major_formatter(_formatter(panel.measured))
            axes.margins(y=0.08)
            for band in panel.bands:
                draw_band(axes, band.thinned(DENSE), len(band.rounds) <= MARKER_ROUNDS)
        return to_svg(figure, name)


def boxes(name: str, panels: Sequence[tuple[str, Sequence[Box]]], measured: Measured) -> str:
    """Quartiles and extremes of each algorithm's values, and each value as a dot; each data set on its own scale."""
    columns = min(len(panels), 2)
    height = math.ceil(len(panels) / columns)
    with style(name):
        figure = Figure(figsize=(WIDE, HEIGHT * 1.15 * height), layout=ConstrainedLayoutEngine(hspace=0.08))
        grid = figure.subplots(height, columns, squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.remove()
        for axes, (title, group) in zip(grid.flat, panels, strict=False):
            axes.set_title(title)
            axes.grid(axis="y")
            axes.set_ylabel(measured.metric.title)
            axes.yaxis.set_major_formatter(_formatter(measured))
            for place, box in enumerate(group):
                draw_box(axes, place, box)
                draw_values(axes, place, box)
            write_names(axes, [box.label for box in group], LETTERS // columns)
        return to_svg(figure, name)


def searched(name: str, search: Search, measured: Measured) -> str:
    """A grid's points: a line for one key, a heat map for two, else the best of them in order."""
    drawing = {1: _line, 2: _heatmap}.get(len(search.axes), _ranking)
    with style(name):
        size = (WIDE, 0.9 + 0.24 * RANKED) if len(search.axes) > 2 else (HALF, HEIGHT * 1.1)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        axes.set_title(f"{search.algorithm} on {search.dataset}")
        drawing(axes, search, measured)
        return to_svg(figure, name)


def draw_band(axes: Axes, band: Band, is_dotted: bool) -> None:
    """A line at the mean, in a band of one standard deviation to each side; dotted at each round."""
    colour = band.stroke.colour
    if band.std.any():
        low, high = band.mean - band.std, band.mean + band.std
        axes.fill_between(band.rounds, low, high, color=colour, alpha=BAND, linewidth=0)
    axes.plot(band.rounds, band.mean, color=colour, linestyle=dashed(band.stroke), linewidth=1.8)
    if is_dotted:
        draw_dots(axes, band.rounds, band.mean, colour)


def dashed(own: Stroke) -> tuple[float, tuple[float, ...]] | Literal["solid"]:
    """A line's pattern as matplotlib takes it."""
    return (0, own.dashes) if own.dashes else "solid"


def draw_dots(axes: Axes, places: ArrayLike, values: ArrayLike, colour: str, size: float = 3.5) -> None:
    """Dots, as one line that is as long as wide at each: a marker for each would be most of the file."""
    x, y = np.repeat(np.asarray(places, float), 3), np.repeat(np.asarray(values, float), 3)
    y[2::3] = np.nan
    axes.plot(x, y, color=colour, linewidth=size, solid_capstyle="round")


def draw_spreads(axes: Axes, places: ArrayLike, values: ArrayLike, spreads: ArrayLike, colour: str) -> None:
    """One standard deviation to each side of values, in one line with gaps."""
    x, y = np.repeat(np.asarray(places, float), 3), np.repeat(np.asarray(values, float), 3)
    y += np.repeat(np.asarray(spreads, float), 3) * np.tile([-1.0, 1.0, np.nan], len(y) // 3)
    axes.plot(x, y, color=colour, linewidth=1, solid_capstyle="butt")


def draw_box(axes: Axes, place: float, box: Box, width: float = 0.5) -> None:
    """Quartiles and extremes."""
    colour, half, cap = box.stroke.colour, width / 2, width / 4
    least, lower, median, upper, most = np.percentile(box.values, [0, 25, 50, 75, 100])
    inside = (*to_rgba(colour)[:3], BOX)
    axes.add_patch(
        Rectangle((place - half, lower), width, upper - lower, facecolor=inside, edgecolor=colour, linewidth=1.2)
    )
    # In one line, with gaps: a cap, a whisker, a whisker, a cap.
    across, gap = [place - cap, place + cap, np.nan], [place, place, np.nan]
    heights = [least, least, np.nan, least, lower, np.nan, upper, most, np.nan, most, most, np.nan]
    axes.plot([*across, *gap, *gap, *across], heights, color=colour, linewidth=1.2)
    axes.plot([place - half, place + half], [median, median], color=colour, linewidth=2.2, solid_capstyle="butt")


def draw_values(axes: Axes, place: float, box: Box, width: float = 0.5) -> None:
    """A dot for each of a box's values, side by side in the order of seeds and folds, so that equal ones show."""
    spread = width * np.linspace(-0.32, 0.32, len(box.values)) if len(box.values) > 1 else [0.0]
    draw_dots(axes, place + np.asarray(spread), box.values, box.stroke.colour)


def write_names(axes: Axes, names: Sequence[str], letters: int = LETTERS // 2) -> None:
    """Names below the axes, at 0, 1, ...; aslant where so many letters as fit side by side are too few."""
    is_aslant = len(names) * (max(map(len, names)) + 2) > letters
    aslant = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if is_aslant else {}
    axes.set_xticks(range(len(names)), names, **aslant)  # type: ignore[arg-type]  # its stubs want one type for all
    axes.tick_params(axis="x", length=0, labelcolor=INK)
    axes.set_xlim(-0.6, len(names) - 0.4)


def _line(axes: Axes, search: Search, measured: Measured) -> None:
    ((key, values),) = search.axes.items()
    axes.grid(axis="y")
    known = sorted(
        ((values.index(point.keys[key]), point.mean, point) for point in search.points if point.mean is not None),
        key=lambda each: each[0],
    )
    axes.plot([place for place, _, _ in known], [mean for _, mean, _ in known], color=MUTED)
    for place, mean, point in known:
        axes.errorbar([place], [mean], [point.std or 0.0], color=MUTED, capsize=3, linewidth=1)
        _mark(axes, place, mean, point)
    write_names(axes, [value_text(value) for value in values])
    axes.set_xlabel(key)
    _metric_axis(axes, measured)


def _heatmap(axes: Axes, search: Search, measured: Measured) -> None:
    (down, rows), (right, columns) = search.axes.items()
    known = [point.mean for point in search.points if point.mean is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    for point in search.points:
        x, y = columns.index(point.keys[right]), rows.index(point.keys[down])
        share = 1.0 if point.mean is None or high == low else (point.mean - low) / (high - low)
        goodness = 1 - share if measured.is_smaller_better else share
        colour = NONE if point.mean is None else tuple(WORSE + goodness * (BETTER - WORSE))
        axes.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=colour, edgecolor="none"))
        weight = "bold" if point.is_chosen else "normal"
        text = f"{measured.text(point.mean)}{' ●' if point.is_chosen else ''}"
        axes.text(x, y, text, ha="center", va="center", color=INK, weight=weight)
    axes.set_xticks(range(len(columns)), [value_text(value) for value in columns])
    axes.set_yticks(range(len(rows)), [value_text(value) for value in rows])
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_xlabel(right)
    axes.set_ylabel(down)


def _ranking(axes: Axes, search: Search, measured: Measured) -> None:
    known = [(point.mean, point) for point in search.points if point.mean is not None]
    known.sort(key=lambda each: each[0], reverse=not measured.is_smaller_better)
    best = known[:RANKED]
    axes.grid(axis="x")
    for place, (mean, point) in enumerate(best):
        axes.errorbar([mean], [place], xerr=[point.std or 0.0], color=MUTED, capsize=2, linewidth=1)
        _mark(axes, mean, place, point)
    axes.set_yticks(range(len(best)), [point_text(point.text) for _, point in best])
    axes.set_ylim(len(best) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.set_xlabel(f"{measured.metric.title}: the best {len(best)} of {len(search.points)} points")
    axes.xaxis.set_major_formatter(_formatter(measured))


def _mark(axes: Axes, x: float, y: float, point: Point) -> None:
    axes.plot(
        [x],
        [y],
        marker="o",
        markersize=8 if point.is_chosen else 5,
        color="#0072b2" if point.is_chosen else MUTED,
        linestyle="none",
    )


def _metric_axis(axes: Axes, measured: Measured) -> None:
    axes.set_ylabel(measured.metric.title)
    axes.yaxis.set_major_formatter(_formatter(measured))
    axes.margins(y=0.1)


def _formatter(measured: Measured) -> Formatter:
    """Of an axis with the metric, on which differences may be small."""
    return shares() if measured.metric.kind == "share" else ScalarFormatter()


def shares() -> Formatter:
    """Of an axis from 0 to 1 whose values read as per cent."""
    return FuncFormatter(lambda value, _: f"{100 * value:g} %")
