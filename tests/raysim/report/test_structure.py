"""The charts of a tree's links, and of models of each size."""

from pathlib import Path

import numpy as np
import pytest

from raysim.common.errors import InputError
from raysim.plots.style import strokes_of, strokes_of_runs
from raysim.report import structure as drawn
from raysim.report.page import write_report
from raysim.report.read import AlgorithmOutput, read_runs
from raysim.report.structure import structure
from raysim.report.tables import headline
from tests.kit.runs import quick_run

CONFIG = {
    "rounds": 4,
    "data": {"dataset": "digits", "test": 0.2},
    "partition": {"scheme": "iid", "clients": 6},
    "model": {"hidden": [4]},
    "algorithm": [{"name": "fedavg"}, {"name": "hierfavg", "edges": {"number": 3, "cloud_every": 2}}],
    "evaluate": {"every": 2},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("edges") / "run"
    quick_run(CONFIG, folder, inline=True)
    return folder


def test_the_links_of_a_tree_are_drawn_with_their_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = read_runs([folder])
    strokes = strokes_of_runs([{each.label: each.name for each in run.results}])
    assert list(structure(run.results[:1], strokes)) == []
    (chart,) = structure(run.results, strokes)
    size = (run.results[1].total("bytes_up") or 0) / 24  # six clients in four rounds
    (panel,) = chart.values["panels"]
    assert panel["ticks"] == ["0", "1", "2", "cloud"]
    assert [line["values"] for line in panel["lines"]] == [[2 * 2 * 4 * size] * 3 + [2 * 3 * 2 * size]]
    monkeypatch.setattr(drawn, "MOST_EDGES", 2)
    assert list(structure(run.results, strokes)) == []


def test_a_report_has_the_links(folder: Path, tmp_path: Path) -> None:
    page = write_report([folder], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Bytes by link of the tree" in page and "Bytes of the cloud" in page
    headings = {column.title: column.cells for column in headline(read_runs([folder])[0].results).columns}
    assert headings["to the cloud"][0] == "–" != headings["from the cloud"][1]


def test_links_of_the_cloud_need_devices(tmp_path: Path) -> None:
    wrong = {**CONFIG, "edges": {"up": 100.0}}
    with pytest.raises(InputError, match=r"edges.up without \[devices\]: must have devices"):
        quick_run(wrong, tmp_path / "run", inline=True)


def test_scores_by_level_are_drawn(tmp_path: Path) -> None:
    levels = {"name": "heterofl", "levels": [1.0, 0.5, 0.25]}
    done = quick_run({**CONFIG, "rounds": 2, "algorithm": [{"name": "fedavg"}, levels]}, tmp_path / "run", inline=True)
    with pytest.warns(UserWarning, match="the whole model of heterofl, of which client 2 trains the first channels"):
        done.model("heterofl", client=2)
    (run,) = read_runs([tmp_path / "run"])
    strokes = strokes_of_runs([{each.label: each.name for each in run.results}])
    (chart,) = structure(run.results, strokes)
    (panel,) = chart.values["panels"]
    assert panel["ticks"] == ["0.25", "0.5", "1"] and len(panel["lines"]) == 1
    headings = {(column.group, column.title): column.cells for column in headline(run.results).columns}
    whole, half = (headings["Accuracy", f"global test set{of}"] for of in ("", ", level 0.5"))
    assert len(whole) == 2 and half[0] == "–" != half[1]
    names = ("level_0.25_test_accuracy", "level_0.5_test_accuracy", "test_accuracy")
    assert panel["lines"][0]["values"] == pytest.approx([run.results[1].final(name) for name in names], abs=1e-6)


def output(label: str, **last: float) -> AlgorithmOutput:
    return AlgorithmOutput(label, label, {"round": np.array([1.0])} | {k: np.array([v]) for k, v in last.items()}, {})


def test_scores_by_level_are_of_the_first_metric_that_models_of_each_size_have() -> None:
    sizes = {"level_0.5_test_loss": 3.0, "level_0.5_test_mse": 2.0, "test_loss": 1.5, "test_mse": 1.0}
    results = [output("fedavg", test_accuracy=0.5), output("heterofl", **sizes)]
    (chart,) = structure(results, strokes_of(["fedavg", "heterofl"]))
    (panel,) = chart.values["panels"]
    assert chart.title == "MSE by level" and panel["ticks"] == ["0.5", "1"]
    assert [line["values"] for line in panel["lines"]] == [[2.0, 1.0]]
    own = output("heterofl", **{"level_0.5_test_mape": 2.0, "test_mape": 1.0})
    assert [chart.title for chart in structure([own], strokes_of(["heterofl"]))] == ["mape by level"]
    assert list(structure(results[:1], strokes_of(["fedavg"]))) == []
