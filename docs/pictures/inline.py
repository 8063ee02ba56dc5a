"""Hook of the site: put the pages' own pictures into the page, so that they follow its switch of light and dark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from raysim.common.distribution import VERSION

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "docs" / "assets"
INCLUDED = re.compile(r"<!-- included: clusters/README\.md -->\n.*?<!-- end of included -->", re.DOTALL)
"""Part of a page in whose place the site shows the clusters' README; code hosts show its link."""

IMAGE = re.compile(r"<img\b[^>]*?\bsrc=\"(?:\.\./)*assets/(?P<name>[\w/-]+\.svg)\"[^>]*>")


def on_config(config: Any) -> Any:
    """Show the version at the foot of each page."""
    config["copyright"] = f"raysim {VERSION} · Apache-2.0"
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the link to the clusters' README by its text, without the title."""
    return INCLUDED.sub(lambda _: clusters(), markdown)


def clusters() -> str:
    """Return the clusters' README with links that work from `how-to/`; files of the folder are named instead."""
    text = (ROOT / "clusters" / "README.md").read_text(encoding="utf-8").partition("\n")[2]
    text = text.replace("](../docs/how-to/", "](").replace("](../docs/", "](../")
    return re.sub(r"\[`?([^\]`]+)`?\]\((?!\.\./|#|[\w-]+\.md)[^)]+\)", r"`clusters/\1`", text)


def on_page_content(html: str, **_: Any) -> str:
    """Replace each of our pictures by its markup; other images stay."""
    return IMAGE.sub(_markup, html)


def _markup(image: re.Match[str]) -> str:
    text = (ASSETS / image["name"]).read_text(encoding="utf-8")
    return text.replace("\n", "") if 'class="picture"' in text else image[0]
