"""Mutants of a toy package are drawn, found again, and caught by the tests that reach them."""

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.mutants.judging import Slot, draw, judge, summary
from tests.mutants.reach import digests, update
from tests.mutants.sites import Mutant, mutants, mutated

ROOT = Path(__file__).parents[2]

TOY = b'''"""Toy."""


def larger(a: int, b: int = 2) -> int:
    """Return a sum -- or not."""
    if a < b:
        raise ValueError("a < b" + "!")
    return a + 1


def unreached(a: int) -> int:
    while a > 0:
        a -= 1
    return a


def endless(values: dict[str, int]) -> int:
    while values["left"] != 0:
        values["left"] -= 1
    return values["right"]
'''
TESTS = b"""
from algorithms.toy import endless, larger


def test_larger():
    assert larger(2, 1) == 3


def test_endless():
    assert endless({"left": 2, "right": 5}) == 5
"""


SMALL = b"""
def f(a, b):
    if not a and b['x'] < -b.get('y', 1):
        g(a, b)
    return a * b + 1 if a else (True, [c for c in b if c])
"""


def toy(kind: str, old: str, new: str) -> Mutant:
    every = (mutant for mutant, _, _ in mutants("algorithms/toy.py", TOY))
    (found,) = (mutant for mutant in every if (mutant.kind, mutant.old, mutant.new) == (kind, old, new))
    return found


def test_changes_of_each_kind() -> None:
    found = [mutant for mutant, _, _ in mutants("f.py", SMALL)]
    assert {
        ("and, or", "(not a or b['x'] < -b.get('y', 1))"),
        ("dropped condition", "(not a)"),
        ("dropped not", "a"),
        ("comparison", "(b['x'] <= -b.get('y', 1))"),
        ("wrong key", "'y'"),
        ("dropped sign", "b.get('y', 1)"),
        ("swapped arguments", "b.get(1, 'y')"),
        ("constant", "0"),
        ("constant", "2"),
        ("dropped statement", "pass"),
        ("swapped arguments", "g(b, a)"),
        ("operator", "(a * b - 1)"),
        ("operator", "(a / b)"),
        ("dropped term", "b"),
        ("negated condition", "(not a)"),
        ("negated condition", "(not c)"),
        ("flag", "False"),
    } <= {(mutant.kind, mutant.new) for mutant in found}
    assert all(mutated(SMALL, mutant) not in (None, SMALL) for mutant in found)


def test_texts_annotations_and_errors_stay() -> None:
    changed = {mutant.old for mutant, _, _ in mutants("algorithms/toy.py", TOY)}
    loop = {'values["left"] != 0', 'values["left"] -= 1', '"left"', '"right"'}
    assert changed == {"2", "a < b", "a + 1", "1", "a > 0", "0", "a -= 1", *loop}


def test_a_mutant_is_found_on_another_line() -> None:
    mutant = toy("comparison", "a < b", "(a <= b)")
    moved = TOY.replace(b'"""Toy."""', b'"""Toy."""\n\nVALUE = "\xc3\x97" * (0 < 1)')
    assert mutated(moved, mutant) == moved.replace(b"if a < b:", b"if (a <= b):")
    assert mutated(TOY.replace(b"if a < b:", b"if b > a:"), mutant) is None


def test_every_drawn_mutant_compiles_and_differs(tmp_path: Path) -> None:
    for room in ("algorithms/core", "partitioning/qp"):
        shutil.copytree(ROOT / room, tmp_path / room)
    drawn = draw(tmp_path, 60, 1)
    assert drawn == draw(tmp_path, 60, 1) and len(set(drawn)) == 60
    for mutant in drawn:
        source = (ROOT / mutant.file).read_bytes()
        changed = mutated(source, mutant)
        assert changed and ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source)), mutant


def test_more_mutants_than_there_are_are_refused(tmp_path: Path) -> None:
    (tmp_path / "algorithms").mkdir()
    (tmp_path / "algorithms/toy.py").write_bytes(TOY)
    most = len({mutant for mutant, _, _ in mutants("algorithms/toy.py", TOY)})
    assert len(draw(tmp_path, most, 1)) == most
    with pytest.raises(SystemExit, match=f"^--draw {most + 1}: must be at most {most}, the number of mutants; .*$"):
        draw(tmp_path, most + 1, 1)


@pytest.mark.parametrize("file", ["tests/conftest.py", "tests/raysim/conftest.py", "tests/kit/runs.py"])
def test_code_that_tests_share_makes_the_map_anew(tmp_path: Path, file: str) -> None:
    before = digests(tmp_path)["packages"]
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()
    assert digests(tmp_path)["packages"] != before


@pytest.mark.slow
def test_outcomes(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name, text in {
        "algorithms/__init__.py": b"",
        "algorithms/toy.py": TOY,
        "tests/test_toy.py": TESTS,
    }.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(text)
    (tree / "tests/__init__.py").touch()
    (tree / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = ["--import-mode=importlib"]\n')
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    reach = update(tree, tmp_path / "cache", 1)
    slot = Slot.start(tree, tmp_path / "cache" / "slot")
    expected = {
        toy("operator", "a + 1", "(a - 1)"): ("caught", "tests/test_toy.py::test_larger"),
        toy("comparison", "a < b", "(a <= b)"): ("survived", None),
        toy("comparison", "a > 0", "(a >= 0)"): ("not reached", None),
        toy("wrong key", '"right"', "'left'"): ("caught", "tests/test_toy.py::test_endless"),
        toy("operator", 'values["left"] -= 1', "values['left'] += 1"): ("timed out", "tests/test_toy.py::test_endless"),
    }
    found = {mutant: judge(mutant, slot, reach, 60) for mutant in expected}
    slot.end()
    assert {mutant: (result["outcome"], result.get("by")) for mutant, result in found.items()} == expected
    assert summary(list(found.values())).startswith("caught 3 of 5 (60.0 %), 1 of them by time; 1 survived")
    assert (slot.copy / "algorithms/toy.py").read_bytes() == TOY
