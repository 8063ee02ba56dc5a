"""The built site: no debris of the tools that make it, no empty cell, no link to nowhere, nothing from elsewhere."""

import re
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from os.path import normpath
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from tests.kit.pages import DOCS, ROOT

DEBRIS = re.compile(
    r"Sentinel|UNSET|<function| object at 0x|<class '|\b10\^(?:9|12)\b|[Dd]efault(?:s to|:| is)? `?None\b|"
    r"PydanticUndefined|<factory>|```|\$`|:::|<!-- |\{#[\w.-]+\}|\]\(\S+\.md"
)
"""Text that only a tool, or Python, knows."""

FILLED = {"name", "key", "value", "default", "meaning", "content", "file", "column", "columns", "command", "checks"}
"""Columns of tables, by their headings, whose cells are never empty."""

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"}


@dataclass
class Page(HTMLParser):
    """Text, headings, tables, links and anchors of a page of the site."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.inside: list[str] = []
        self.columns: list[str] = []
        self.cell, self.place = "", 0

    def handle_starttag(self, tag: str, given: list[tuple[str, str | None]]) -> None:
        attributes = {key: value or "" for key, value in given}
        self.ids |= {attributes[key] for key in ("id", "name") if key in attributes}
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        elif tag in ("script", "img", "iframe") and "src" in attributes:
            self.loaded.append(attributes["src"])
        elif tag == "link" and attributes.get("rel") in ("stylesheet", "icon", "preconnect", "preload"):
            self.loaded.append(attributes["href"])
        if tag not in VOID:
            self.inside.append(tag)
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append("")
        self.columns = [] if tag == "table" else self.columns
        self.place = 0 if tag == "tr" else self.place
        self.cell = "" if tag in ("td", "th") else self.cell + ("image" if tag in ("img", "svg") else "")

    def handle_endtag(self, tag: str) -> None:
        while self.inside and self.inside.pop() != tag:
            pass
        if tag == "th":
            self.columns.append(self.cell.strip().lower())
        elif tag == "td":
            column = self.columns[self.place] if self.place < len(self.columns) else ""
            if (column in FILLED or not self.place) and not self.cell.strip():
                self.empty.append(f"an empty cell in the column {column!r}, after {''.join(self.pieces[-9:])!r}")
            self.place += 1

    def handle_data(self, data: str) -> None:
        if "script" in self.inside or "style" in self.inside:
            return
        if "table" in self.inside:
            self.cell += data
        if "code" not in self.inside and "pre" not in self.inside:
            self.pieces.append(data)
        elif "pre" not in self.inside:
            self.pieces.append(f"\u2039{data}\u203a")
        if any(tag in self.inside for tag in ("h1", "h2", "h3", "h4")):
            self.headings[-1] += data


def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


@cache
def exists(path: Path) -> bool:
    return path.exists()


def faults(name: str, page: Page, pages: dict[str, Page], site: Path) -> list[str]:
    """Return what is wrong with a page."""
    text = "".join(page.pieces)
    shown = [re.sub("\u2039[^\u203a]*\u203a", "", text), *re.findall("\u2039([^\u203a]*)\u203a", text)]
    found = [hit[0] for text in shown for hit in DEBRIS.finditer(text)]
    found += [f"a backtick in the heading {each!r}" for each in page.headings if "`" in each]
    found += page.empty + [f"loads {each}" for each in page.loaded if re.match(r"(?:\w+:)?//", each)]
    for link in [*page.links, *page.loaded]:
        path, anchor = urldefrag(unquote(link))
        if re.match(r"[a-z]+:|//", link) or (not path and not anchor):
            continue
        target = normpath(Path(name).parent / path) if path else name
        if (target not in pages and not exists(site / target)) or (anchor and anchor not in pages[target].ids):
            found.append(f"a link to nowhere: {link}")
    return [f"{name}: {each}" for each in dict.fromkeys(found)]


def built_site(folder: Path) -> Path:
    """Return the site that `.ci/run` has left, unless a source is newer; else build it in a folder."""
    sources = [ROOT / "mkdocs.yml", ROOT / "clusters" / "README.md", *DOCS.rglob("*.*")]
    left = ROOT / "site" / "index.html"
    if left.exists() and left.stat().st_mtime > max(path.stat().st_mtime for path in sources):
        return left.parent
    for package in ("mkdocs", "latex2mathml"):
        pytest.importorskip(package, reason="the group `docs` is not installed: `uv sync --group docs`")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not built.returncode, built.stderr
    return folder


def test_the_site_has_no_debris_and_no_dead_link(tmp_path: Path) -> None:
    site = built_site(tmp_path.resolve() / "site")
    pages = {path.relative_to(site).as_posix(): read(path) for path in sorted(site.rglob("*.html"))}
    assert len(pages) > 100 and sum(len(page.links) for page in pages.values()) > 1000
    found = [each for name, page in pages.items() if name != "404.html" for each in faults(name, page, pages, site)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ("<p>default Sentinel.UNSET</p>", "Sentinel"),
        ("<p>at most 10^12</p>", "10^12"),
        ("<p>a &lt;function f at 0x7f&gt;</p>", "<function"),
        ("<p>Default: <code>None</code></p>", ""),
        ("<p>Default: None</p>", "Default: None"),
        ("<h2>`schedule`</h2>", "backtick"),
        ("<table><tr><th>key</th><th>meaning</th></tr><tr><td>a</td><td></td></tr></table>", "empty cell"),
        ('<a href="other.html">x</a>', "a link to nowhere"),
        ('<a href="#there">x</a>', "a link to nowhere"),
        ('<script src="https://host/x.js"></script>', "loads"),
        ('<p id="there">fine</p><a href="#there">x</a>', ""),
    ],
)
def test_a_fault_is_found(html: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(html)
    page = read(tmp_path / "index.html")
    found = faults("index.html", page, {"index.html": page}, tmp_path.resolve())
    assert (fault in "".join(found)) if fault else not found
