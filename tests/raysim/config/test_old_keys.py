"""Keys of former versions are refused with the new key named, and every key has a description."""

from pathlib import Path
from typing import Any

import pytest

from raysim.common.errors import InputError
from raysim.config.algorithm import AlgorithmTable, ServerTable
from raysim.config.check import ConfigTable
from raysim.config.data import DataTable
from raysim.config.experiment import Experiment, TopLevelKeys
from raysim.config.model import ModelTable
from raysim.config.read import read
from raysim.config.tables import CheckpointTable, DevicesTable, EvaluateTable, FleetTable, PartitionTable, WatchTable
from raysim.reproduction.file import Reproduction
from raysim.studies.file import Study

BASE: dict[str, Any] = {"data": {"dataset": "digits"}, "partition": {"clients": 5}, "algorithm": {"name": "radfed"}}
MERGE = r"algorithm\.(radfed\.)?merge_every = 4: is now algorithm\.(radfed\.)?aggregate_every; rename the key"


@pytest.mark.parametrize("change", ["algorithm.merge_every=4", "algorithm.radfed.merge_every=4"])
def test_an_old_key_of_a_change_is_refused(change: str, tmp_path: Path) -> None:
    file = tmp_path / "radfed.toml"
    file.write_text('[data]\ndataset = "digits"\n[algorithm]\nname = "radfed"\n')
    with pytest.raises(InputError, match=MERGE):
        Experiment.of(read(file, [change]))


@pytest.mark.parametrize(
    ("study", "message"),
    [
        ({"grid": {"radfed": {"merge_every": [4, 5]}}}, MERGE),
        ({"inherit": {"radfedp": {"merge_every": "radfed"}}}, "merge_every.* is now .*aggregate_every"),
        ({"datasets": {"one": {"algorithm.radfed.merge_every": 4}}}, MERGE),
    ],
)
def test_an_old_key_of_a_study_is_refused(study: dict[str, Any], message: str) -> None:
    raw = {**BASE, "algorithm": [{"name": "radfed"}, {"name": "radfedp"}], "study": study}
    with pytest.raises(InputError, match=message):
        Study.of({**raw, "partition": {"clients": 9, "validation_clients": 3, "test_clients": 3}})


def test_an_old_key_of_a_reduced_setting_is_refused() -> None:
    raw = {
        **BASE,
        "study": {},
        "reproduction": {"paper": "A", "place": "1"},
        "claim": [
            {"says": "It is.", "dataset": "digits", "algorithm": "radfed", "column": "test_accuracy", "above": 0.5}
        ],
        "reduced": {"set": {"algorithm.radfed.merge_every": 4}},
    }
    with pytest.raises(InputError, match=MERGE):
        Study.of(Reproduction.of(raw, "a").study(full=False))


@pytest.mark.parametrize(
    "table",
    [
        *(AlgorithmTable, CheckpointTable, DataTable, DevicesTable, EvaluateTable, FleetTable, ModelTable),
        *(PartitionTable, ServerTable, TopLevelKeys, WatchTable),
    ],
)
def test_every_key_has_a_description(table: type[ConfigTable]) -> None:
    for key, field in table.model_fields.items():
        assert field.description and field.description[0].isupper() and field.description.endswith("."), key
