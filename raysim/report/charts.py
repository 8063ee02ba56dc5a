"""The report's pictures: matplotlib figures as SVG that stands inside the page.

A figure never knows the page, and nothing here reads a file: arrays in, markup out. The same input gives
the same bytes.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import Formatter, FuncFormatter, MaxNLocator, NullFormatter, PercentFormatter
from numpy.typing import NDArray

from raysim.common.units import human_bytes

# After Okabe and Ito: told apart by colour-blind readers. The darkest come first: the lines lie on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#b8860b", "#56b4e9", "#333333")
# After the last colour the line's pattern changes instead.
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1, 1.5), (6, 2, 1, 2))

INK, MUTED, GRID = "#24292f", "#59636e", "#e4e8ec"
GREYS = ["#5b7083", "#c3ccd5", "#8c9aa8"]  # counts of clients: none of the algorithms' colours
WIDE, HALF, HEIGHT = 9.2, 4.5, 2.6  # inches: the page's column, half of it, and one row of panels
IMAGE_DPI = 200  # of what is a raster in a figure, such as a heatmap
MARKER_ROUNDS = 40  # with more values than this a line is dense enough without a dot at each
THICK = 0.48  # of bars, where 1 is from one to the next
LETTERS = 110  # that fit side by side into the page's column
SPREAD = 20  # from this ratio of the slowest round to the median on, the scale of seconds is logarithmic

NAMESPACES = ' xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'

FORMATS: dict[str, Callable[[], Formatter]] = {
    "number": lambda: FuncFormatter(lambda value, _: f"{value:g}"),
    "share": lambda: PercentFormatter(1, decimals=0, symbol=" %"),
    "bytes": lambda: FuncFormatter(lambda value, _: human_bytes(value)),
    "seconds": lambda: FuncFormatter(lambda value, _: f"{value:g}"),
}

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: the page's own font, selectable, and small
    "font.sans-serif": ["DejaVu Sans", "sans-serif"],  # each text names them
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": "#b6bec7",
    "axes.linewidth": 0.8,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": "#b6bec7",
    "ytick.color": "#b6bec7",
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


def style(name: str) -> AbstractContextManager[None]:
    """Our style; the ids that matplotlib makes up follow from the name, not from chance."""
    return mpl.rc_context({**STYLE, "svg.hashsalt": name})


@dataclass(frozen=True)
class Stroke:
    """How one algorithm is drawn, the same in every chart."""

    colour: str
    dashes: tuple[float, ...]

    @property
    def svg_dashes(self) -> str:
        """The pattern as SVG's `stroke-dasharray`."""
        return " ".join(f"{2 * each:g}" for each in self.dashes) or "none"


def stroke(index: int) -> Stroke:
    """The stroke of the index-th algorithm: colours first, then patterns."""
    cycle, colour = divmod(index, len(COLOURS))
    return Stroke(COLOURS[colour], DASHES[cycle % len(DASHES)])


@dataclass(frozen=True)
class Line:
    """One algorithm's values by round; NaN where there is none.

    Args:
        merges: the rounds to mark at the foot because they ended in a merge; empty if every round did.
    """

    rounds: NDArray[np.float64]
    values: NDArray[np.float64]
    stroke: Stroke
    aggregates: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True)
class Panel:
    """One pair of axes: its title and its lines."""

    title: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Part:
    """One stage of a bar."""

    title: str
    colour: str
    seconds: float


@dataclass(frozen=True)
class Bar:
    """One algorithm's round.

    Args:
        label: the algorithm's.
        stroke: likewise.
        whole: seconds of the round; None where unknown.
        inside: what the round is made of, one after the other.
    """

    label: str
    stroke: Stroke
    whole: float | None
    inside: Sequence[Part]


