"""The README's table has every algorithm, and what it says of SCAFFOLD's length is true."""

import re
from pathlib import Path

import algorithms
from algorithms.named import ALGORITHMS

FOLDER = Path(algorithms.__file__).parent
README = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_every_algorithm_has_its_row() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|(?:[^|\n]+\|){6}$", README, re.MULTILINE)
    assert sorted(rows) == sorted(ALGORITHMS)


def test_scaffold_is_as_long_as_it_says() -> None:
    lines = len((FOLDER / "scaffold.py").read_text(encoding="utf-8").splitlines())
    assert f"`scaffold.py`](scaffold.py), {lines} lines" in README
