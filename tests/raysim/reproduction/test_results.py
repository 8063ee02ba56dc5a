"""The results page: it is what the records come to, and the records are of the files as they are."""

import json
from pathlib import Path

import pytest

from raysim.common.errors import InputError
from raysim.reproduction.claim import Claim
from raysim.reproduction.file import differences, read_reproduction, reproductions
from raysim.reproduction.provenance import setting_of
from raysim.reproduction.results import PAGE, RECIPES, RESULTS, page, records, take

RECORDS = {record["name"]: record for record in records()}


def test_the_page_is_what_the_records_come_to() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(records(), map(read_reproduction, reproductions()))


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
    other = "as it comes"
    cases = ({"setting": "45"}, other), ({"changes": ["rounds=3"]}, other), ({"name": "x"}, "of x"), ({}, "0123")
    for change, what in cases:
        (tmp_path / "claims.json").write_text(json.dumps({**record, **change}))
        with pytest.raises(InputError, match=what):
            take(tmp_path)


def test_every_link_of_the_page_leads_somewhere() -> None:
    text = PAGE.read_text(encoding="utf-8")
    targets = [part.partition(")")[0] for part in text.split("](")[1:]]
    files = [target for target in targets if not target.startswith("#")]
    assert files and all((RECIPES / target).exists() for target in files)
