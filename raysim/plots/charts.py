"""Charts: curves over rounds, points, bars and boxes; a round's stages; histograms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import Formatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, ScalarFormatter
from numpy.typing import NDArray

from raysim.common.statistics import mean_and_std
from raysim.common.units import human_bytes
from raysim.plots.style import GRID, INK, Stroke, style, to_svg

GREYS = ["#5b7083", "#c3ccd5", "#8c9aa8"]  # of client counts: no algorithm has these colours
WIDE, HALF, HEIGHT = 9.2, 4.5, 2.6  # inches: the page's column, half of it, and one row of panels
LETTERS = 110  # letters that fit side by side into the page's column
MARKERS, MARKER_ROUNDS = 400, 40  # markers in a figure, and in a curve; beyond either, a curve has none
DENSE = 600  # rounds drawn of a curve; the eye cannot resolve more
CRAMPED = 100  # below so many rounds a curve shows means over intervals: its peaks would fill all of it
SPREAD = 20  # seconds are on a logarithmic scale if the slowest round exceeds the median by this factor
BAND, BOX = 0.15, 0.22  # opacity of deviation bands and of the inside of boxes
BESIDE = 0.05  # distance of the points at one tick, so that their error bars do not hide each other
GROUP = 0.8  # share of a tick's room that its bars or boxes take
THICK = 0.48  # thickness of a stage bar; 1 is the distance to the next bar

Values = NDArray[np.float64]
Chart = tuple[str, str, bool]
"""Title of a figure, its markup, and whether it takes the page's whole width."""

FORMATS: dict[str, Callable[[], Formatter]] = {
    "number": ScalarFormatter,
    "seconds": ScalarFormatter,
    "share": lambda: FuncFormatter(lambda value, _: f"{100 * value:g} %"),
    "bytes": lambda: FuncFormatter(lambda value, _: human_bytes(value)),
}


@dataclass(frozen=True)
class Curve:
    """Values by round.

    Args:
        rounds: [n].
        values: [n]; NaN if a round has no value.
        std: standard deviation over trials, [n]; None for a single run.
        marks: rounds to mark at the foot of the panel.
    """

    rounds: Values
    values: Values
    std: Values | None = None
    marks: Values = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Args:
        title: text above the panel.
        y: label of the vertical axis.
        kind: format of its values: "number", "share" (0 to 1, shown in per cent), "bytes" or "seconds".
        curves: curves by label, for the form "curves".
        samples: values over trials by label and tick, for the other forms.
    """

    title: str
    y: str
    kind: str = "number"
    curves: Mapping[str, Curve] = field(default_factory=dict)
    samples: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)

    @property
    def labels(self) -> list[str]:
        return [*self.curves, *self.samples]

    @property
    def ticks(self) -> list[str]:
        """Ticks of all samples, in order of appearance."""
        return list(dict.fromkeys(tick for at in self.samples.values() for tick in at))


def draw(
    name: str,
    panels: Sequence[Panel],
    strokes: Mapping[str, Stroke],
    form: str = "curves",
    *,
    x: str = "Round",
    columns: int = 3,
    is_wide: bool = True,
    is_shared: bool = False,
    is_log: bool = False,
    has_legend: bool = False,
    most: int = DENSE,
) -> str:
    """Draw panels side by side.

    Args:
        name: prefix of the element's ids, unique in a page.
        panels: at least one.
        strokes: stroke of each label.
        form: "curves", "points" (means with error bars), "bars" or "boxes".
        x: label of the horizontal axis.
        columns: panels in a row.
        is_wide: whether one column is as wide as the page; several columns always are.
        is_shared: whether all panels have the same scale.
        is_log: whether the vertical axis is logarithmic.
        has_legend: whether a legend stands below the panels.
        most: rounds drawn of a curve.
    """
    columns = min(columns, len(panels))
    labels = [label for label in strokes if has_legend and any(label in panel.labels for panel in panels)]
    legend = max(1, min(len(labels), LETTERS // (max(map(len, labels), default=0) + 8)))
    rows, height = math.ceil(len(panels) / columns), HEIGHT * (1.15 if is_wide and columns < 3 else 1)
    size = (WIDE if is_wide or columns > 1 else HALF, height * rows + 0.2 * math.ceil(len(labels) / legend))
    with style(name):
        # A file of its own, which has a legend, may lie on a dark page.
        figure = Figure(size, layout=ConstrainedLayoutEngine(wspace=0.06, hspace=0.08))
        figure.set_facecolor("white" if has_legend else "none")
        grid = list(figure.subplots(rows, columns, sharex=is_shared, sharey=is_shared, squeeze=False).flat)
        panels = [_thinned_panel(panel, most) for panel in panels]
        has_dots = _count(panels) <= MARKERS
        for index, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            axes.set_title(panel.title)
            if index % columns == 0 or panel.y != panels[index - 1].y:
                axes.set_ylabel(panel.y)
            if index + columns >= len(panels):  # no panel below
                axes.tick_params(labelbottom=True)
                axes.set_xlabel(x)
            FORMS[form](axes, panel, strokes, has_dots)
            if panel.ticks:
                name_ticks(axes, panel.ticks, LETTERS // columns)
        # A common scale fits all panels only once they are drawn.
        for axes, panel in zip(grid[: 1 if is_shared else None], panels, strict=False):
            _scale(axes, panels if is_shared else [panel], form, is_log)
        for axes in grid[len(panels) :]:
            axes.remove()
        keys = [_legend_key(form, strokes[label]) for label in labels]
        if keys:
            figure.legend(keys, labels, loc="outside lower left", ncols=legend, frameon=False, handlelength=1.8)
        return to_svg(figure, name)


@contextmanager
def single_axes(name: str, width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure in the charts' style and its only axes; width and height are in inches."""
    with style(name):
        figure = Figure((width, height), layout="constrained")
        yield figure, figure.subplots()


