"""Turn what code hosts render into what the site renders: equations, anchors, and the algorithms in the navigation.

A block of `math`, and code between dollar signs, becomes MathML, which browsers draw by themselves, so the site loads
no script. An anchor before a heading becomes the heading's own.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

from raysim.plots.style import in_page, themed

FIGURE = re.compile(r'<p><img alt="(?P<alt>[^"]*)" src="(?P<path>results/[^"]+\.svg)" ?/?></p>')
NOTE = re.compile(r"\A<!-- Written by .*? -->\s*")
BLOCK = re.compile(r"^```math\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"\$`([^`\n]+)`\$")
ANCHOR = re.compile(r'^(#+) <a id="([^"]+)"></a>(.+)$', re.MULTILINE)


def on_config(config: Any, **_: Any) -> Any:
    """Name each page of `FOLDER/*.md` in the navigation."""
    docs = Path(config["docs_dir"])
    config["nav"] = _expanded(config["nav"], docs)
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Render equations, and give headings their anchors."""
    markdown = NOTE.sub("", markdown)  # A heading gives the page its title only if it comes first.
    markdown = BLOCK.sub(lambda found: f'<div class="equation">{_mathml(found[1], "block")}</div>', markdown)
    markdown = INLINE.sub(lambda found: f"<span>{_mathml(found[1], 'inline')}</span>", markdown)
    return ANCHOR.sub(r"\1 \3 {#\2}", markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Put the figures of reproductions into their page, so that they follow its switch of light and dark."""
    folder = Path(page.file.abs_src_path).parent
    count = itertools.count()

    def markup(image: re.Match[str]) -> str:
        svg = themed(in_page((folder / image["path"]).read_text(encoding="utf-8")))
        # Figures of a page have the same ids: each gets a prefix of its own.
        svg = _renamed(svg, next(count))
        return f'<figure class="chart" role="img" aria-label="{image["alt"]}">{svg}</figure>'

    return FIGURE.sub(markup, html)


def _renamed(svg: str, number: int) -> str:
    """Return a figure's markup with ids that no other figure of the page has."""
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>f{number}-", svg)


def _mathml(tex: str, display: str) -> str:
    # The converter knows `align*` in place of `aligned`, which code hosts need inside a block.
    return convert(tex.replace("{aligned}", "{align*}"), display=display)


def _expanded(entries: list[Any], docs: Path) -> list[Any]:
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, str) and entry.endswith("/*.md"):
            found += [path.relative_to(docs).as_posix() for path in sorted(docs.glob(entry))]
        elif isinstance(entry, dict):
            found.append(
                {title: _expanded(each, docs) if isinstance(each, list) else each for title, each in entry.items()}
            )
        else:
            found.append(entry)
    return found
