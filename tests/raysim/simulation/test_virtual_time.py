"""Runs in virtual time: accounts of what is late or lost, and what is refused."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import raysim
from raysim.common.errors import InputError
from raysim.store.summary import read_summary
from tests.kit.runs import SMALL, metrics, quick_run

TIMED: dict[str, Any] = {
    **SMALL,
    "rounds": 8,
    "devices": {"compute": 5.0, "spread": 1.0, "latency": 1000.0, "availability": "day-night", "hours": 5.0},
    "algorithm": [
        {"name": "fedavg", "cohort": 3, "over": 1.5, "deadline": 1004.0},
        {"name": "fedbn", "cohort": 3, "deadline": 1003.0, "late": "stale"},
        {"name": "radfed", "cohort": 4, "aggregate_every": 3, "deadline": 1006.0},
        {"name": "fedprox", "cohort": 3, "sampling": "oort"},
        {"name": "fedasync", "cohort": 2, "concurrency": 3},
        {"name": "fedbuff", "cohort": 2, "buffer": 3, "concurrency": 4},
    ],
}
NAMES = [each["name"] for each in TIMED["algorithm"]]


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("timed") / "inline"
    quick_run(TIMED, folder, inline=True)
    return folder


def test_accounts_add_up(inline: Path) -> None:
    late = vanished = stale = 0
    for name in NAMES:
        rows = pq.read_table(inline / name / "updates.parquet").to_pylist()
        table = metrics(inline / name)
        for outcome in ("late", "vanished"):
            assert sum(table[outcome]) == sum(row["outcome"] == outcome for row in rows), name
        assert sum(table["updates"]) == sum(row["outcome"] == "counted" for row in rows)
        wasted = sum(row["samples"] for row in rows if row["outcome"] != "counted")
        assert wasted <= sum(table["samples_wasted"]) <= wasted + len(rows)  # rows round down
        (kind,) = read_summary(inline / name / "summary.json")["kinds"].values()
        assert [kind[key] for key in ("updates", "late", "vanished")] == [
            sum(table[key]) for key in ("updates", "late", "vanished")
        ]
        assert kind["samples_wasted"] == wasted
        assert kind["samples"] == sum(row["samples"] for row in rows if row["outcome"] == "counted")
        late, vanished = late + sum(table["late"]), vanished + sum(table["vanished"])
        stale += sum((row["staleness"] or 0) > 0 for row in rows)
    assert late and stale


def test_virtual_time_needs_devices(tmp_path: Path) -> None:
    config = {**TIMED, "algorithm": {"name": "fedavg", "deadline": 3.0}}
    del config["devices"]
    with pytest.raises(InputError, match=r"algorithm\.deadline = 3\.0 without \[devices\]"):
        raysim.run(config, tmp_path / "run", inline=True)


@pytest.mark.parametrize(("deadline", "said"), [(1.0, True), (5000.0, False)])
def test_a_run_says_if_no_update_arrived_before_the_deadline(deadline: float, said: bool, tmp_path: Path) -> None:
    config = {**TIMED, "rounds": 2, "algorithm": {"name": "fedavg", "cohort": 3, "deadline": deadline}}
    quick_run(config, tmp_path / "run", inline=True)
    log = (tmp_path / "run" / "run.log").read_text(encoding="utf-8")
    assert (f"no client update arrived within algorithm.deadline = {deadline}" in log) is said


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"oort": {"alpha": 1.0}}, 'algorithm.oort with algorithm.sampling = "uniform"'),
        (
            {"sampling": "oort", "oort": {"alhpa": 1.0}},
            r"unknown key 'algorithm\.oort\.alhpa': .*did you mean 'algorithm.oort.alpha'",
        ),
        ({"sampling": "oort", "oort": {"alpha": "two"}}, r"algorithm\.oort\.alpha = 'two': .*number; .*alpha=2\.0"),
        ({"name": "fedbuff", "sampling": "oort"}, 'algorithm.sampling = "oort" with asynchronous arrivals'),
        ({"sampling": "oort", "oort": {"alpha": -1.0}}, r"algorithm\.oort\.alpha = -1\.0"),
        ({"sampling": "oort", "candidates": 4}, "algorithm.candidates = 4 with"),
        ({"over": 0.5}, r"algorithm\.over = 0\.5"),
        ({"late": "ignore"}, "algorithm.late"),
    ],
)
def test_wrong_keys(keys: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=text):
        raysim.run({**TIMED, "algorithm": {"name": "fedavg", **keys}}, tmp_path / "run", inline=True)
