"""The pages of results say what the records say, and the records fit the files."""

import json
from functools import cache
from pathlib import Path

import pytest

from docs.reproductions.collect import HERE, README, RESULTS, pages, reasons, records, take
from docs.reproductions.judges import END, judges, with_table
from raysim.common.errors import InputError
from raysim.reproduction.claim import WORDS, Claim
from raysim.reproduction.file import differences, read_reproduction, reproductions
from raysim.reproduction.page import UNTESTED, verdict_text
from raysim.reproduction.provenance import setting_of

RECORDS = {record["name"]: record for record in records()}
read = cache(read_reproduction)


def test_the_pages_say_what_the_records_say() -> None:
    every = [read(name) for name in reproductions()]
    written = pages(records(), every)
    assert {name: (HERE / name).read_text(encoding="utf-8") for name in written} == written
    table = judges(records(), every)
    assert table in written["index.md"] and f"{table}\n{END}" in README.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_of_its_file(name: str) -> None:
    """The claims are those of the file, all keys of them, and what was run is what the file says today."""
    record, reproduction = RECORDS[name], read(name)
    keys = set(Claim.model_fields) - set(WORDS)
    claims = [{key: row[key] for key in row if key in keys} for row in record["claims"]]
    own = [each.model_dump(mode="json", exclude_none=True, include=keys) for each in reproduction.claims]
    assert claims == own
    assert record["setting"] == setting_of(reproduction, full=False)
    assert record["differs"] == json.loads(json.dumps(differences(reproduction)))
    for figure in record["figures"]:
        assert figure["file"] is None or (RESULTS / name / figure["file"]).is_file()


@pytest.mark.parametrize("name", reproductions())
def test_a_claim_without_a_test_says_why(name: str) -> None:
    """And only such a claim does; a cause belongs to a claim that is off."""
    record = RECORDS.get(name, {"claims": []})
    verdicts = {row["says"]: row["verdict"] for row in record["claims"]}
    for claim in read(name).claims:
        verdict = verdicts.get(claim.says, UNTESTED)
        assert (claim.untested is None) == (verdict != UNTESTED), claim.says
        assert claim.cause is None or verdict == "does not hold", claim.says


def test_a_judge_is_a_row_of_counted_cells() -> None:
    cell = {"says": "it", "within": 0.1}
    claims = [
        *({**cell, "verdict": verdict} for verdict in ("holds", "holds", "holds in direction", "does not hold")),
        {**cell, "verdict": "does not hold", "cause": "their batches"},
        {**cell, "verdict": UNTESTED, "untested": "hours", "hours": 3.0},
        {"says": "that", "above": 0, "verdict": "holds in direction"},
        {**cell, "minus": "fedavg", "verdict": "does not hold"},
        {"says": "others", "above": 0, "verdict": UNTESTED, "untested": "data"},
    ]
    flamby = read_reproduction("flamby-heart")
    found = [{"name": "flamby-heart", "claims": claims}]
    rows = judges(found, [flamby, read_reproduction("fedbn-quick")]).splitlines()
    assert rows[2:] == ["| FLamby | 6 | 2 | 1 | 1 | 1 | 1 | 1 of 2 |"]
    # Nothing of it was run: every cell counts as such.
    assert judges([], [flamby]).splitlines()[2] == "| FLamby | 36 |  |  |  |  | 36 |  |"
    assert [verdict_text(row) for row in claims[4:6]] == ["✗ does not hold: their batches", "3 hours"]
    assert "Of 2 claims that were not tested here, 1 need hours (3 at most), 1 need data" in reasons(found)
    with pytest.raises(ValueError, match="must have the lines"):
        with_table("no lines", "a table")


def test_only_commits_and_the_file_s_own_setting_are_taken(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no claims"):
        take(tmp_path)
    setting = setting_of(read_reproduction("fedmmb-table-2"), full=False)
    record = {"name": "fedmmb-table-2", "setting": setting, "changes": [], "commit": "0123+", "figures": []}
    other = "without changes"
    cases = ({"setting": "45"}, other), ({"changes": ["rounds=3"]}, other), ({"name": "x"}, "must be x"), ({}, "0123")
    for change, what in cases:
        (tmp_path / "claims.json").write_text(json.dumps({**record, **change}))
        with pytest.raises(InputError, match=what):
            take(tmp_path)
