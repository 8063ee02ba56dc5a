"""Every number of a file has bounds, and no value is too large to be shown."""

import json
import math
from collections.abc import Iterator
from inspect import signature
from typing import Any

import numpy as np
import pytest

from algorithms import Compute, Local
from algorithms.names import ALGORITHMS, SERVERS
from algorithms.training.loss import LOSSES
from partitioning import SCHEMES
from raysim.common.errors import InputError
from raysim.config.algorithm import AlgorithmTable
from raysim.config.bounds import LARGEST_NUMBER, LARGEST_WHOLE, check_values
from raysim.config.check import ConfigTable, checked, table_of
from raysim.config.experiment import Experiment
from raysim.config.local import LocalTable
from raysim.config.model import ModelTable
from raysim.config.read import changed, read
from raysim.config.server import ServerTable
from raysim.config.tables import partition_table
from raysim.models.build import MODELS
from raysim.reproduction.claim import Claim
from raysim.reproduction.file import About, Reduced
from raysim.studies.keys import StudyTable


def every_table() -> Iterator[type[ConfigTable]]:
    """All tables that there are: those that are written down, and those of functions and classes."""
    waiting: list[type[Any]] = [ConfigTable]
    while waiting:
        waiting += waiting.pop().__subclasses__()
        yield from (table for table in waiting[-1:] if issubclass(table, ConfigTable))
    yield from (
        table_of(function, ("participation", "local", "server"), AlgorithmTable) for function in ALGORITHMS.values()
    )
    yield from (table_of(rule, (), ServerTable) for rule in SERVERS.values())
    for loss in LOSSES.values():
        beside = ("compute", "loss", "update", "method")
        yield table_of(Local, beside, table_of(Compute, (), table_of(loss, (), LocalTable)))
    yield from map(partition_table, SCHEMES)
    for model in MODELS.values():
        given = tuple(key for key in signature(model.build).parameters if key not in model.parameters)
        yield table_of(model.build, given, ModelTable)
    yield from (Experiment, StudyTable, Reduced, About, Claim)


def numbers(schema: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        if schema.get("type") in ("int", "float"):
            yield where, schema
        for key, inner in schema.items():
            yield from numbers(inner, f"{where}.{key}" if key not in ("schema", "fields", "choices") else where)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            yield from numbers(inner, where)


def test_every_number_of_every_table_has_finite_bounds() -> None:
    found = dict(each for table in every_table() for each in numbers(table.__pydantic_core_schema__, table.__name__))
    assert len(found) > 100
    for where, schema in found.items():
        for ends in (("ge", "gt"), ("le", "lt")):
            end = [schema[each] for each in ends if each in schema]
            assert end and math.isfinite(end[0]), f"{where} has no bound {' or '.join(ends)}"
        assert schema.get("le", 0) <= LARGEST_NUMBER and schema.get("lt", 0) <= 2**63, where


class Own(ConfigTable):
    """Like a table of the user's own function."""

    count: int = 1
    share: float = 0.5
    several: tuple[int | float, ...] = ()
    by_name: dict[str, float] | None = None


@pytest.mark.parametrize(
    "raw",
    [
        {"count": LARGEST_WHOLE + 1},
        {"count": -LARGEST_WHOLE - 1},
        {"share": 1e13},
        {"several": [1, 2, -(2**40)]},
        {"by_name": {"a": -1e300}},
    ],
)
def test_numbers_of_ones_own_functions_are_bounded_too(raw: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"should be (less|greater) than or equal to") as error:
        checked(Own, raw, "own")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"a": {"b": [1, 10**400]}}, "a.b is a whole number of 1329 bits"),
        ({"a": 16**5000}, "a is a whole number of 20001 bits"),
        ({"a": [{"b": "x\0"}]}, "a.b has a zero byte"),
        ({"a": "\udcff"}, "a has a character that is not UTF-8"),
        ({"a": {"\0": 1}}, "a key of a has a zero byte"),
        (json.loads('{"a":' * 100 + "1" + "}" * 100), "is nested more than 32 deep"),
    ],
)
def test_values_that_cannot_be_shown_are_refused(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_values(raw)
    with pytest.raises(InputError, match=message):
        Experiment.of(raw)


@pytest.mark.parametrize("hidden", [np.array([8, 4]), [*np.array([8, 4])], tuple(np.array([8, 4]))], ids=repr)
def test_numbers_and_short_arrays_of_numpy_are_as_pythons(hidden: Any) -> None:
    raw = {"rounds": np.int64(2), "local": {"lr": np.float32(0.5)}, "evaluate": {"clients": np.bool_(True)}}
    experiment = Experiment.of(changed(read("quickstart") | raw | {"model": {"hidden": hidden}}, []))
    assert (experiment.rounds, experiment.evaluate.clients) == (2, True)
    assert experiment.model.keys["hidden"] == (8, 4)
    assert all(type(each) is int for each in experiment.model.keys["hidden"])
    assert experiment.compose("fedavg").local.lr == 0.5


def test_a_long_array_of_numpy_is_refused_as_data() -> None:
    with pytest.raises(InputError, match="must be what a file can hold"):
        changed({"model": {"hidden": np.zeros(2000)}}, [])


@pytest.mark.parametrize(
    "change",
    ["rounds=" + "9" * 5000, "seed=0x" + "f" * 5000, "data.root='a\0b'", "data.\udcff=1", ".".join("a" * 5000) + "=1"],
)
def test_changes_that_cannot_be_shown_are_refused(change: str) -> None:
    with pytest.raises(InputError) as error:
        Experiment.of(read("quickstart", [change]))
    assert "\n" not in str(error.value)


def test_a_file_of_large_numbers_is_refused(tmp_path: Any) -> None:
    for number in ("9" * 5000, "0x" + "f" * 5000, str(2**63)):
        (tmp_path / "x.toml").write_text(f"rounds = {number}\n")
        with pytest.raises(InputError, match=r"must be TOML|must fit 64 bits"):
            read(tmp_path / "x.toml")


@pytest.mark.parametrize("key", [1, None, True, ("a", "b"), 1.5])
def test_keys_are_texts(key: object) -> None:
    for raw, where in (({"data": {key: 2}}, "data"), ({key: {}}, "the file"), ({"algorithm": [{key: 1}]}, "algorithm")):
        with pytest.raises(InputError) as error:
            Experiment.of(raw)
        assert str(error.value) == f"a key of {where} is {key!r}: must be a text; write it in quotes"
