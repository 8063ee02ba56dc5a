"""The page as a reader meets it: whole, self-contained, and honest about what is missing."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tomli_w

from partitioning import InputError
from raysim.common.units import human_bytes
from raysim.report.page import models_of, write_report
from tests.kit.drawing import DRAW, writing_svg
from tests.kit.folders import summary, told, write_run
from tests.kit.outline import Outline


def page_of(*runs: Path, out: Path) -> str:
    return write_report(runs, out).read_text(encoding="utf-8")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return the file of a page."""
    return tmp_path / "report.html"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the page of two algorithms, with its pictures."""
    folder = tmp_path_factory.mktemp("plain")
    with writing_svg(DRAW):
        return page_of(write_run(folder / "run"), out=folder / "report.html")


def test_the_page_is_whole_and_fetches_nothing(plain: str) -> None:
    page, outline = plain, Outline(plain)
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    assert all(address.startswith(("#", "data:")) for address in outline.addresses)
    assert "http:" not in page
    assert "https:" not in page
    assert not re.search(r"<script[^>]*\bsrc", page)
    assert "@import" not in page
    targets = {f"#{each}" for each in outline.ids}
    assert set(re.findall(r"url\((#[^)]*)\)", page)) <= targets
    assert {address for address in outline.addresses if address.startswith("#")} <= targets


def test_every_algorithm_has_its_row_and_its_parts(tmp_path, out):
    text = Outline(page_of(write_run(tmp_path / "run", ["fedavg", "radfed", "fedavg"], targets=["test"]), out=out)).text
    for name in ("fedavg", "radfed", "fedavg-2"):
        assert f"{name}: parts of the algorithm" in text
    assert "schedule=Rounds(participation=1.0)," in text
    assert "Evaluated after round 12." in text and "A dash" not in text


def test_the_headline_shows_last_values_and_totals(tmp_path, out):
    page = page_of(write_run(tmp_path / "run", ["fedavg"], rounds=10, every=4, targets=["test"]), out=out)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", page)
    # accuracy after round 10; weights; rounds; the sum of seconds; 40 messages of 217 kB a round up and down; exchanges
    assert cells[:8] == ["24.9 %", "samples", "10", "4 s", "86.8 MB", "86.8 MB", "10", "17.4 MB"]


def test_the_chosen_round_s_values_stand_in_the_headline(tmp_path, out):
    run = write_run(tmp_path / "run", ["fedavg", "radfed"], rounds=10, every=4, targets=["test"])
    told(run / "fedavg", model_round=4, stopped_early=True)
    page = page_of(run, out=out)
    text = Outline(page).text
    # 1 - 0.97^4 of 0.95
    assert re.findall(r"<td[^>]*>([^<]*)</td>", page)[0] == "10.9 %"
    assert "Evaluated after the round of each algorithm's selected model." in text
    assert "fedavg: the model and the values shown here are those of round 4." in text
    assert "fedavg stopped early, after round 10." in text and "radfed stopped" not in text


def test_best_values_and_rounds_to_targets(tmp_path, out, plain):
    run = write_run(tmp_path / "run", ["fedavg", "radfed"], targets=["test"])
    reached = {"test_accuracy": {"target": 0.25, "round": 6}, "test_loss": {"target": 1.0, "round": None}}
    told(run / "fedavg", best={"test_accuracy": {"value": 0.3125, "round": 9}}, reached=reached)
    text = Outline(page_of(run, out=out)).text
    assert "31.2 % (9)" in text
    assert "test_accuracy 0.25" in text and "not reached" in text
    sent = pq.read_table(run / "fedavg" / "metrics.parquet").column("bytes_up").to_pylist()[:6]
    assert human_bytes(sum(sent)) in text and "Bytes sent to" in text and "Accuracy by bytes" in text
    assert "Rounds and bytes to a target" not in Outline(plain).text


def test_runs_side_by_side_are_told_apart(tmp_path, out):
    runs = [write_run(tmp_path / name, rounds=0) for name in ("a/run", "b/run", "other")]
    text = Outline(page_of(*runs, out=out)).text
    for label in ("run (1)/fedavg", "run (2)/radfed", "other/fedavg"):
        assert label in text


def test_a_default_folder_s_time_is_no_part_of_the_title(tmp_path, out):
    title = re.compile(r"<h1><small>raysim</small>(.*?)</h1>")
    names = ("quickstart-20260102-030405", "other-2026")
    runs = [write_run(tmp_path / name, ["fedavg"], rounds=0) for name in names]
    assert [title.findall(page_of(run, out=out)) for run in runs] == [["quickstart"], ["other-2026"]]
    assert title.findall(page_of(*runs, out=out)) == [", ".join(names)]


def changed(run: Path, **tables: Mapping[str, object]) -> Path:
    """Change keys of a run's configuration; `algorithm` changes the first one."""
    config = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
    for name, keys in tables.items():
        (config["algorithm"][0] if name == "algorithm" else config.setdefault(name, {})).update(keys)
    (run / "config.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
    return run


def test_the_differences_of_runs_are_listed(tmp_path, out):
    runs = [
        write_run(tmp_path / "a", rounds=0),
        changed(write_run(tmp_path / "b", rounds=0), algorithm={"fraction": 0.5}, partition={"clients": 60}),
        changed(write_run(tmp_path / "c", ["fedavg"], rounds=0), evaluate={"every": 2}),
    ]
    page = page_of(*runs, out=out)
    table = page[page.index("<h2>Differences</h2>") : page.index("<h2>Results</h2>")]
    assert re.findall(r'data-name="([^"]*)">', table)[1:] == [
        "partition.clients", "evaluate.every", "algorithm", "fedavg: fraction"
    ]  # fmt: skip
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", table)
    assert cells == ["50", "–", "fedavg, radfed", "1.0", "60", "–", "fedavg, radfed", "0.5", "50", "2", "fedavg", "1.0"]
    # What is common stands above, once.
    assert "<dt>Data</dt><dd>digits</dd>" in page and "<dt>Clients</dt>" not in page
    equal = page_of(*(write_run(tmp_path / name, rounds=0) for name in "xy"), out=out)
    assert "The configurations of the runs are equal." in equal


def test_only_what_was_measured_is_drawn(tmp_path, out):
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", ["fedavg"], targets=["held_out"])]
    page = page_of(*runs, out=out)
    data = [json.loads(each) for each in re.findall(r'<script type="application/json">(.*?)</script>', page)]
    names = {panel["title"]: [line["name"] for line in panel["lines"]] for panel in data[0]["panels"]}
    assert names == {
        "Held-out clients, pooled": ["a/fedavg", "a/radfed", "b/fedavg"],
        "Held-out clients, mean": ["a/fedavg", "a/radfed"],
    }
    assert "<dt>Held-out clients, mean</dt>" in page and "<dt>Validation clients, mean</dt>" not in page
    none = page_of(write_run(tmp_path / "none", rounds=0), out=out)
    assert "<h2>Results</h2>" in none
    for section in ("Evaluation", "Measures", "Training and cost", "Clients"):
        assert f"<h2>{section}</h2>" not in none


def test_weights_in_the_aggregation_are_shown(tmp_path, out):
    run = write_run(tmp_path / "run", ["fedavg", "fedbs", "mine"], rounds=0)
    told(run / "fedavg", algorithm="Algorithm(weighting=Samples(), server=Assign())")
    told(run / "fedbs", algorithm="Algorithm(weighting=ClientLoss(of='training'), then=Algorithm(weighting=Equal()))")
    told(run / "mine", algorithm="Algorithm(weighting=Root(power=0.5))")
    page = page_of(run, out=out)
    for text in ("samples", "loss, then equal", "Root"):
        assert f"<td>{text}</td>" in page


def test_names_are_escaped(tmp_path, out):
    with writing_svg(DRAW):
        page = page_of(write_run(tmp_path / "a & <b>", ["<script>alert(1)"], rounds=1), out=out)
    assert Outline(page).open == []
    assert "<script>alert" not in page
    assert "<b>" not in page
    assert "a &amp; &lt;b&gt;" in page


@pytest.mark.parametrize(
    ("options", "sentences"),
    [
        ({"rounds": 0}, ("No round was run", "No round was evaluated")),
        ({"every": 0}, ("No round was evaluated",)),
        ({"algorithms": []}, ("No round was run",)),
    ],
)
def test_what_is_missing_is_said(tmp_path, out, options, sentences):
    text = Outline(page_of(write_run(tmp_path / "run", **options), out=out)).text
    assert all(sentence in text for sentence in sentences)


def test_clients_that_are_missing_are_said(plain: str) -> None:
    assert "<h2>Each client</h2>" not in plain
    assert "its clients are not shown" in Outline(plain).text


def test_an_unreached_algorithm_is_named(tmp_path, out):
    run = write_run(tmp_path / "run", every=0)
    (run / "radfed" / "metrics.parquet").unlink()
    assert "Without results: radfed." in Outline(page_of(run, out=out)).text


def test_an_algorithm_that_has_not_ended_is_shown(tmp_path, out):
    run = write_run(tmp_path / "run", ["fedavg"], targets=["test"])
    (run / "fedavg" / "summary.json").unlink()
    assert "Evaluated after round 12." in Outline(page_of(run, out=out)).text


def test_columns_may_be_absent(tmp_path, out):
    run = write_run(tmp_path / "run", ["fedavg"])
    told(run / "fedavg", pa.table({"round": [1, 2], "train_loss": [2.0, None]}))
    assert Outline(page_of(run, out=out)).open == []


def test_a_diverged_loss_is_no_missing_evaluation(tmp_path):
    run = write_run(tmp_path / "run", ["fedavg"])
    table = pa.table({"round": [1, 2], "test_accuracy": [0.5, 0.1], "test_loss": [2.0, np.nan]})
    told(run / "fedavg", table)
    text = Outline(page_of(run, out=tmp_path / "report.html")).text
    assert "diverged" in text
    assert "Evaluated after round 2." in text


def test_an_undefined_metric_is_absent_and_a_diverged_one_never_the_best(tmp_path):
    run = write_run(tmp_path / "run", ["fedavg", "fedprox", "fedbn"])
    for name, value in (("fedavg", None), ("fedprox", np.nan), ("fedbn", 0.25)):
        columns = {"round": [1, 2], "test_loss": [2.0, 1.0], "test_auc": pa.array([value, value], pa.float64())}
        told(run / name, pa.table(columns))
    page = page_of(run, out=tmp_path / "report.html")
    assert "<td>–</td>" in page and "A dash stands for a value that was not measured, or that is undefined" in page
    assert "<td>diverged</td>" in page
    assert '"best">diverged' not in page


def test_a_page_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path):
    run = write_run(tmp_path / "run", rounds=0)
    out = tmp_path / "pages" / "report.html"
    write_report([run], out)
    (run / "fedavg" / "summary.json").write_text("{", encoding="utf-8")
    before = out.read_bytes()
    with pytest.raises(InputError, match=r"summary.json is damaged"):
        write_report([run], out)
    assert out.read_bytes() == before
    assert [each.name for each in out.parent.iterdir()] == ["report.html"]


