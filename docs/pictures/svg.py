"""SVG markup that follows a light or a dark page, also where the page has a switch of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from raysim.plots.style import COLOURS, DARK_COLOURS

LIGHT = {"ink": "#24292f", "muted": "#59636e", "grid": "#d5dbe1", "fill": "#f2f5f8"}
DARK = {"ink": "#e8ebef", "muted": "#9aa5b1", "grid": "#3d4752", "fill": "#262d36"}
LINES = range(len(COLOURS))


def _variables(colours: Mapping[str, str], lines: Iterable[str]) -> str:
    named = {**colours, **{f"line{number}": colour for number, colour in enumerate(lines)}}
    return "".join(f"--{name}:{colour};" for name, colour in named.items())


def _style() -> str:
    light, dark = _variables(LIGHT, COLOURS), _variables(DARK, DARK_COLOURS)
    return (
        f".picture{{{light}}}"
        f"@media (prefers-color-scheme:dark){{.picture{{{dark}}}}}"
        f"[data-md-color-scheme=default] .picture{{{light}}}[data-md-color-scheme=slate] .picture{{{dark}}}"
        ".picture text{fill:var(--ink);font:14px system-ui,'DejaVu Sans',sans-serif}"
        ".picture .small{font-size:12px;fill:var(--muted)}"
        ".picture .box{fill:var(--fill);stroke:var(--grid)}"
        ".picture .way{fill:none;stroke:var(--muted);stroke-width:1.5}"
        ".picture .rule{stroke:var(--grid)}"
    )


def document(title: str, width: int, height: int, parts: Iterable[str]) -> str:
    """Return an SVG file.

    Args:
        title: description for people who do not see the picture.
        width: width in pixels.
        height: height in pixels.
        parts: elements in the order of painting.
    """
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="0 0 {width} {height}"'
    head += f' width="{width}" height="{height}" role="img" aria-label="{escape(title)}">'
    return "\n".join([head, f"<style>{_style()}</style>", *parts, "</svg>", ""])


def text(x: float, y: float, words: str, anchor: str = "middle", *, kind: str = "", colour: str = "") -> str:
    """Return a line of text; `anchor` is "start", "middle" or "end"."""
    painted = f' style="fill:{colour}"' if colour else ""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{named}{painted}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, words: str = "") -> str:
    """Return a rounded box with a line of text in its middle."""
    frame = f'<rect class="box" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7"/>'
    return frame + (text(x + width / 2, y + height / 2 + 5, words) if words else "")


def dot(x: float, y: float, radius: float, colour: str, words: str = "") -> str:
    """Return a disc with a short text in it."""
    disc = f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" style="fill:{colour}"/>'
    return disc + (text(x, y + 4, words, kind="small", colour="#ffffff") if words else "")


def line(number: int) -> str:
    """Return the colour of the n-th curve."""
    return f"var(--line{number})"


def arrow(x: float, y: float, to_x: float, to_y: float, colour: str = "var(--muted)", gap: float = 0.0) -> str:
    """Return a straight arrow; `gap` shortens it at both ends."""
    length = ((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5
    along, across = (to_x - x) / length, (to_y - y) / length
    x, y, to_x, to_y = x + gap * along, y + gap * across, to_x - gap * along, to_y - gap * across
    left = (to_x - 8 * along + 4 * across, to_y - 8 * across - 4 * along)
    right = (to_x - 8 * along - 4 * across, to_y - 8 * across + 4 * along)
    shaft = f'<path class="way" d="M{x:.1f} {y:.1f}L{to_x - 6 * along:.1f} {to_y - 6 * across:.1f}"'
    head = f"M{to_x:.1f} {to_y:.1f}L{left[0]:.1f} {left[1]:.1f}L{right[0]:.1f} {right[1]:.1f}Z"
    return f'{shaft} style="stroke:{colour}"/><path d="{head}" style="fill:{colour}"/>'
