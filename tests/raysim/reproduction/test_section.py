"""What a report and the pages say of a reproduction, by records that are written down here."""

import json
from pathlib import Path
from typing import Any

import pytest

from raysim.common.errors import InputError
from raysim.reproduction.page import as_markdown, section

RECORD: dict[str, Any] = {
    "name": "a",
    "about": {"paper": "A", "place": "Table 1", "note": ""},
    "full": False,
    "changes": [],
    "note": "",
    "found": "It was not looked into.",
    "differs": [["local.lr", 0.1, 0.2], ["rounds", 9, None], ["data.image_size", None, 16]],
    "version": "1",
    "trials": 1,
    "not_done": 0,
    "seconds": 1.0,
    "claims": [],
    "commit": None,
    "machine": "x",
    "sha256": "0",
}


@pytest.fixture(autouse=True)
def of_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials beside the record, whose digest is 0."""
    (tmp_path / "trials.parquet").touch()
    monkeypatch.setattr("raysim.reproduction.page.digest", lambda folder: "0")


def test_what_the_paper_s_setting_does_not_say_by_this_key_is_no_none_of_the_paper_s() -> None:
    text = as_markdown(RECORD)
    assert "Reduced: `local.lr` 0.2 (paper: 0.1); `rounds` none (paper: 9); `data.image_size` 16." in text


def test_what_was_found_is_said_where_there_is_something(tmp_path: Path) -> None:
    for found in ("", "It was too short."):
        record = {**RECORD, "found": found, "figures": []}
        (tmp_path / "claims.json").write_text(json.dumps(record), encoding="utf-8")
        said = (as_markdown(record).count("Found: It was too short."), section(tmp_path).count("Found: It was too"))
        assert said == ((1, 1) if found else (0, 0))


@pytest.mark.parametrize(
    "text", ["{", "{}", "3", json.dumps({**RECORD, "figures": [{"title": "1", "file": "figures/1.svg"}]})]
)
def test_a_record_that_is_damaged_or_lacks_a_figure_is_refused(tmp_path: Path, text: str) -> None:
    assert section(tmp_path) == ""
    (tmp_path / "claims.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="damaged"):
        section(tmp_path)


def test_a_claim_on_a_ratio_shows_the_ratio(tmp_path: Path) -> None:
    claim = {"says": "it takes three times as many", "dataset": "a", "algorithm": "b", "column": "c", "minus": "d"}
    limits = {"relative": True, "ratio": True, "paper": 3.5, "above": 2.0, "condition": "above 2"}
    row = {**claim, **limits, "verdict": "holds", "numbers": [2.25], "mean": 2.25, "spread": None}
    record = {**RECORD, "claims": [row], "figures": []}
    (tmp_path / "claims.json").write_text(json.dumps(record), encoding="utf-8")
    assert "| it takes three times as many | ✓ holds | 3.25 (n = 1) | 4.5 | above 3 |" in as_markdown(record)
    assert "<td>3.25 (n = 1)</td>" in section(tmp_path)
