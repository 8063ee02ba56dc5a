"""Charts: panels over rounds for pages and files, and histograms."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, MaxNLocator
from numpy.typing import NDArray

from partitioning.common.text import caption, printable
from partitioning.pictures.plain import missing_glyphs_shown
from raysim.common.statistics import mean_and_std
from raysim.plots.margins import Margins
from raysim.plots.panels import DENSE, FORMS, MARKERS, Curve, Panel, Values, legend_key, markers, set_scale, thinned
from raysim.plots.style import INK, Stroke, as_file, style, themed, to_svg

GREYS = ["#5b7083", "#c3ccd5", "#8c9aa8"]  # of client counts: no algorithm has these colours
WIDE, HALF, HEIGHT = 9.2, 4.5, 2.6  # inches: the page's column, half of it, and one row of panels
LEGEND = 17.4  # points of a legend above a histogram
LETTERS = 110  # letters that fit side by side into the page's column
WHOLE = 40  # letters of whole numbers that fit side by side below a histogram; of more, not all are named
LISTED = 2000  # values of a curve that a page lists; of a longer one it lists the rounds drawn


@dataclass(frozen=True)
class Chart:
    """Chart of a page.

    Args:
        title: its name.
        panels: markup of each panel; a narrow page stacks them.
        values: numbers for the page's script; empty if it has none.
        is_wide: whether the chart takes the page's whole width.
    """

    title: str
    panels: Sequence[str]
    values: Mapping[str, Any]
    is_wide: bool = False


def chart(
    name: str,
    title: str,
    panels: Sequence[Panel],
    strokes: Mapping[str, Stroke],
    form: str = "curves",
    *,
    x: str = "Round",
    is_shared: bool = False,
) -> Chart:
    """Draw panels for a page, with their values.

    Args:
        name: prefix of the elements' ids, unique in a page.
        title: name of the chart.
        panels: at least one.
        strokes: stroke of each label.
        form: as in `draw`.
        x: label of the horizontal axis.
        is_shared: whether all panels have the same scale.
    """
    width = WIDE / 3 if len(panels) > 2 else HALF
    with style(name):
        figures = [Figure((width, HEIGHT), layout=Margins()) for _ in panels]
        grid = [figure.subplots() for figure in figures]
        drawn = [thinned(panel, DENSE) for panel in panels]
        has_dots = markers(drawn) <= MARKERS
        for figure, axes, panel in zip(figures, grid, drawn, strict=True):
            if _fill(axes, panel, strokes, form, has_dots, x, int(LETTERS * width / WIDE)):
                figure.set_layout_engine("constrained")
            set_scale(axes, drawn if is_shared else [panel], form, False)
        if is_shared:
            _share_limits(grid)
        svgs = [themed(to_svg(figure, f"{name}-{number}")) for number, figure in enumerate(figures)]
    listed = [_listed(panel, axes, strokes) for panel, axes in zip(panels, grid, strict=True)]
    return Chart(title, svgs, {"x": printable(x), "panels": listed}, len(panels) > 1)


class Drawing(Figure):
    """Figure that notebooks show as it is, without pyplot."""

    def _repr_svg_(self) -> str:
        return as_file(to_svg(self, "drawing"))


def figure(
    panels: Sequence[Panel],
    strokes: Mapping[str, Stroke],
    form: str = "curves",
    *,
    x: str = "Round",
    columns: int = 3,
    is_log: bool = False,
    most: int = DENSE,
) -> Drawing:
    """Draw panels side by side, with a legend.

    Args:
        panels: at least one.
        strokes: stroke of each label.
        form: "curves", "points" (means with error bars), "bars" or "boxes".
        x: label of the horizontal axis.
        columns: panels in a row.
        is_log: whether the vertical axis is logarithmic.
        most: rounds drawn of a curve.
    """
    columns = min(columns, len(panels))
    labels = [label for label in strokes if any(label in panel.labels for panel in panels)]
    texts = [caption(label) for label in labels]
    legend = max(1, min(len(labels), LETTERS // (max(map(len, texts), default=0) + 8)))
    rows, height = math.ceil(len(panels) / columns), HEIGHT * (1.15 if columns < 3 else 1)
    size = (WIDE, height * rows + 0.2 * math.ceil(len(labels) / legend))
    panels = [thinned(panel, most) for panel in panels]
    with style("figure"):
        drawing = Drawing(size, layout=ConstrainedLayoutEngine(wspace=0.06, hspace=0.08))
        drawing.set_facecolor("white")  # the file may lie on a dark page
        grid = list(drawing.subplots(rows, columns, squeeze=False).flat)
        has_dots = markers(panels) <= MARKERS
        for index, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            _fill(axes, panel, strokes, form, has_dots, x, LETTERS // columns)
            if index % columns and panel.y == panels[index - 1].y:
                axes.set_ylabel("")
            if index + columns < len(panels):  # a panel is below
                axes.set_xlabel("")
            set_scale(axes, [panel], form, is_log)
        for axes in grid[len(panels) :]:
            axes.remove()
        if keys := [legend_key(form, strokes[label]) for label in labels]:
            drawing.legend(keys, texts, loc="outside lower left", ncols=legend, frameon=False, handlelength=1.8)
    return drawing


def draw(
    name: str, panels: Sequence[Panel], strokes: Mapping[str, Stroke], form: str = "curves", **options: Any
) -> str:
    """Draw panels as an `<svg>` element for a file of its own; `name` begins its ids; the rest is as in `figure`."""
    return to_svg(figure(panels, strokes, form, **options), name)


def save_figure(drawing: Figure, path: Path, form: Literal["pdf", "svg"]) -> None:
    """Write a figure to a file, with the same bytes each time; texts of a PDF stay texts."""
    if form == "svg":
        path.write_text(as_file(to_svg(drawing, "drawing")), encoding="utf-8")
        return
    from matplotlib.backends.backend_pdf import FigureCanvasPdf  # a third of a second, and most runs write no PDF

    with style("drawing"), missing_glyphs_shown(), rc_context({"pdf.fonttype": 42}):
        # `savefig` would draw the figure twice, the first time for the layout alone.
        FigureCanvasPdf(drawing).print_pdf(path, metadata={"CreationDate": None})  # type: ignore[no-untyped-call]


@contextmanager
def single_axes(name: str, width: float, height: float, above: float = 0.0) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure in the charts' style and its only axes; width and height are in inches."""
    with style(name):
        figure = Figure((width, height), layout=Margins(above))
        yield figure, figure.subplots()