def stages(
    name: str,
    bars: Mapping[str, tuple[float | None, Mapping[str, float]]],
    colours: Mapping[str, str],
    x: str = "Seconds a round, median",
) -> str:
    """Draw stages of rounds or commands: one stacked bar for each.

    Args:
        name: prefix of the element's ids.
        bars: by label, seconds of the whole (None if unknown) and seconds of each stage.
        colours: colour of each stage.
        x: label of the horizontal axis.
    """
    with single_axes(name, WIDE, 0.75 + 0.5 * len(bars)) as (figure, axes):
        axes.grid(axis="x")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_yticks(range(len(bars)), list(bars))
        axes.set_ylim(len(bars) - 0.5, -0.5)
        axes.set_xlabel(x)
        longest = 1.03 * max(max(whole or 0.0, sum(parts.values())) for whole, parts in bars.values()) or 1
        axes.set_xlim(0, longest)
        for row, (whole, parts) in enumerate(bars.values()):
            axes.barh(row, whole or 0, THICK, color=GRID)  # time that no stage accounts for stays visible
            start = 0.0
            for stage, seconds in parts.items():
                bar = axes.barh(row, seconds, THICK, start, color=colours[stage], edgecolor="white", linewidth=0.6)
                if seconds > (len(stage) + 2) * longest / LETTERS:
                    axes.bar_label(bar, [stage], label_type="center", fontsize=8.5)
                start += seconds
        return to_svg(figure, name)


def histogram(name: str, groups: Mapping[str, NDArray[np.int64]], label: str) -> str:
    """Draw the distribution of clients over an amount; groups are stacked, and named if there are several.

    Args:
        name: prefix of the element's ids.
        groups: by name, one amount for each client.
        label: label of the horizontal axis.
    """
    amounts = list(groups.values())
    every = np.concatenate(amounts)
    # At most 30 bins. Their edges lie between whole numbers, so that each covers equally many.
    low, high = int(every.min()), int(every.max())
    width = math.ceil((high - low + 1) / 30)
    bins = (np.arange(low, high + width + 1, width) - 0.5).tolist()
    with single_axes(name, HALF, HEIGHT) as (figure, axes):
        colours = GREYS[: len(groups)]
        axes.hist(amounts, bins, stacked=True, color=colours, edgecolor="white", linewidth=0.6, label=list(groups))
        axes.grid(axis="y")
        axes.set_xlabel(label)
        axes.set_ylabel("Clients")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        if len(groups) > 1:
            axes.legend(frameon=False, loc="upper right", handlelength=1, handleheight=1)
        return to_svg(figure, name)