def lines(name: str, panels: Sequence[Panel], label: str, kind: str = "number", wide: bool = False) -> str:
    """Curves over rounds, one panel beside the other on a common scale.

    Args:
        name: what the elements' ids start with, unique in a page.
        label: the vertical axis, with its unit.
        kind: how values read: "number", "share" (0 to 1, as per cent), "bytes" or "seconds".
        wide: as wide as the page's column; more than one panel always is.
    """
    columns = min(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    width = WIDE if wide or columns > 1 else HALF
    height = HEIGHT * 1.2 if wide and columns == 1 else HEIGHT
    with style(name):
        layout = ConstrainedLayoutEngine(wspace=0.06, hspace=0.08)
        figure = Figure(figsize=(width, height * rows), layout=layout)
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for index, axes in enumerate(grid.flat):
            if index >= len(panels):
                axes.remove()
                continue
            _draw(axes, panels[index])
            if index + columns >= len(panels):  # nothing below it
                axes.tick_params(labelbottom=True)
                axes.set_xlabel("Round")
        for axes in grid[:, 0]:
            axes.set_ylabel(label)
        _scale(grid[0, 0], panels, kind)
        return to_svg(figure, name)


def stages(name: str, bars: Sequence[Bar]) -> str:
    """What rounds are made of: a stacked bar an algorithm."""
    with style(name):
        figure = Figure(figsize=(WIDE, 0.75 + 0.5 * len(bars)), layout="constrained")
        axes = figure.subplots()
        axes.grid(axis="x")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
        axes.set_ylim(len(bars) - 0.5, -0.5)
        axes.set_xlabel("Seconds a round, median")
        axes.set_xlim(0, 1.03 * max(_longest(bar) for bar in bars) or 1)
        axes.xaxis.set_major_formatter(FORMATS["seconds"]())
        for row, bar in enumerate(bars):
            axes.barh(row, bar.whole or 0, THICK, color=GRID)  # what no stage accounts for shows
            _stack(axes, bar.inside, row)
        return to_svg(figure, name)


def histogram(name: str, groups: Sequence[tuple[str, NDArray[np.int64]]], label: str) -> str:
    """How many clients have how much of something; the groups are stacked, and named if there are several.

    Args:
        name: what the elements' ids start with.
        groups: a name and one amount a client, in the order of stacking.
        label: the horizontal axis, with its unit.
    """
    with style(name):
        figure = Figure(figsize=(HALF, HEIGHT), layout="constrained")
        axes = figure.subplots()
        axes.hist(
            [amounts for _, amounts in groups],
            bins=_bins(np.concatenate([amounts for _, amounts in groups])),
            stacked=True,
            color=GREYS[: len(groups)],
            edgecolor="white",
            linewidth=0.6,
            label=[group for group, _ in groups],
        )
        axes.grid(axis="y")
        axes.set_xlabel(label)
        axes.set_ylabel("Clients")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        if len(groups) > 1:
            axes.legend(frameon=False, loc="upper right", handlelength=1, handleheight=1)
        return to_svg(figure, name)


def _longest(bar: Bar) -> float:
    return max(bar.whole or 0, sum(part.seconds for part in bar.inside))


def _stack(axes: Axes, parts: Sequence[Part], y: float) -> None:
    """Parts one after the other, each named where its name fits."""
    start, letter = 0.0, axes.get_xlim()[1] / LETTERS
    for part in parts:
        axes.barh(y, part.seconds, THICK, start, color=part.colour, edgecolor="white", linewidth=0.6)
        if part.seconds > (len(part.title) + 2) * letter:
            axes.text(start + part.seconds / 2, y, part.title, ha="center", va="center_baseline", fontsize=8.5)
        start += part.seconds


def _bins(amounts: NDArray[np.int64]) -> list[float]:
    """Some thirty bins at most, their edges between whole numbers: each covers as many as the next."""
    low, high = int(amounts.min()), int(amounts.max())
    width = math.ceil((high - low + 1) / 30)
    return [edge - 0.5 for edge in range(low, high + width + 1, width)]


def to_svg(figure: Figure, name: str) -> str:
    """The figure as an `<svg>` element whose ids start with `name`, so that several live in one page."""
    buffer = io.StringIO()
    with style(name):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, dpi=IMAGE_DPI)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = _compact(text)
    # An HTML parser knows both namespaces, and a page without addresses is easily seen to fetch nothing.
    text = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    return re.sub(r'xlink:href="#', f'xlink:href="#{name}-', text).strip()


def _compact(svg: str) -> str:
    """The same picture in a third of the bytes: positions to a tenth of a point, nothing that nothing refers to."""
    svg = re.sub(r' transform="rotate\(-0 [^"]*"', "", svg)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"<g/>", "", re.sub(r">\s+<", "><", svg))
    svg = re.sub(r"<g>(<path[^>]*/>|<text[^>]*>[^<]*</text>)</g>", r"\1", svg)
    # Inside tags only: what stands between them is read by people.
    return re.sub(r"<[^>]*>", _compact_tag, svg)


def _compact_tag(tag: re.Match[str]) -> str:
    text = re.sub(r"(\d\d\.\d|\.\d\d)\d+", r"\1", re.sub(r"\s*\n\s*", " ", tag[0]))
    # After a move, further positions are lines by themselves.
    return text if re.search(r' d="[^"]*[CQ]', text) else re.sub(r"(?<=\d) L ", " ", text)


def as_file(svg: str) -> str:
    """An `<svg>` element of a page as a file of its own, which has to say what it is."""
    return svg.replace("<svg", f"<svg{NAMESPACES}", 1) + "\n"


def in_page(file: str) -> str:
    """The element that a file was made of."""
    return file.replace(NAMESPACES, "", 1).strip()


def _draw(axes: Axes, panel: Panel) -> None:
    axes.grid(visible=True)
    axes.set_title(panel.title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    is_sparse = all(np.isfinite(line.values).sum() <= MARKER_ROUNDS for line in panel.lines)
    for index, line in enumerate(panel.lines):
        known = np.isfinite(line.values)
        # Of lines that coincide, such as equal costs, the later are dashed so that the earlier show through.
        below = sum(np.array_equal(line.values, other.values, True) for other in panel.lines[:index])
        dashes = (6, 6 * below) if below else line.stroke.dashes
        axes.plot(
            line.rounds[known],
            line.values[known],
            color=line.stroke.colour,
            linestyle=(0, dashes) if dashes else "solid",
            linewidth=1.8,
            marker="o" if is_sparse else "",
            markersize=3,
        )
    for height, line in enumerate(line for line in panel.lines if _is_marked(line)):
        axes.plot(
            line.aggregates,
            np.full(line.aggregates.size, 0.02 + 0.05 * height),
            color=line.stroke.colour,
            linestyle="none",
            marker="|",
            markersize=5,
            markeredgewidth=1,
            alpha=0.8,
            transform=axes.get_xaxis_transform(),
        )


def _is_marked(line: Line) -> bool:
    return line.aggregates.size > 0 and not np.isnan(line.values).all()


def _scale(axes: Axes, panels: Sequence[Panel], kind: str) -> None:
    """The vertical scale, which the panels share: formatted by kind, from 0 where amounts are compared."""
    values = np.concatenate([line.values for panel in panels for line in panel.lines])
    values = values[values > 0]
    if kind in ("number", "share"):
        axes.margins(y=0.08)
    elif kind == "seconds" and values.size and values.max() > SPREAD * np.median(values):
        axes.set_yscale("log")  # a slow first round would press all others onto the axis
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FORMATS[kind]())
