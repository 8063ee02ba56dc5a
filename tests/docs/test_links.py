"""Every link of the pages leads somewhere, every page is in the site's navigation, and the README is short."""

import re
from functools import cache
from pathlib import Path

import pytest

from docs.pictures.inline import INCLUDED
from tests.kit.pages import DOCS, PAGES, ROOT, anchors, links, name, text_of


@cache
def anchors_of(page: Path) -> set[str]:
    return anchors(text_of(page))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    replaced = "".join(INCLUDED.findall(text_of(page)))  # the site shows a text in the place of these links
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)}: {link}"
        inside = DOCS not in page.parents or DOCS in target.parents or target == DOCS or f"({link})" in replaced
        assert inside, f"{name(page)}: {link} leads out of the site"
        if anchor:
            known = anchors_of(target)
            assert anchor in known, f"{name(page)}: {link}, of {sorted(known)}"


def test_the_site_shows_every_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    named = re.findall(r"[\w/-]+(?:\*|\w)\.md", navigation)
    shown = {path.relative_to(DOCS).as_posix() for each in named for path in DOCS.glob(each)}
    assert shown == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}


def test_the_readme_is_short() -> None:
    assert len(text_of(ROOT / "README.md").splitlines()) <= 200


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pages_name_no_machine_and_no_registry(page: Path) -> None:
    assert not re.search(r"/(?:[w]ork|[r]oot)/|/tmp/\w|[p]ypi|python[h]osted", text_of(page)), name(page)
