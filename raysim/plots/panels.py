"""Panels of charts: curves over rounds, points, bars and boxes, drawn into axes."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import Formatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, ScalarFormatter
from numpy.typing import NDArray

from raysim.common.statistics import mean_and_std
from raysim.common.units import human_bytes
from raysim.plots.style import INK, Stroke

MARKERS, MARKER_ROUNDS = 400, 40  # markers in a figure, and in a curve; beyond either, a curve has none
DENSE = 600  # rounds drawn of a curve; the eye cannot resolve more
CRAMPED = 100  # below so many rounds a curve shows means over intervals: its peaks would fill all of it
SPREAD = 20  # seconds are on a logarithmic scale if the slowest round exceeds the median by this factor
BAND, BOX = 0.15, 0.22  # opacity of deviation bands and of the inside of boxes
BESIDE = 0.05  # distance of the points at one tick, so that their error bars do not hide each other
GROUP = 0.8  # share of a tick's room that its bars or boxes take

Values = NDArray[np.float64]

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


def thinned(panel: Panel, most: int) -> Panel:
    """Reduce each curve to at most `most` rounds."""
    return replace(panel, curves={label: _thinned_curve(curve, most) for label, curve in panel.curves.items()})


def _thinned_curve(curve: Curve, most: int) -> Curve:
    """Reduce a curve's known values to `most` rounds: the ends, and the peak and trough of each interval.

    Of more marks, every n-th stays, so that at most `most` are drawn.
    """
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
    marks = curve.marks[:: math.ceil(len(curve.marks) / most) or 1]
    return Curve(rounds, values, std if std.any() else None, marks)


def markers(panels: Sequence[Panel]) -> int:
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


def set_scale(axes: Axes, panels: Sequence[Panel], form: str, is_log: bool) -> None:
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


def legend_key(form: str, own: Stroke) -> Artist:
    """Return the sign of a stroke in a legend."""
    if form in ("bars", "boxes"):
        return Patch(facecolor=own.colour)
    return Line2D([], [], color=own.colour, linestyle=own.linestyle, linewidth=1.8)
