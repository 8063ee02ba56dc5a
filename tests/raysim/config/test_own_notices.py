"""Notices on the user's own modules: generators that no key seeds, and variables that functions change."""

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from raysim.config.own_notices import module_notices


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("G = np.random.default_rng(0)", True),
        ("G = np.random.RandomState(0)", True),
        ("G = torch.Generator()", True),
        ("G = random.Random(0)", True),
        ("G = np.random.rand", False),
        ("G = random.random", False),
    ],
)
def test_a_generator_that_no_key_seeds_is_told(line: str, told: bool) -> None:
    module = ModuleType("holder")
    exec(f"import random, torch, numpy as np; {line}", vars(module))
    found = module_notices([module])
    assert [text.partition(" that")[0] for text in found] == ["holder.G is a random generator"] * told


VARIABLES = """
import os
from collections import Counter, deque

COUNT, LOG, TOTAL, SEEN, QUEUE, RATES = {{}}, [], 0, Counter(), deque(), {{"lr": 0.1}}


class Rule:
    calls = 0


class Bar:
    def update(self): ...


BAR = Bar()


def train(model, x, LOCAL=None):
    {line}
    return RATES["lr"]
"""


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("COUNT[x] = 1", "COUNT"),
        ("COUNT[x][0] += 1", "COUNT"),
        ("del COUNT[x]", "COUNT"),
        ("LOG.append(x)", "LOG"),
        ("COUNT.setdefault(x, []).append(1)", "COUNT"),
        ("SEEN.update(x)", "SEEN"),
        ("QUEUE.popleft()", "QUEUE"),
        ("global TOTAL; TOTAL += 1", "TOTAL"),
        ("Rule.calls += 1", "Rule"),
        ("train.calls = 1", "train"),
        ("LOG = []; LOG.append(x)", None),
        ("x.append(1); x[0] = 1", None),
        ("COUNT.get(x)", None),
        ("BAR.update()", None),
        ("os.environ['X'] = '1'", None),
        ("TOTAL = 1", None),
    ],
)
def test_a_variable_of_a_module_that_a_function_changes_is_told(
    line: str, name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_variables.py").write_text(VARIABLES.format(line=line))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_variables", raising=False)
    found = module_notices([importlib.import_module("own_variables")])
    assert [re.sub(r" \(line \d+\)", "", text.partition(", which")[0]) for text in found] == (
        [f"own_variables.train changes own_variables.{name}"] if name else []
    )


def test_the_notice_of_a_changed_variable_names_the_method_its_line_and_how_many_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_methods.py").write_text(
        "SEEN, RATES = [], {}\n\nclass Mine:\n    def update(self, round):\n"
        "        SEEN.append(round)\n        SEEN.append(round)\n        RATES[round] = 0.1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (notice,) = module_notices([importlib.import_module("own_methods")])
    assert notice.startswith("own_methods.Mine.update (line 4) changes own_methods.SEEN, which")
    assert notice.endswith("; variables changed like this: 1 more")


def test_own_code_with_a_deep_expression_has_its_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_deep.py").write_text(
        f"X = {' + '.join('1' * 1200)}\nSEEN = []\n"
        "try:\n    pass\nexcept OSError:\n    match X:\n        case 1:\n"
        "            def train():\n                SEEN.append(1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (notice,) = module_notices([importlib.import_module("own_deep")])
    assert notice.startswith("own_deep.train (line 8) changes own_deep.SEEN, which")