def histogram(name: str, groups: Mapping[str, NDArray[np.int64]], label: str) -> Chart:
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
    first = np.arange(low, high + 1, width)
    bins = [*(first - 0.5).tolist(), float(first[-1]) + width - 0.5]
    with single_axes(name, HALF, HEIGHT, LEGEND if len(groups) > 1 else 0.0) as (figure, axes):
        colours = GREYS[: len(groups)]
        axes.hist(amounts, bins, stacked=True, color=colours, edgecolor="white", linewidth=0.6, label=list(groups))
        axes.grid(axis="y")
        axes.set_xlabel(label)
        axes.set_ylabel("Clients")
        each_whole, letters = FixedLocator(first.tolist()), len(first) * (len(f"{high}") + 1)
        axes.xaxis.set_major_locator(each_whole if letters <= WHOLE else MaxNLocator(integer=True, nbins=8))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        if len(groups) > 1:
            above: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "borderaxespad": 0}
            axes.legend(ncols=len(groups), frameon=False, handlelength=1, handleheight=1, **above)
        svg = themed(to_svg(figure, name))
    names = [f"{start:,}" if width == 1 else f"{start:,} to {start + width - 1:,}" for start in first.tolist()]
    middles = (first + (width - 1) / 2).astype(np.float64)
    curves = {group: Curve(middles, np.histogram(own, bins)[0].astype(np.float64)) for group, own in groups.items()}
    strokes = {group: Stroke(colour, ()) for group, colour in zip(groups, GREYS, strict=False)}
    listed = _listed(Panel("", "", curves=curves), axes, strokes) | {"ticks": names, "places": _rounded(middles)}
    return Chart(label, [svg], {"x": label, "panels": [listed]})


def _fill(
    axes: Axes, panel: Panel, strokes: Mapping[str, Stroke], form: str, has_dots: bool, x: str, letters: int
) -> bool:
    """Draw a panel into its axes; `letters` fit side by side below it. Return whether its ticks' names are aslant."""
    axes.set_title(caption(panel.title))
    axes.set_ylabel(caption(panel.y))
    axes.set_xlabel(caption(x))
    FORMS[form](axes, panel, strokes, has_dots)
    if not panel.ticks:
        return False
    names = [caption(tick) for tick in panel.ticks]
    is_aslant = len(names) * (max(map(len, names)) + 2) > letters
    aslant: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if is_aslant else {}
    axes.set_xticks(range(len(names)), names, **aslant)
    axes.tick_params(axis="x", length=0, labelcolor=INK)
    axes.set_xlim(-0.6, len(names) - 0.4)
    return is_aslant


def _share_limits(grid: Sequence[Axes]) -> None:
    for get, set_ in (("get_xlim", "set_xlim"), ("get_ylim", "set_ylim")):
        low, high = np.transpose([getattr(axes, get)() for axes in grid])
        for axes in grid:
            getattr(axes, set_)(low.min(), high.max())


def _listed(panel: Panel, axes: Axes, strokes: Mapping[str, Stroke]) -> dict[str, Any]:
    """Return a panel for the page's script: its lines, and the place of its axes, already drawn, in the figure."""
    lines: list[tuple[str, Any, Any, Any]] = [
        (label, curve.rounds, curve.values, curve.std) for label, curve in thinned(panel, LISTED).curves.items()
    ]
    for label, at in panel.samples.items():
        means, stds = zip(*(mean_and_std(values) for values in at.values()), strict=True)
        spread = [std or 0.0 for std in stds] if any(stds) else None
        lines.append((label, [panel.ticks.index(tick) for tick in at], means, spread))
    left, bottom, width, height = axes.get_position().bounds
    return {
        "title": printable(panel.title),
        "kind": panel.kind,
        "frame": _rounded([left, 1 - bottom - height, width, height]),
        "x": _rounded(axes.get_xlim()),
        "ticks": [printable(tick) for tick in panel.ticks],
        "places": _rounded(range(len(panel.ticks))),
        "lines": [
            {
                "name": printable(label),
                "colour": strokes[label].css,
                "at": _rounded(places),
                "values": _rounded(values),
                "std": [] if std is None else _rounded(std),
            }
            for label, places, values, std in lines
            if len(places)
        ],
    }


def _rounded(values: Sequence[float] | Values) -> list[float | None]:
    """Return six digits of each number; None for what is not finite."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
