"""The clients on the page, from populations that the partitioner made."""

import re

import numpy as np
import pyarrow as pa
import pytest
import tomli_w

import partitioning
from raysim.report.page import write_report
from tests.kit.folders import write_run

pytestmark = pytest.mark.usefixtures("drawn")


@pytest.fixture
def table():
    labels = np.repeat(np.arange(4), 30)
    return pa.table({"x": labels * 0.5, "label": labels})


def make(table, out, **options):
    defaults = {"scheme": "dirichlet-qp", "clients": 6, "seed": 1, "test_clients": 2}
    return partitioning.make(table, out, dataset="dots", **(defaults | options))


def test_the_population_is_described_and_drawn(tmp_path, table):
    run = write_run(tmp_path / "run", ["fedavg"], rounds=0)
    make(table, run / "population")
    page = write_report([run], tmp_path / "report.html").read_text(encoding="utf-8")
    facts = {"Data": "dots", "Clients": "6", "Training": "4", "Held out": "2", "Samples": "120"}
    assert all(f"<dt>{name}</dt><dd>{value}</dd>" in page for name, value in facts.items())
    for title in ("Samples of each label on each client", "Samples of a client", "Labels of a client"):
        assert f">{title}</text>" in page
    assert "its clients are not shown" not in page


def test_parameters_without_a_value_are_not_shown(tmp_path, table):
    run = write_run(tmp_path / "run", ["fedavg"], rounds=0)
    assert make(table, run / "population").manifest.parameters["feature_alpha"] is None
    page = write_report([run], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "size_alpha = 1.0" in page and "None" not in page


def test_every_number_of_labels_is_named_below_its_bar(tmp_path, table):
    run = write_run(tmp_path / "run", ["fedavg"], rounds=0)
    made = make(table, run / "population", scheme="labels-per-client", classes_per_client=3, test_clients=0)
    page = write_report([run], tmp_path / "report.html").read_text(encoding="utf-8")
    (chart,) = re.findall(r"<svg(?:(?!</svg>).)*>Labels of a client</text>.*?</svg>", page, re.DOTALL)
    ticks = re.findall(r"<text[^>]*text-anchor: middle[^>]*>(\d+(?:\.\d+)?)</text>", chart)
    assert set((made.class_counts > 0).sum(axis=1).tolist()) == {3} and ticks == ["3"]


@pytest.mark.parametrize("fold", [0, 3])
def test_the_splits_are_those_of_the_runs_fold(tmp_path, table, fold):
    run = write_run(tmp_path / "run", ["fedavg"], rounds=0)
    made = make(table, run / "population", scheme="iid", clients=7, test_clients=0, folds=4)
    config = {"algorithm": [{"name": "fedavg"}], "partition": {"fold": fold}}
    (run / "config.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
    page = write_report([run], tmp_path / "report.html").read_text(encoding="utf-8")
    view = made.fold(fold)
    facts = {"Training": view.train_clients, "Validation": view.validation_clients, "Held out": view.test_clients}
    assert all(f"<dt>{name}</dt><dd>{len(clients)}</dd>" in page for name, clients in facts.items())
    assert len(made.fold(0).test_clients) != len(made.fold(3).test_clients)


def test_a_population_may_lie_elsewhere(tmp_path, table):
    run = write_run(tmp_path / "run", ["fedavg"], rounds=0)
    make(table, tmp_path / "shared")
    config = {"algorithm": [{"name": "fedavg"}], "data": {"population": str(tmp_path / "shared")}}
    (run / "config.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
    assert "<dd>120</dd>" in write_report([run], tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_shared_population_is_shown_once(tmp_path, table):
    runs = [write_run(tmp_path / name, ["fedavg"], rounds=0) for name in ("a", "b", "c")]
    for run, seed in zip(runs, (1, 1, 2), strict=True):
        make(table, run / "population", seed=seed)
    page = write_report(runs, tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("Samples of each label on each client</text>") == 2
    assert "<h3>a, b</h3>" in page


@pytest.mark.parametrize("options", [{"clients": 1, "test_clients": 0}, {"scheme": "iid", "clients": 120}])
def test_the_smallest_and_the_thinnest_are_drawn(tmp_path, table, options):
    run = write_run(tmp_path / "run", ["fedavg"], rounds=0)
    make(table, run / "population", **options)
    first, second = (write_report([run], tmp_path / name).read_bytes() for name in ("1.html", "2.html"))
    assert first == second


def test_a_damaged_population_is_refused(tmp_path, table):
    run = write_run(tmp_path / "run", ["fedavg"], rounds=0)
    make(table, run / "population")
    (run / "population" / "clients.parquet").write_bytes(b"")
    with pytest.raises(partitioning.InputError, match=r"clients\.parquet"):
        write_report([run], tmp_path / "report.html")
