"""The README's table: every model, with the parameters that the tests count."""

import re
from pathlib import Path

import raysim.models
from raysim.models.build import MODELS
from tests.raysim.models.test_build import COUNTS as GENERAL
from tests.raysim.models.test_papers import COUNTS as PAPERS

README = (Path(raysim.models.__file__).parent / "README.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)`[^|]*\|[^|]*\|[^|]*\| ([\d,]+) \|[^|]+\| ([^|]*)\|[^|]+\|$", README, re.MULTILINE)


def test_every_model_has_its_row_and_its_keys() -> None:
    keys: dict[str, str] = {}
    for name, _, listed in ROWS:
        keys[name] = keys.get(name, "") + listed
    assert list(keys) and set(keys) == set(MODELS)
    for name, listed in keys.items():
        norm = {"norm"} if "norm" in MODELS[name].signature else set()
        own = set(MODELS[name].parameters) | norm
        assert set(re.findall(r"`(\w+)", listed)) == own, name


def test_the_parameters_are_those_counted() -> None:
    counted = {(name, count) for name, *_, count in PAPERS} | {(name, count) for name, *_, count in GENERAL}
    # The one that is counted elsewhere for 10 classes instead of 62, and so 52 outputs of 129 fewer.
    counted.add(("cnn_dropout", 1_206_590))
    for name, parameters, _ in ROWS:
        assert (name, int(parameters.replace(",", ""))) in counted, name
