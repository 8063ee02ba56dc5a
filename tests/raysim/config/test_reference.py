"""Every printed range of a key is true: each value in it is taken, and each value outside is refused."""

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from partitioning import SCHEMES, InputError
from partitioning.schemes.registry import parameters, takes
from raysim.config.ranges import LIMITS, POWERS, Construction, Range, static_range, true_range
from raysim.config.reference import Group, Key, groups
from raysim.config.scheme_keys import BOUNDS
from raysim.studies.keys import study_groups

GROUPS = [*groups(), *study_groups()]
WRITTEN = {text: value for value, text in POWERS.items()}
NUMBER = re.compile(r"(integer|number)(?: ([≥>]) ([^, )]+))?(?:,? ([≤<]) ([^, )]+))?")

ALONE = {"local.optimizer_options", "model.options", "data.crop_scale", "data.crop_ratio"}
"""Keys whose numbers are checked only together with others: an optimiser, a pretrained model, an ascending pair."""


def printed(text: str, wrap: Callable[[Any], Any] = lambda value: value) -> Iterator[tuple[str, Range, Any]]:
    """Yield the kind and the range of each number in a printed type, with a function that makes a value of the key."""
    for part in re.split(r" or (?![^(]*\))", text):
        listed = re.match(r"list of (?:(\d): )?\(?", part)
        if listed:
            size = int(listed[1] or 1)
            yield from printed(part[listed.end() :].removesuffix(")"), lambda value, n=size: wrap([value] * n))  # type: ignore[misc]
        elif part.startswith("table of "):
            inner = part.removeprefix("table of ").removeprefix("(").removesuffix(")")
            yield from printed(inner, lambda value: wrap({"x": value}))
        elif found := NUMBER.fullmatch(part):
            limit = LIMITS[int if found[1] == "integer" else float]
            least, most = (
                WRITTEN.get(end) or float(end) if end else sign * limit for end, sign in ((found[3], -1), (found[5], 1))
            )
            yield found[1], Range(least, most, found[2] == ">", found[4] == "<"), wrap


def drawn(known: Range, draw: random.Random) -> Iterator[float]:
    """Yield both ends of a range, numbers at random distances inside and outside of them, and one between."""
    for end in (known.least, known.most):
        yield from (end, *(end + sign * 10.0 ** draw.uniform(-3, 3) for sign in (-1, 1)))
    span = min(known.most, known.least + 100) - known.least
    yield known.least + draw.random() * span


@pytest.mark.parametrize("group", GROUPS, ids=[each.thing or each.table for each in GROUPS])
def test_a_printed_range_holds_what_is_taken_and_nothing_else(group: Group) -> None:
    draw = random.Random(group.thing or group.table)
    for key in group.keys:
        for kind, known, wrap in printed(key.kind) if key.path not in ALONE else ():
            check(key, kind, known, wrap, draw)


def check(key: Key, kind: str, known: Range, wrap: Callable[[Any], Any], draw: random.Random) -> None:
    inside = known.least + (known.above or 0) * min(1.0, (known.most - known.least) / 2)
    number: Callable[[float], Any] = int if kind == "integer" else float
    able = [test for test in key.construction.tests(key.name) if test(wrap(number(inside)))]
    assert able, f"{key.path} = {wrap(number(inside))} is refused, and its range is {known}"
    values = {number(each) for each in drawn(known, draw)}
    others = [value for value in values if known.holds(value) and value != number(inside)]
    # A companion that allows one number alone excludes the key: momentum beside Adam.
    able = [test for test in able if any(test(wrap(value)) for value in others)] or able
    for value in values:
        is_taken = all(test(wrap(value)) for test in able)
        assert is_taken == known.holds(value), f"{key.path} = {wrap(value)}, and its range is {known}"


def test_a_companion_that_excludes_a_key_sets_no_bound() -> None:
    ranges = {key.path: key.kind for group in GROUPS for key in group.keys}
    assert ranges["local.momentum"] == "number ≥ 0, < 1"
    assert ranges["algorithm.over"] == "number ≥ 1"
    assert {ranges[f"model.renorm_{key}"] for key in ("start", "r_end", "d_end")} == {"integer ≥ 0"}


def test_ends_that_every_number_has_are_left_out() -> None:
    assert Range(0, LIMITS[int]).text(int) == "≥ 0" and Range(-LIMITS[float], LIMITS[float]).text(float) == ""
    assert Range(0, 2**63, below=True).text(int) == "≥ 0, < 2^63" and Range(-LIMITS[int], 5).text(int) == "≤ 5"
    assert not any(re.search(r"10\^(9|12)", key.kind) for group in GROUPS for key in group.keys)


def test_the_keys_that_are_checked_only_with_others_are_few() -> None:
    numbered = {key.path for group in GROUPS for key in group.keys if list(printed(key.kind))}
    assert numbered >= ALONE and len(numbered) > 20 * len(ALONE)


def test_a_range_is_found_by_trying() -> None:
    taken = Construction(lambda keys: refuse(not 3 <= keys["x"] < 77.5))
    assert true_range(float, static_range(float, ()), taken.tests("x")) == Range(3.0, np.nextafter(77.5, 0))
    assert true_range(int, static_range(int, ()), taken.tests("x")) == Range(3, 77)
    assert true_range(int, static_range(int, ()), Construction(lambda keys: refuse(True)).tests("x")) is None
    beside = Construction(lambda keys: refuse("y" in keys and keys["x"] <= 0), ({}, {"y": 1}))
    assert str(true_range(float, static_range(float, ()), beside.tests("x"))) == "> 0, ≤ 10^12"


def refuse(is_wrong: bool) -> None:
    if is_wrong:
        raise InputError("no")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_typed_bounds_of_a_scheme_are_those_of_its_function(scheme: str) -> None:
    """The file refuses what the scheme refuses for any data; what else is refused depends on the data."""
    labels = np.arange(600) % 6
    given: dict[str, Any] = {"clients": 3} if takes(scheme, "clients") else {}
    given |= {key: np.arange(600) % 2 for key, each in parameters(scheme).items() if each.is_column}
    for key in parameters(scheme):
        for kind, field in BOUNDS.get(f"{scheme}.{key}", BOUNDS.get(key, {})).items():
            known = static_range(kind, field.metadata)
            outside = [known.least - (0 if known.above else 1)] + ([2.0] if known.most == 1 else [])
            for value in outside if key not in ("table", "feature_alpha") else ():
                with pytest.raises(InputError):
                    SCHEMES[scheme](labels, **given, **{key: kind(value)})
