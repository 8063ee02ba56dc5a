"""Time of a round by stage: medians, and stages that were not measured."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysim.report.page import write_report
from raysim.report.words import STAGES as WORDS
from raysim.watching.stopwatch import ROUND_STAGES as STAGES
from tests.kit.folders import told, write_run

SECONDS = {
    "sample": 0.001,
    "send": 0.02,
    "train": 0.5,
    "sum": 0.03,
    "aggregate": 0.0042,
    "evaluate": 0.2,
    "write": 0.00005,
}


def measure(folder: Path, seconds: dict[str, float]) -> None:
    """Have rounds take 1, 1 and 9 times these seconds, and the second of them be evaluated alone."""
    path = folder / "metrics.parquet"
    table = pq.read_table(path).slice(0, 3)
    for stage, value in seconds.items():
        values = [None, value, None] if stage == "evaluate" else [value, value, 9 * value]
        table = table.drop_columns([name for name in table.column_names if name == f"seconds_{stage}"])
        table = table.append_column(f"seconds_{stage}", pa.array(values, pa.float64()))
    told(path.parent, table)


def cells_of(page: str) -> list[list[str]]:
    """The table's rows."""
    found = re.search(r"Time of a round, by stage.*?<tbody>(.*?)</tbody>", page, re.DOTALL)
    assert found
    return [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in found[1].split("</tr>")[:-1]]


def test_the_report_knows_the_stages_of_the_run_folder():
    assert tuple(WORDS) == STAGES


def test_medians_of_every_stage(tmp_path):
    run = write_run(tmp_path / "run", ["fedavg"], every=0)
    measure(run / "fedavg", SECONDS)
    page = write_report([run], tmp_path / "report.html").read_text(encoding="utf-8")
    assert cells_of(page) == [["0.4 s", "1 ms", "20 ms", "0.5 s", "30 ms", "4.2 ms", "0.2 s", "50 µs"]]
    for stage in WORDS.values():
        assert f"<dt>{stage.title}</dt>" in page


@pytest.mark.parametrize(
    ("seconds", "drawn"),
    [
        ({}, False),
        ({"evaluate": 0.1, "write": 0.1}, False),
        ({"train": np.nan}, False),
        (dict.fromkeys(STAGES, 0.0), True),
    ],
)
def test_a_chart_needs_stages_of_the_rounds_and_no_time(tmp_path, seconds, drawn):
    run = write_run(tmp_path / "run", ["fedavg"], every=0)
    measure(run / "fedavg", seconds)
    assert ("by stage" in write_report([run], tmp_path / "report.html").read_text(encoding="utf-8")) is drawn


def test_runs_side_by_side_and_one_that_did_not_measure(tmp_path):
    runs = [write_run(tmp_path / name, every=0) for name in ("old", "new")]
    measure(runs[1] / "fedavg", SECONDS)
    measure(runs[1] / "radfed", {"train": 0.25, "sum": 0.0})
    page = write_report(runs, tmp_path / "report.html").read_text(encoding="utf-8")
    assert [row[3] for row in cells_of(page)] == ["0.5 s", "0.25 s"]
    assert cells_of(page)[1] == ["0.5 s", "–", "–", "0.25 s", "0 s", "–", "50 ms", "–"]
    drawn = page[page.index("by stage") :]
    drawn = drawn[: drawn.index("<table")]
    assert "new/radfed" in drawn and "old/" not in drawn