def test_what_is_no_run_is_refused_in_one_line(tmp_path, out):
    damaged = write_run(tmp_path / "damaged")
    (damaged / "fedavg" / "metrics.parquet").write_bytes(b"PAR1")
    misspelt = write_run(tmp_path / "misspelt")
    (misspelt / "config.toml").write_text("seed = ", encoding="utf-8")
    for runs, words in [
        ([], "no run given"),
        ([tmp_path / "nowhere"], "no run in"),
        ([tmp_path], "no run in"),
        ([damaged], "metrics.parquet is damaged"),
        ([misspelt], "is not TOML"),
    ]:
        with pytest.raises(InputError, match=words) as refusal:
            write_report(runs, out)
        assert "\n" not in str(refusal.value)
        assert not out.exists()
    with pytest.raises(InputError, match="is not a regular file"):
        write_report([write_run(tmp_path / "run", rounds=0)], tmp_path)
    config = tmp_path / "run" / "config.toml"
    text = config.read_text()
    with pytest.raises(InputError, match=r"config\.toml exists and does not end in \.html"):
        write_report([tmp_path / "run"], config)
    assert config.read_text() == text


def test_a_fingerprint_is_listed(plain: str) -> None:
    fingerprint = summary("fedavg", 12)["fingerprint"]
    assert isinstance(fingerprint, dict) and all(str(value) in plain for value in fingerprint.values())


def test_the_model_is_that_of_each_algorithm() -> None:
    tables = [{"name": "fedavg"}, {"name": "fedavg", "model": {"name": "logistic"}}]
    assert list(models_of({"model": {"name": "mlp", "hidden": [8]}, "algorithm": tables})) == ["mlp [8]", "logistic"]
