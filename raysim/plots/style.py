"""Style of all charts, and their SVG markup: compact, self-contained, and the same bytes every time."""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from partitioning.pictures.plain import PLAIN_TEXT, missing_glyphs_shown

# After Okabe and Ito: colour-blind readers tell them apart. The darkest come first because lines lie on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#b8860b", "#56b4e9", "#333333")
# Lighter colours for a dark page.
DARK_COLOURS = ("#4fa9e6", "#ff8f4d", "#2fc79b", "#dc86d0", "#d9ae45", "#9bd3f5", "#c6ced6")
# After the last colour the line's pattern changes instead.
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1, 1.5), (6, 2, 1, 2), (3, 2, 1, 2, 1, 2))

INK, MUTED, GRID, EDGE = "#24292f", "#59636e", "#e4e8ec", "#b6bec7"
VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    EDGE: "edge",
    "#ffffff": "card",
    **{colour: f"line{index}" for index, colour in enumerate(COLOURS)},
}
"""Variables of a page's style sheet in place of colours, so that charts follow the theme."""

IMAGE_DPI = 200  # resolution of a raster inside a figure, such as a heat map of clients

FONT = "font-size: 9.5px; font-family: 'DejaVu Sans', sans-serif; "  # as matplotlib writes the style's font
NAMESPACES = ' xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'

STYLE: dict[Any, Any] = {
    **PLAIN_TEXT,
    "svg.fonttype": "none",  # text stays text: small, selectable, and in the page's own font
    "font.sans-serif": ["DejaVu Sans", "sans-serif"],
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": EDGE,
    "axes.linewidth": 0.8,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": EDGE,
    "ytick.color": EDGE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


def style(name: str) -> AbstractContextManager[None]:
    """Return a context with the charts' style; the ids that matplotlib generates follow from `name`."""
    return mpl.rc_context({**STYLE, "svg.hashsalt": name})


@dataclass(frozen=True)
class Stroke:
    """Colour and dash pattern of one algorithm, the same in every chart of a page."""

    colour: str
    dashes: tuple[float, ...]

    @property
    def css(self) -> str:
        """The colour in a page's style sheet."""
        return f"var(--{VARIABLES[self.colour]}, {self.colour})" if self.colour in VARIABLES else self.colour

    @property
    def svg_dashes(self) -> str:
        """The pattern as SVG's `stroke-dasharray`."""
        return " ".join(f"{2 * each:g}" for each in self.dashes) or "none"

    @property
    def linestyle(self) -> tuple[float, tuple[float, ...]] | Literal["solid"]:
        """The pattern as matplotlib's `linestyle`."""
        return (0, self.dashes) if self.dashes else "solid"


def stroke(index: int) -> Stroke:
    """Return the stroke of the index-th algorithm: colours first, then patterns."""
    cycle, colour = divmod(index, len(COLOURS))
    return Stroke(COLOURS[colour], DASHES[cycle % len(DASHES)])


def strokes_of(labels: Iterable[str]) -> dict[str, Stroke]:
    """Return a stroke for each label."""
    return {label: stroke(index) for index, label in enumerate(labels)}


def strokes_of_runs(runs: Sequence[Mapping[str, str]]) -> dict[str, Stroke]:
    """Return a stroke for each label of several runs: a colour for each algorithm, a pattern for each run.

    If these give two labels the same stroke, every label gets a stroke regardless of its algorithm and run.

    Args:
        runs: for each run, its algorithms' names by their labels.
    """
    names = list(dict.fromkeys(name for run in runs for name in run.values()))
    strokes = {}
    for number, run in enumerate(runs):
        cycle, pattern = divmod(number, len(DASHES))  # after the last pattern the colours change instead
        for label, name in run.items():
            strokes[label] = Stroke(COLOURS[(names.index(name) + cycle * len(names)) % len(COLOURS)], DASHES[pattern])
    # With many algorithms or runs, two of these strokes are alike, and readers could not tell their lines apart.
    return strokes if len(runs) > 1 and len(set(strokes.values())) == len(strokes) else strokes_of(strokes)


def to_svg(figure: Figure, name: str) -> str:
    """Return a figure as an `<svg>` element.

    Args:
        figure: drawn in `style(name)`.
        name: prefix of the element's ids, so that a page may hold several charts.
    """
    buffer = io.StringIO()
    with style(name), missing_glyphs_shown():
        # `savefig` would draw the figure twice, once for the layout alone.
        figure.set_dpi(IMAGE_DPI)
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})  # type: ignore[no-untyped-call]
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = _compact(text).replace(FONT, "").replace("<svg", f'<svg style="{FONT.strip()}"', 1)
    # HTML parsers know both namespaces. Without them, a page shows at a glance that it fetches nothing.
    text = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    return re.sub(r'xlink:href="#', f'xlink:href="#{name}-', text).strip()


