"""The pages of results say what the records say, and the records fit the files."""

import json
from pathlib import Path

import pytest

from docs.reproductions.collect import HERE, RESULTS, pages, records, take
from raysim.common.errors import InputError
from raysim.reproduction.claim import Claim
from raysim.reproduction.file import differences, read_reproduction, reproductions
from raysim.reproduction.provenance import setting_of

RECORDS = {record["name"]: record for record in records()}


def test_the_pages_say_what_the_records_say() -> None:
    written = pages(records(), map(read_reproduction, reproductions()))
    assert {name: (HERE / name).read_text(encoding="utf-8") for name in written} == written


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_of_its_file(name: str) -> None:
    """The claims are those of the file, all keys of them, and what was run is what the file says today."""
    record, reproduction = RECORDS[name], read_reproduction(name)
    claims = [{key: row[key] for key in row if key in Claim.model_fields} for row in record["claims"]]
    assert claims == [each.model_dump(exclude_none=True) for each in reproduction.claims]
    assert record["setting"] == setting_of(reproduction, full=False)
    assert record["differs"] == json.loads(json.dumps(differences(reproduction)))
    for figure in record["figures"]:
        assert figure["file"] is None or (RESULTS / name / figure["file"]).is_file()


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
