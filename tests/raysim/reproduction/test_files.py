"""The reproductions that come with raysim: they are what they say, reduced and full."""

import json
from pathlib import Path

import pytest

from raysim.reproduction.file import read_reproduction, reproductions
from raysim.reproduction.reproducing import reproduce
from raysim.studies.file import Study

SOME = list(reproductions())


@pytest.mark.parametrize("name", SOME)
def test_claims_are_of_what_is_run(name: str) -> None:
    reproduction = read_reproduction(name)
    full = Study.of(reproduction.study(full=True))
    reduced = Study.of(reproduction.study(full=False))
    datasets, algorithms = {each.name for each in full.datasets}, set(full.names)
    for claim in reproduction.claims:
        assert {claim.dataset, claim.minus_dataset or claim.dataset} <= datasets, claim.says
        assert {claim.algorithm, claim.minus or claim.algorithm} <= algorithms, claim.says
    assert {each.name for each in reduced.datasets} <= datasets and set(reduced.names) <= algorithms
    says = [claim.says for claim in reproduction.claims]
    assert len(set(says)) == len(says)


def test_a_reproduction_leaves_its_claims(tmp_path: Path) -> None:
    """On digits, of which the numbers are others: only what is written is looked at."""
    changes = ["data.dataset=digits", "data.test=0.2", "rounds=3", "study.seeds=[1]", "local.batch_size=5"]
    done = reproduce("fedmmb-table-2", tmp_path / "run", changes=changes, inline=True)
    by_verdict = {each.claim.says: each.verdict for each in done.claims}
    assert by_verdict["2FNN, MNIST, IID, K = 10: concordant, delta below epsilon"] == "holds"
    assert by_verdict["2FNN, MNIST, IID, K = 10: accuracy"] == "not tested here"
    assert by_verdict["3CFNN, MNIST, IID, K = 10: concordant, delta below epsilon"] == "not tested here"
    page = (tmp_path / "run" / "claims.md").read_text()
    assert "raysim reproduce fedmmb-table-2 --set data.dataset=digits" in page and "| holds |" in page
    assert "`rounds` 400 (paper: 16000)" in page


def test_a_reproduction_comes_again_to_the_byte(tmp_path: Path) -> None:
    """A record has a digest that a second run, in another folder, comes to; other rounds do not."""
    small = ["data.dataset=digits", "data.test=0.2", "rounds=2", "study.seeds=[1]", "local.batch_size=5"]
    found = {}
    for name, changes in (("one", small), ("again", small), ("other", [*small, "rounds=3"])):
        reproduce("fedmmb-table-2", tmp_path / name, changes=changes, inline=True)
        found[name] = json.loads((tmp_path / name / "claims.json").read_text())["sha256"]
    assert found["one"] == found["again"] != found["other"]