def as_file(svg: str) -> str:
    """Return an `<svg>` element of a page as the text of a file, which must name its namespaces."""
    return svg.replace("<svg", f"<svg{NAMESPACES}", 1) + "\n"


def in_page(file: str) -> str:
    """Return the `<svg>` element of a file that `as_file` made."""
    return file.replace(NAMESPACES, "", 1).strip()


def themed(svg: str) -> str:
    """Return an `<svg>` element with variables of the page in place of colours.

    White texts stay white: they stand on dark cells.
    """

    def variable(found: re.Match[str]) -> str:
        known = VARIABLES.get(found[2])
        return f"{found[1]}: var(--{known}, {found[2]})" if known else found[0]

    def tag(found: re.Match[str]) -> str:
        is_white_text = found[0].startswith("<text") and "fill: #ffffff" in found[0]
        return found[0] if is_white_text else re.sub(r"\b(fill|stroke): (#[0-9a-f]{6})\b", variable, found[0])

    return re.sub(r"<[^>]*>", tag, svg)


def _compact(svg: str) -> str:
    """Shrink the markup to about a third: shorter numbers and ids, no unused groups, joined paths."""
    svg = re.sub(r' transform="rotate\(-0 [^"]*"', "", svg)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"<g/>", "", re.sub(r">\s+<", "><", svg))
    svg = re.sub(r"<g>(<path[^>]*/>|<text[^>]*>[^<]*</text>)</g>", r"\1", svg)
    # Only inside tags: people read the text between them.
    svg = re.sub(r"<[^>]*>", _compact_tag, svg)
    svg = re.sub(r'<path d="[^"]*"([^>]*)/>(?:<path d="[^"]*"\1/>)+', _joined, svg)
    return _without_repeated_styles(svg)


def _compact_tag(tag: re.Match[str]) -> str:
    text = re.sub(r"(\d\d\.\d|\.\d\d)\d+", r"\1", re.sub(r"\s*\n\s*", " ", tag[0]))
    # In a path, positions that follow a move are lines without a command.
    return text if re.search(r' d="[^"]*[CQ]', text) else re.sub(r"(?<=\d) L ", " ", text)


def _joined(paths: re.Match[str]) -> str:
    places = " ".join(re.findall(r' d="([^"]*)"', paths[0]))
    return f'<path d="{places}"{paths[1]}/>'


def _without_repeated_styles(svg: str) -> str:
    """Move the style of markers from each use to the marker itself, and number the ids."""
    styles = dict(re.findall(r'<use xlink:href="#([^"]+)"[^>]*? style="([^"]*)"', svg))
    svg = re.sub(r'(<use [^>]*?) style="[^"]*"', r"\1", svg)
    for number, name in enumerate(dict.fromkeys(re.findall(r' id="([^"]+)"', svg))):
        if name in styles:
            svg = re.sub(rf'(<path id="{name}"[^>]*?)(?: style="[^"]*")?/>', rf'\1 style="{styles[name]}"/>', svg)
        svg = re.sub(rf'(?<=[#"]){name}(?=[")])', f"{number}", svg)
    return svg
