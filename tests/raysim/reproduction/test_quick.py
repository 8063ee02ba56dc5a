"""One claim of each paper, on data that come with raysim: it comes out as the paper says, on every seed."""

from pathlib import Path

import pytest

from raysim.reproduction.file import reproductions
from raysim.reproduction.reproducing import reproduce

QUICK = [name for name in reproductions() if name.endswith("-quick")]


def test_each_of_our_papers_has_one() -> None:
    others = {"niid", "pfllib", "dp", "topk", "robust", "fedscale", "hierfavg", "heterofl", "flamby", "lr", "mcmahan"}
    papers = {name.partition("-")[0] for name in reproductions()} - others  # without other people's tables
    assert papers == {name.partition("-")[0] for name in QUICK}


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_claim_of_each_paper_holds(name: str, tmp_path: Path) -> None:
    _, claims = reproduce(name, tmp_path / "run", inline=True)
    assert {each.claim.says: each.verdict for each in claims if each.verdict != "holds"} == {}
