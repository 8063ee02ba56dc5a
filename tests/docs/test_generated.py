"""The generated pages: equal to what the source gives, complete, and with a place for every name."""

import re
import tomllib
from functools import cache

import pytest

from algorithms.names import ALGORITHMS
from docs.generated.aliases import alias, our_class
from docs.generated.keys import all_groups, anchor, page_of
from docs.generated.marks import COMMAND, NOTE, PART
from docs.generated.pages import DOCS, left_over, names, pages
from docs.generated.types import named_in
from raysim.config.experiment import Experiment
from tests.kit.pages import text_of


@cache
def written() -> dict[str, str]:
    return pages()


def test_the_written_pages_are_those_of_the_source() -> None:
    stale = [page for page, text in written().items() if not (DOCS / page).exists() or text_of(DOCS / page) != text]
    assert not stale and not left_over(), f"run `{COMMAND}`, and commit what it writes"


def test_every_key_has_one_anchor_and_a_meaning() -> None:
    for group in all_groups():
        for key in group.keys if not group.thing.startswith("downlink.chain") else ():
            text = written()[page_of(group)]
            (section,) = re.findall(rf'<a id="{re.escape(anchor(group, key))}"></a>(.*?)(?=\n#|\Z)', text, re.DOTALL)
            heading, facts, meaning = section.strip().split("\n\n")[:3]
            assert key.name in heading and facts.startswith("*") and meaning[-1] in ".)", section


def test_every_table_of_the_file_has_a_page() -> None:
    tables = {group.table.partition(".")[0] for group in all_groups()} - {"top", "study"}
    assert tables >= Experiment.model_fields.keys() - {"seed", "rounds", "epochs", "modules"} - {"name"}
    assert all(f"reference/experiment/{table}.md" in written() for table in tables)


def test_every_algorithm_has_a_page_with_its_facts() -> None:
    facts = tomllib.loads((DOCS / "generated" / "algorithms.toml").read_text(encoding="utf-8"))
    assert set(facts) == set(ALGORITHMS)
    for name in ALGORITHMS:
        text = written()[f"reference/algorithms/{name}.md"]
        parts = ("Equation", "Keys", "Parts", "Paper", "Recipes", "Settings that conflict", "In Python")
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == list(parts), name
        assert "```math" in text and ("https://" in text or name == "centralized"), name


def test_every_type_that_is_named_is_documented() -> None:
    texts = [
        text if text.startswith(NOTE) else "".join(found[0] for found in PART.finditer(text))
        for text in written().values()
    ]
    ours = {name for text in texts for name in named_in(text) if our_class(name) or alias(name)}
    assert ours >= {"PerStep", "LossPower", "Accumulated", "Run"} and ours - names().places.keys() == set()


def test_an_anchor_is_in_one_place_of_a_page() -> None:
    for page, text in written().items():
        anchors = re.findall(r'<a id="([^"]+)"></a>', text)
        assert len(anchors) == len(set(anchors)), page
        assert {place.anchor for place in names().places.values() if place.page == page} - {""} <= set(anchors), page


def test_the_python_page_begins_with_run() -> None:
    assert re.findall(r"^### .*`raysim\.(\w+)`$", written()["reference/python.md"], re.MULTILINE)[0] == "run"


def test_no_range_is_that_of_every_number() -> None:
    assert not [page for page, text in written().items() if re.search(r"10\^(9|12)\b", text)]


@pytest.mark.parametrize("pattern", ["Sentinel", "UNSET", "<function", " object at 0x", "default `None`", "`None`"])
def test_no_page_shows_what_only_python_knows(pattern: str) -> None:
    assert not [page for page, text in written().items() if pattern in text]
