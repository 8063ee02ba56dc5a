"""The pages, their code blocks and their links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from docs.generated.marks import NOTE, PART

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLDERS = ("algorithms", "partitioning", "clusters", "raysim/data", "raysim/models", "tests/fuzz")
READMES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *(ROOT / folder / "README.md" for folder in (*FOLDERS, "tests/benchmarks/peers")),
]
PAGES = [*READMES, *sorted(DOCS.rglob("*.md"))]

FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?```(?P<language>[\w-]*)(?: title=\"(?P<title>[^\"]+)\")?\n"
    r"(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")


@dataclass(frozen=True)
class CodeBlock:
    """A code block of a page: its language, its file name, and the reason why it is not run."""

    language: str
    title: str | None
    reason: str | None
    text: str


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose_of(page: Path) -> str:
    """Return a page without its generated parts; empty for a page that is generated as a whole."""
    text = text_of(page)
    return "" if text.startswith(NOTE) else PART.sub("", text)


def blocks(page: Path) -> Iterator[CodeBlock]:
    for found in FENCE.finditer(prose_of(page)):
        yield CodeBlock(found["language"], found["title"], found["reason"], found["text"])


def links(page: Path) -> Iterator[str]:
    """Yield the targets of the page's links, code blocks apart."""
    prose = re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL))
    for found in LINK.finditer(prose):
        yield found[1] or found[2]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as both MkDocs and code hosts make them."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", prose, re.MULTILINE):
        slug = re.sub(r"[^\w\s-]", "", heading).strip().lower()
        host, site = re.sub(r"\s", "-", slug), re.sub(r"[-\s]+", "-", slug)
        for each in (host, site):
            found |= {each} if each not in found else {f"{each}-1", f"{each}_1"}
    return found | set(re.findall(r"id=\"([^\"]+)\"", prose))


def without_ray(text: str) -> str:
    """Return the commands of a block as commands that run in one process."""
    return re.sub(r"\braysim (?:run|study|resume) \S+", r"\g<0> --inline", text)


def cut(text: str) -> str:
    """Return a block whose runs have two rounds."""
    text = re.sub(r"\braysim run \S+", r"\g<0> --set rounds=2", text)
    return re.sub(r"(\brounds\"? ?[=:] ?)\d+", r"\g<1>2", text)
