"""Concluding a study whose trials really ran: its files, its page, and what is refused."""

import json
import re
import shutil
from itertools import product
from math import nan
from pathlib import Path
from statistics import mean
from typing import Any

import pyarrow.parquet as pq
import pytest

from partitioning.common import paths
from raysim.common.errors import InputError
from raysim.studies import concluding
from raysim.studies.concluding import conclude
from raysim.studies.folder import LOST, TRIALS
from tests.kit.commands import run_raysim
from tests.kit.outline import Outline
from tests.kit.runs import quick_run
from tests.kit.studies import point, trial, trials, write_study

pytestmark = pytest.mark.usefixtures("drawn")

EXPERIMENT: dict[str, Any] = {
    "rounds": 4,
    "data": {"dataset": "digits"},
    "partition": {"scheme": "iid", "clients": 10, "folds": 5},
    "model": {"name": "mlp", "hidden": [16]},
    "local": {"lr": 0.5, "batch_size": 50},
    "evaluate": {"every": 1, "metrics": ["accuracy", "loss"]},
}
ALGORITHMS = ("fedavg", "radfed")
FILES = ("summary.parquet", "table.md", "table.tex", "curves-digits.pdf", "curves-digits.svg", "report.html")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folds, fedavg, radfed, and another point of radfed that the search saw on the first fold."""
    folder = tmp_path_factory.mktemp("studies") / "small"
    chosen, other = {"aggregate_every": 2}, {"aggregate_every": 4}
    rows = []
    for fold in (0, 1):
        tables = [{"name": "fedavg"}, {"name": "radfed", **chosen}, {"name": "radfed", **other}]
        experiment = {**EXPERIMENT, "partition": {**EXPERIMENT["partition"], "fold": fold}, "algorithm": tables}
        results = quick_run(experiment, folder / "trials" / f"fold{fold}", inline=True).results
        fedavg, radfed, searched = ({**each.metrics, "trial": f"fold{fold}"} for each in results)
        rows += [trial("fedavg", 1, fold, **fedavg), trial("radfed", 1, fold, **radfed, point=point(**chosen))]
        rows += [] if fold else [trial("radfed", 1, 0, **searched, point=point(**other), stage="search", chosen=False)]
    conclude(write_study(folder, rows, inherit={"radfed": {"aggregate_every": "radfed"}}))
    return folder


def test_the_summary_has_the_means_of_the_runs(study: Path) -> None:
    rows = {row["algorithm"]: row for row in pq.read_table(study / "summary.parquet").to_pylist()}
    paths = {
        name: [study / "trials" / f"fold{fold}" / name / "metrics.parquet" for fold in (0, 1)] for name in ALGORITHMS
    }
    values = {
        name: [pq.read_table(path)["held_out_accuracy"][-1].as_py() for path in paths[name]] for name in ALGORITHMS
    }
    assert [rows[name]["mean"] for name in ALGORITHMS] == pytest.approx([mean(values[name]) for name in ALGORITHMS])
    ahead = [ours - base for ours, base in zip(values["radfed"], values["fedavg"], strict=True)]
    assert rows["radfed"]["relative_percent"] == pytest.approx(100 * mean(ahead) / mean(values["fedavg"]))
    assert (rows["radfed"]["n"], rows["radfed"]["pairs"], rows["radfed"]["p_least"]) == (2, 2, 0.5)
    assert json.loads(rows["radfed"]["point"]) == {"aggregate_every": 2}
    assert rows["fedavg"]["p"] is None and rows["radfed"]["significant"] is False


def test_the_page_is_whole_fetches_nothing_and_has_every_part(study: Path) -> None:
    page = (study / "report.html").read_text(encoding="utf-8")
    outline = Outline(page)
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    assert all(address.startswith(("#", "data:")) for address in outline.addresses)
    assert "http:" not in page and "https:" not in page and not re.search(r"<script[^>]*\bsrc", page)
    for heading in ("Results", "Curves", "Spread over seeds and folds", "Search", "Hyper-parameters", "Trials"):
        assert f"<h2>{heading}</h2>" in page
    assert page.count("<figure") == 3
    for text in ("aggregate_every = 2 from radfed", "aggregate_every = 2 (chosen)", "Chosen by", "P cannot be below"):
        assert text in outline.text
    assert "raysim report" in outline.text
    assert "have no run folder" not in outline.text


def test_the_report_command_writes_a_study_again_to_the_same_bytes(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {name: (study / name).read_bytes() for name in FILES}
    for name in FILES[:-1]:
        (study / name).unlink()
    status, out, _ = run_raysim(capsys, "report", study, "--out", tmp_path / "page.html")
    assert (status, out.strip()) == (0, str(tmp_path / "page.html"))
    assert {name: (study / name).read_bytes() for name in FILES} == before
    assert (tmp_path / "page.html").read_bytes() == before["report.html"]


def test_studies_are_reported_one_at_a_time(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folders in ([study, study], [study / "trials" / "fold0", study]):
        status, _, said = run_raysim(capsys, "report", *folders)
        assert status == 2
        assert f"{study}: must be the folder of a run" in said and said.rstrip().endswith(
            f"give a study alone: raysim report {study}"
        )


def test_a_study_whose_runs_have_gone_says_so(study: Path, tmp_path: Path) -> None:
    for name in ("study.toml", "trials.parquet"):
        shutil.copy(study / name, tmp_path)
    page = conclude(tmp_path).read_text(encoding="utf-8")
    assert "No trial that counts for the table has a run folder" in page


def test_a_study_that_is_still_searching_has_a_report(tmp_path: Path) -> None:
    rows = [
        trial("radfed", 1, 0, 0.5 + 0.01 * size, stage="search", chosen=False, point=point(size=size, rate=rate, x=x))
        for size in (1, 2)
        for rate in (0.1, 0.01)
        for x in ("a", "b")
    ]
    rows[0] |= {"status": "failed", "validation_accuracy": None, "held_out_accuracy": None}
    text = Outline(conclude(write_study(tmp_path, rows)).read_text(encoding="utf-8")).text
    assert "No trials that count yet: radfed on digits." in text
    assert "the best 7 of 8 points" in text


def test_commands_of_the_page_hold_for_any_folder_name(tmp_path: Path) -> None:
    page = conclude(write_study(tmp_path / "my study", trials("fedavg", [0.5])))
    text = Outline(page.read_text(encoding="utf-8")).text
    assert "raysim report 'my study'" in text and "raysim study 'my study/study.toml' --out AGAIN" in text
    assert "raysim run 'my study/trials/fedavg-1-0/config.toml' --out ONE" in text


def test_a_grid_may_have_lists_and_a_study_no_validation(tmp_path: Path) -> None:
    rows = [
        trial("fedavg", 1, 0, 0.5, stage="search", chosen=size == 8, point=point(hidden=[size])) for size in (8, 16, 32)
    ]
    assert "hidden = [16]" in conclude(write_study(tmp_path / "lists", rows)).read_text(encoding="utf-8")
    plain = [{**row, "validation_accuracy": None} for row in trials("fedavg", [0.5, 0.6])]
    page = conclude(write_study(tmp_path / "plain", plain)).read_text(encoding="utf-8")
    assert "(55.00)" in page and "Chosen by" not in page


def test_a_search_without_a_winner_need_not_measure_the_reported_metric(tmp_path: Path) -> None:
    searched = {"stage": "search", "chosen": False, "held_out_accuracy": None}
    rows = [trial("fedavg", 1, 0, 0.5, **searched, point=point(rate=rate)) for rate in (1, 2)]
    rows += [row | {"fold": 1, "status": "diverged", "validation_accuracy": None} for row in rows]
    conclude(write_study(tmp_path, rows))
    (row,) = pq.read_table(tmp_path / "summary.parquet").to_pylist()
    assert (row["n"], row["done"], row["diverged"]) == (0, 2, 2)


def test_all_trials_may_have_diverged(tmp_path: Path) -> None:
    rows = [row | {"status": "diverged"} for row in [*trials("fedavg", [None, None]), *trials("radfed", [None, None])]]
    text = Outline(conclude(write_study(tmp_path, rows)).read_text(encoding="utf-8")).text
    assert "2 of 2 trials diverged and are left out" in text
    (row, _) = pq.read_table(tmp_path / "summary.parquet").to_pylist()
    assert (row["n"], row["mean"], row["diverged"]) == (0, None, 2)


def test_a_study_has_no_report_before_its_first_trial_has_ended(tmp_path: Path) -> None:
    write_study(tmp_path, [])
    with pytest.raises(InputError, match=r"must have a trial that has ended; run the study: raysim study .*study.toml"):
        conclude(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study.toml", "trials.parquet"]


@pytest.mark.parametrize("keys", [("rate",), ("rate", "size"), ("rate", "size", "steps")])
@pytest.mark.parametrize("column", ["validation_accuracy", "held_out_accuracy"])
def test_a_column_that_is_undefined_in_every_trial_is_no_misspelt_one(
    tmp_path: Path, column: str, keys: tuple[str, ...]
) -> None:
    """A search that compares it has no winner, and the report says why; values of the other columns are shown."""
    points = [point(**dict(zip(keys, values, strict=True))) for values in product((1, 2), repeat=len(keys))]
    stage = {"stage": "search", "chosen": False} if column == "validation_accuracy" else {}
    rows = [trial("fedprox", 1, 0, 0.5, point=each, **{**stage, column: nan}) for each in points]
    folder = write_study(tmp_path, [*rows, trial("fedavg", 1, 0, 0.5, **{column: nan})])
    reason = f"fedprox on digits: no winner, because no point has a finite {column} in all its trials"
    lost = {LOST: json.dumps([["digits", "fedprox", reason]])}
    table = pq.read_table(folder / TRIALS)
    pq.write_table(table.replace_schema_metadata(lost), folder / TRIALS)
    conclude(folder)
    assert f"{reason}." in (folder / "table.md").read_text(encoding="utf-8").replace("\\", "")
    for key in ("metric", "select_by") if stage else ("metric",):
        write_study(folder, [*rows, *trials("fedavg", [0.5])], **{key: "validation_acuracy"})
        with pytest.raises(InputError, match=f"study.{key} = 'validation_acuracy': must be a column that the trials"):
            conclude(folder)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "study.toml").unlink(), "no study in"),
        (lambda folder: (folder / "study.toml").write_text("x ="), "study.toml is not TOML"),
        (lambda folder: (folder / "study.toml").write_text("[study]\nmetric = 'a_loss'"), "study.select_by is missing"),
        (lambda folder: (folder / "trials.parquet").unlink(), "must have a trial that has ended"),
        (lambda folder: (folder / "trials.parquet").write_bytes(b"PAR1"), "trials.parquet is not a Parquet table"),
        (
            lambda folder: write_study(folder, trials("fedavg", [0.5]), metric="test_accuracy"),
            r"study.metric = 'test_accuracy': must be a column that the trials have measured \(held_out_accuracy",
        ),
        (
            lambda folder: pq.write_table(
                pq.read_table(folder / "trials.parquet").drop("seed"), folder / "trials.parquet"
            ),
            "trials.parquet has no column 'seed'",
        ),
        (lambda folder: (folder / "report.html").mkdir(), "is not a regular file, and the report is one file"),
    ],
)
def test_what_is_no_study_is_refused_in_a_line(tmp_path: Path, spoil: Any, said: str) -> None:
    write_study(tmp_path, trials("fedavg", [0.5]))
    spoil(tmp_path)
    with pytest.raises(InputError, match=said) as caught:
        conclude(tmp_path)
    assert "\n" not in str(caught.value)


def test_markdown_and_latex_take_the_tables_from_one_making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    for name in ("means", "differences", "contests"):
        real = getattr(concluding, name)
        monkeypatch.setattr(concluding, name, lambda *a, name=name, real=real: (made.append(name), real(*a))[1])
    conclude(write_study(tmp_path, [*trials("fedavg", [0.5, 0.6]), *trials("radfed", [0.6, 0.7])]))
    assert made == ["means", "differences", "contests"]


def test_the_rounds_of_each_trial_are_read_once(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    real = paths.open_regular
    monkeypatch.setattr(paths, "open_regular", lambda path: (opened.append(Path(path)), real(path))[1])
    conclude(study)
    rounds = [path for path in opened if path.name == "metrics.parquet"]
    assert len(rounds) == len(set(rounds)) == 4


def test_the_curves_of_each_data_set_are_files_for_a_paper(study: Path) -> None:
    svg = (study / "curves-digits.svg").read_text(encoding="utf-8")
    assert svg.startswith("<svg") and "fill-opacity" in svg and "radfed" in svg
    assert (study / "curves-digits.pdf").read_bytes().startswith(b"%PDF-")