def name_ticks(axes: Axes, names: Sequence[str], letters: int = LETTERS // 2) -> None:
    """Write names below the axes at 0, 1, ...; aslant if they exceed `letters` letters side by side."""
    is_aslant = len(names) * (max(map(len, names)) + 2) > letters
    aslant: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if is_aslant else {}
    axes.set_xticks(range(len(names)), names, **aslant)
    axes.tick_params(axis="x", length=0, labelcolor=INK)
    axes.set_xlim(-0.6, len(names) - 0.4)


def _thinned_panel(panel: Panel, most: int) -> Panel:
    return replace(panel, curves={label: _thinned(curve, most) for label, curve in panel.curves.items()})


def _thinned(curve: Curve, most: int) -> Curve:
    """Reduce a curve's known values to `most` rounds: the ends, and the peak and trough of each interval."""
    known = np.isfinite(curve.values)
    std = np.zeros(len(known)) if curve.std is None else curve.std
    rounds, values, std = curve.rounds[known], curve.values[known], std[known]
    if len(rounds) > most:
        parts = np.array_split(np.arange(len(rounds)), most if most < CRAMPED else max(1, most // 2 - 1))
        if most < CRAMPED:
            rounds, values, std = (np.array([each[part].mean() for part in parts]) for each in (rounds, values, std))
        else:
            peaks = [part[pick(values[part])] for part in parts for pick in (np.argmin, np.argmax)]
            left = np.unique([0, *peaks, len(rounds) - 1])
            rounds, values, std = rounds[left], values[left], std[left]
    return Curve(rounds, values, std if std.any() else None, curve.marks)


def _count(panels: Sequence[Panel]) -> int:
    """Return the number of markers that a figure would have."""
    curves = [len(curve.rounds) for panel in panels for curve in panel.curves.values()]
    samples = [len(values) for panel in panels for at in panel.samples.values() for values in at.values()]
    return MARKERS + 1 if max(curves, default=0) > MARKER_ROUNDS else sum(curves) + sum(samples)


def _draw_curves(axes: Axes, panel: Panel, strokes: Mapping[str, Stroke], has_dots: bool) -> None:
    axes.grid(visible=True)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    drawn: list[Values] = []
    for label, curve in panel.curves.items():
        colour, linestyle = strokes[label].colour, strokes[label].linestyle
        if curve.std is not None:
            low, high = curve.values - curve.std, curve.values + curve.std
            axes.fill_between(curve.rounds, low, high, color=colour, alpha=BAND, linewidth=0)
        # If curves coincide, such as equal costs, the later ones are dashed so that the earlier ones show through.
        if below := sum(np.array_equal(curve.values, other) for other in drawn):
            linestyle = (0, (6, 6 * below))
        drawn.append(curve.values)
        marker = "o" if has_dots else ""
        axes.plot(
            curve.rounds, curve.values, color=colour, linestyle=linestyle, linewidth=1.8, marker=marker, markersize=3
        )
    marked = [label for label, curve in panel.curves.items() if curve.marks.size and curve.rounds.size]
    for height, label in enumerate(marked):
        marks = panel.curves[label].marks
        axes.plot(
            marks,
            np.full(marks.size, 0.02 + 0.05 * height),
            color=strokes[label].colour,
            linestyle="none",
            marker="|",
            markersize=5,
            alpha=0.8,
            transform=axes.get_xaxis_transform(),
        )


def _draw_points(axes: Axes, panel: Panel, strokes: Mapping[str, Stroke], has_dots: bool) -> None:
    axes.grid(axis="y")
    middle = (len(panel.samples) - 1) / 2
    for number, (label, at) in enumerate(panel.samples.items()):
        # Ticks without samples leave a gap.
        found = [mean_and_std(at[tick]) if tick in at else (np.nan, None) for tick in panel.ticks]
        axes.errorbar(
            np.arange(len(found)) + BESIDE * (number - middle),
            [mean for mean, _ in found],
            [std or 0.0 for _, std in found],
            color=strokes[label].colour,
            linestyle=strokes[label].linestyle,
            linewidth=1.8,
            elinewidth=1,
            marker="o",
            markersize=4.5,
        )


def _draw_bars(axes: Axes, panel: Panel, strokes: Mapping[str, Stroke], has_dots: bool) -> None:
    axes.grid(axis="y")
    for label, ticks, places, width in _places(panel):
        means, stds = zip(*(mean_and_std(panel.samples[label][tick]) for tick in ticks), strict=True)
        spread = [std or 0.0 for std in stds]
        thin = {"ecolor": INK, "elinewidth": 1}
        axes.bar(places, means, 0.9 * width, color=strokes[label].colour, yerr=spread, error_kw=thin)


def _draw_boxes(axes: Axes, panel: Panel, strokes: Mapping[str, Stroke], has_dots: bool) -> None:
    axes.grid(axis="y")
    for label, ticks, places, width in _places(panel):
        samples = [panel.samples[label][tick] for tick in ticks]
        colour, thin = strokes[label].colour, {"color": strokes[label].colour, "linewidth": 1.2}
        axes.boxplot(
            samples,
            positions=places,
            widths=0.75 * width,
            whis=(0, 100),
            patch_artist=True,
            manage_ticks=False,
            boxprops={"facecolor": (*to_rgba(colour)[:3], BOX), "edgecolor": colour, "linewidth": 1.2},
            medianprops={"color": colour, "linewidth": 2.2},
            whiskerprops=thin,
            capprops=thin,
        )
        if has_dots:  # side by side in the order of seeds and folds, so that equal values show
            beside = [np.linspace(-0.24, 0.24, len(each)) * width if len(each) > 1 else [0.0] for each in samples]
            x = np.concatenate([place + np.asarray(each) for place, each in zip(places, beside, strict=True)])
            axes.plot(x, np.concatenate(samples), color=colour, linestyle="none", marker="o", markersize=3.5)


FORMS: Mapping[str, Callable[[Axes, Panel, Mapping[str, Stroke], bool], None]] = {
    "curves": _draw_curves,
    "points": _draw_points,
    "bars": _draw_bars,
    "boxes": _draw_boxes,
}


def _places(panel: Panel) -> Iterator[tuple[str, list[str], list[float], float]]:
    """Yield each label with its ticks, the middles of its bars or boxes there, and their width."""
    at_tick = {tick: [label for label, at in panel.samples.items() if tick in at] for tick in panel.ticks}
    width = GROUP / max(map(len, at_tick.values()))
    for label, at in panel.samples.items():
        ticks = [tick for tick in panel.ticks if tick in at]
        offsets = [at_tick[tick].index(label) - (len(at_tick[tick]) - 1) / 2 for tick in ticks]
        yield (
            label,
            ticks,
            [panel.ticks.index(tick) + width * by for tick, by in zip(ticks, offsets, strict=True)],
            width,
        )


def _scale(axes: Axes, panels: Sequence[Panel], form: str, is_log: bool) -> None:
    """Set the vertical scale; bytes and seconds begin at 0."""
    kind = panels[0].kind
    curves = [curve.values for panel in panels for curve in panel.curves.values()]
    samples = [values for panel in panels for at in panel.samples.values() for values in at.values()]
    values = np.concatenate([*curves, *samples, np.empty(0)])
    values = values[values > 0]
    # One slow first round would press all others onto the axis.
    if values.size and (is_log or (kind == "seconds" and values.max() > SPREAD * np.median(values))):
        low, high = values.min(), values.max()
        axes.set_yscale("log", nonpositive="clip")
        axes.set_ylim(low / 1.3, high * 1.3)
        axes.yaxis.set_major_locator(LogLocator(numticks=6) if high > 20 * low else MaxNLocator(5))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        return
    if kind in ("bytes", "seconds"):
        axes.set_ylim(bottom=0)
    elif form != "bars":
        axes.margins(y=0.08)
    axes.yaxis.set_major_formatter(FORMATS[kind]())


def _legend_key(form: str, own: Stroke) -> Artist:
    if form in ("bars", "boxes"):
        return Patch(facecolor=own.colour)
    return Line2D([], [], color=own.colour, linestyle=own.linestyle, linewidth=1.8)
