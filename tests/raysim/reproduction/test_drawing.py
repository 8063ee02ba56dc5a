"""The figures of a reproduction on digits: drawn into its folder and its report, and again to the same bytes."""

import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tomli_w

from partitioning.cli.exit_status import run_command
from raysim.cli.commands import cli
from raysim.common.errors import InputError
from raysim.plots.charts import draw
from raysim.plots.panels import Curve, Panel
from raysim.plots.style import stroke
from raysim.reproduction.drawing import CROWD, drawn, rounds_that_fit, words_of
from raysim.reproduction.figure import Figure
from raysim.reproduction.reproducing import reproduce
from raysim.studies.read import read_findings
from tests.kit.outline import Outline

pytestmark = pytest.mark.usefixtures("drawn")

LINES: dict[str, Any] = {"title": "Figure 1", "form": "curves", "column": "test_accuracy", "panels": {"IID": "iid"}}
OWN = {
    "loss": {"dataset": "iid", "algorithm": "fedavg", "column": "test_loss"},
    "elsewhere": {"dataset": "full", "algorithm": "fedavg"},
}
STUDY: dict[str, Any] = {
    "rounds": 6,
    "data": {"dataset": "digits", "test": 0.2},
    "partition": {"scheme": "iid", "clients": 4},
    "model": {"name": "mlp", "hidden": [4]},
    "local": {"batch_size": 100, "lr": 0.1},
    "algorithm": [{"name": "fedavg"}, {"name": "radfed", "aggregate_every": 2}],
    "evaluate": {"every": 1, "metrics": ["accuracy", "loss"]},
    "study": {"seeds": [1, 2], "metric": "test_accuracy", "datasets": {"iid": {}, "more": {"seed": 2}, "full": {}}},
    "reproduction": {"paper": "A paper", "place": "figures 1 to 6"},
    "reduced": {"datasets": ["iid", "more"]},
    "claim": [{"says": "it learns", "dataset": "iid", "algorithm": "fedavg", "column": "test_loss", "above": 0}],
    "figure": [
        LINES,
        {**LINES, "title": "Figure 2", "panels": {"Own": OWN, "Only full": {"a": OWN["elsewhere"]}}, "smooth": 2},
        {**LINES, "title": "Figure 3", "form": "points", "panels": {"A": {"1": "iid", "2": "more", "3": "full"}}},
        {**LINES, "title": "Figure 4", "form": "bars", "panels": {"A": {"1": "iid"}, "B": "more"}, "take": "best"},
        {**LINES, "title": "Figure 5", "form": "boxes", "panels": {"A": {"1": "iid", "2": "more"}}, "scale": "log"},
        {**LINES, "title": "Figure 6", "panels": {"A": "iid"}, "along": "progress"},
        {**LINES, "title": "Figure 7", "panels": {"A": "full"}},
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study of a file with a figure of each form, and one of which the reduced setting has nothing."""
    place = tmp_path_factory.mktemp("figures")
    (place / "tiny.toml").write_text(tomli_w.dumps(STUDY), encoding="utf-8")
    return reproduce(str(place / "tiny.toml"), place / "run", inline=True)[0]


def words(folder: Path, number: int) -> list[str]:
    """The texts of a figure's file, which is XML."""
    root = ElementTree.parse(folder / "figures" / f"{number}.svg").getroot()
    return [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]


def test_each_figure_has_a_small_file(folder: Path) -> None:
    files = sorted((folder / "figures").iterdir())
    assert [path.name for path in files] == [f"{number}.svg" for number in range(1, 7)]
    assert max(path.stat().st_size for path in files) < 60_000
    for number in (1, 3, 4, 5):
        assert {"fedavg", "radfed", "Accuracy, global test set" + ", largest" * (number == 4)} <= set(
            words(folder, number)
        )


def test_what_was_not_run_is_left_out(folder: Path) -> None:
    assert {"Own", "loss", "Round"} <= set(words(folder, 2))
    assert {"elsewhere", "Only full", "a"}.isdisjoint(words(folder, 2))
    assert {"1", "2"} <= set(words(folder, 3)) and "3" not in words(folder, 3)


def test_progress_ends_at_all_rounds(folder: Path) -> None:
    """Six rounds are across in figure 1, and in figure 6 the same as per cent of them."""
    assert {"Round", "2", "6"} <= set(words(folder, 1)) and "100" not in words(folder, 1)
    assert {"Rounds, % of all", "20", "100"} <= set(words(folder, 6))


def test_the_record_and_the_pages_name_them(folder: Path) -> None:
    figures = json.loads((folder / "claims.json").read_text())["figures"]
    assert figures[0] == {"title": "Figure 1", "file": "figures/1.svg"}
    assert figures[6] == {"title": "Figure 7", "file": None}
    markdown = (folder / "claims.md").read_text()
    assert "![Figure 5](figures/5.svg)" in markdown and "Figure 7: this setting runs no part" in markdown
    page = (folder / "report.html").read_text(encoding="utf-8")
    outline = Outline(page)
    assert outline.open == [] and len(outline.ids) == len(set(outline.ids))
    assert "http:" not in page
    assert 0 < page.index("The paper's figures and claims") < page.index("<h2>Results</h2>")
    assert "it learns" in outline.text and "Figure 7: this setting runs no part" in outline.text


def test_it_is_drawn_again_to_the_same_bytes_without_a_run(folder: Path, tmp_path: Path) -> None:
    names = ["report.html", "claims.json", "claims.md", *(f"figures/{number}.svg" for number in range(1, 7))]
    before = {name: (folder / name).read_bytes() for name in names}
    runs = {path: path.stat().st_mtime_ns for path in (folder / "trials").rglob("*") if path.is_file()}
    for path in (folder / "figures").iterdir():
        path.unlink()
    reproduce(str(folder.parent / "tiny.toml"), folder, inline=True)
    assert {name: (folder / name).read_bytes() for name in names} == before
    assert {path: path.stat().st_mtime_ns for path in runs} == runs
    with pytest.raises(SystemExit) as done:
        run_command(cli, "raysim", ["report", str(folder), "--out", str(tmp_path / "page.html")])
    assert not done.value.code
    assert (tmp_path / "page.html").read_bytes() == before["report.html"]


def figure(**keys: Any) -> Figure:
    return Figure.of({**LINES, **keys}, ["iid", "more"], ["fedavg", "radfed"])


def test_a_column_that_nobody_measured_is_refused(folder: Path) -> None:
    for keys in ({}, {"form": "bars"}):
        with pytest.raises(InputError, match=r"figure 'Figure 1': column 'test_acuracy'.*test_accuracy"):
            drawn("a", figure(column="test_acuracy", **keys), read_findings(folder))


def test_curves_of_runs_that_have_gone_are_nothing(folder: Path, tmp_path: Path) -> None:
    for name in ("study.toml", "trials.parquet"):
        shutil.copy(folder / name, tmp_path)
    assert drawn("a", figure(), read_findings(tmp_path)) == ""
    assert "<svg" in drawn("a", figure(form="bars"), read_findings(tmp_path))


def heights(svg: str, colour: str) -> list[float]:
    """The vertical positions of the line in a colour; that of the legend is shorter."""
    paths = re.findall(rf'<path d="([^"]*)"[^>]*fill: none; stroke: {colour}; stroke-width: 1.8', svg)
    return max(([float(each) for each in re.findall(r"[\d.]+ ([\d.]+)", path)] for path in paths), key=len)


@pytest.mark.parametrize(("smooth", "wanted"), [(None, [0.0, 3.0, 6.0, 0.0]), (3, [0.0, 1.5, 3.0, 3.0])])
def test_lines_are_means_over_splits_and_the_last_rounds(
    tmp_path: Path, smooth: int | None, wanted: list[float]
) -> None:
    """Rounds without an evaluation count for nothing, and the picture's heights are as the means."""
    rows = []
    for seed, up in ((1, 1), (2, -1)):
        values = [0.0 + up, None, 3.0 + up, 6.0 + up, 0.0 + up]
        path = tmp_path / "trials" / f"fedavg-{seed}" / "fedavg" / "metrics.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"round": [1, 2, 3, 4, 5], "test_loss": pa.array(values, pa.float64())}), path)
        rows.append(_row(seed))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "trials.parquet")
    study = {"metric": "test_loss", "select_by": "test_loss", "baseline": "fedavg"}
    (tmp_path / "study.toml").write_text(tomli_w.dumps({"study": study, "algorithm": [{"name": "fedavg"}]}))
    svg = drawn("a", figure(column="test_loss", algorithms=["fedavg"], smooth=smooth), read_findings(tmp_path))
    found = np.array(heights(svg, stroke(0).colour))[:4]
    assert (found[0] - found) / (found[0] - found.min()) == pytest.approx(np.array(wanted) / max(wanted), abs=0.01)


def _row(seed: int) -> dict[str, Any]:
    where = {"dataset": "iid", "algorithm": "fedavg", "point": "{}", "seed": seed, "fold": None, "validation": None}
    return {**where, "stage": "final", "chosen": True, "status": "done", "trial": f"fedavg-{seed}", "test_loss": 0.5}


@pytest.mark.parametrize(("rounds", "panels", "series"), [(16_000, 6, 9), (3_000, 2, 3), (40, 6, 5)])
def test_however_many_rounds_there_are_the_file_is_small(rounds: int, panels: int, series: int) -> None:
    number = np.arange(1.0, rounds + 1)
    strokes = {f"algorithm {each}": stroke(each) for each in range(series)}
    lines = {
        label: Curve(number, np.sin(number), np.full(rounds, 0.1) if series <= CROWD else None) for label in strokes
    }
    every = [Panel(f"Panel {each}", "Accuracy, global test set", "share", lines) for each in range(panels)]
    assert len(draw("a", every, strokes, most=rounds_that_fit(every))) < 60_000


@pytest.mark.parametrize(
    ("column", "title", "is_share"),
    [
        ("test_accuracy", "Accuracy, global test set", True),
        ("local_mean_macro_f1", "Macro F1, own test parts, mean", False),
        ("domain_mnist_accuracy", "Accuracy, domain mnist", True),
        ("twin_test_loss", "Twin's test loss", False),
        ("client_divergence", "Client divergence", False),
    ],
)
def test_an_axis_says_what_a_column_is(column: str, title: str, is_share: bool) -> None:
    assert words_of(column) == (title, is_share)
