"""The table of clients: scores of each client's own model, and its part in the run, against the files and by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import raysim
from partitioning import Population
from raysim.data.tensors import decoder_of
from raysim.measures.epsilon.outside_epsilon import UNCOVERED
from raysim.plots.style import strokes_of
from raysim.report.each_client import describe
from raysim.report.page import render
from raysim.report.read import read_runs
from tests.kit.runs import quick_run

pandas = pytest.importorskip("pandas")

SPEEDS = {"old": 20.0, "new": 200.0}
KINDS = ["old", "new", "old", "new", "new", "new", "old", "old", "new", "old"]
CONFIG: dict[str, Any] = {
    "rounds": 4,
    "data": {"dataset": "digits", "sample": 0.2},
    "partition": {"clients": 10, "test_clients": 2, "local_test": 0.3},
    "model": {"hidden": [8], "norm": "batch"},
    "local": {"lr": 0.3, "batch_size": 8},
    "algorithm": [{"name": name, "cohort": 3} for name in ("fedavg", "fedbn", "ditto", "apfl")],
    "evaluate": {"every": 0, "metrics": ["accuracy", "auc", "loss"]},
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> raysim.Run:
    folder = tmp_path_factory.mktemp("clients")
    table = pa.table({"client": list(range(10)), "device": KINDS, "compute": [SPEEDS[kind] for kind in KINDS]})
    pq.write_table(table, folder / "devices.parquet")
    config = {**CONFIG, "devices": {"table": str(folder / "devices.parquet")}}
    return quick_run(config, folder / "run", inline=True)


def accuracy(model: torch.nn.Module, batch: pa.RecordBatch, population: Population) -> float:
    x, y = decoder_of(population)(batch)
    with torch.no_grad():
        return float((model(torch.as_tensor(x)).argmax(1) == torch.as_tensor(y)).double().mean())


@pytest.mark.parametrize("name", ["fedavg", "fedbn", "ditto", "apfl"])
def test_scores_are_those_of_each_clients_own_model(done: raysim.Run, name: str) -> None:
    clients, population = done.clients(name), Population.open(done.folder / "population")
    assert clients.client.tolist() == list(range(10)) and clients.device.dropna().isin(SPEEDS).all()
    for row in clients.itertuples():
        batch, own = population.batch(row.client), int(population.test_sizes[row.client])
        model = done.model(name, client=row.client)
        cut = batch.num_rows - own if row.split == "train" else 0
        assert row.test_accuracy == pytest.approx(accuracy(model, batch[cut:], population), abs=1e-12)
        assert np.isnan(row.train_accuracy) == (row.updates == 0)
        if row.updates:
            assert row.train_accuracy == pytest.approx(accuracy(model, batch[:cut], population), abs=1e-12)


STANDARD: dict[str, Any] = {
    **CONFIG,
    "rounds": 2,
    "data": {**CONFIG["data"], "standardise": "client"},
    "algorithm": {"name": "fedbn", "cohort": 3},
    "evaluate": {"every": 0, "metrics": ["accuracy", "loss"]},
}
HEART: dict[str, Any] = {
    "data": {
        "dataset": "heart-disease",
        "standardise": "client",
        "columns": {"categories": ["cp", "restecg"], "fit": "client", "impute": "median"},
    },
    "partition": {"scheme": "natural", "column": "hospital", "local_test": "split"},
    "local": {"loss": "binary", "lr": 0.01, "batch_size": 8},
}


@pytest.mark.parametrize("changes", [{}, HEART], ids=["digits", "heart"])
def test_a_clients_scores_follow_by_hand_from_its_data_and_its_model(tmp_path: Path, changes: dict[str, Any]) -> None:
    done = quick_run({**STANDARD, **changes}, tmp_path / "run", inline=True)
    for row in done.clients().itertuples():
        model, compared = done.model("fedbn", client=row.client), 0
        for part in ("test", "train"):
            x, y = done.data(row.client, part)
            if row.split == "train":
                assert len(y) == (row.test_samples if part == "test" else row.samples - row.test_samples)
            if not np.isnan(score := getattr(row, f"{part}_accuracy")):
                with torch.no_grad():
                    outputs = model(x)
                guess = outputs.argmax(1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).long()
                assert score == pytest.approx(float((guess == y).double().mean()), abs=1e-12)
                compared += 1
        assert compared == 1 + (row.updates > 0)
        assert len(done.data(row.client, "all")[1]) == row.samples


def test_data_of_an_unknown_client_or_part_are_refused(done: raysim.Run) -> None:
    with pytest.raises(raysim.InputError, match="client = 10: must be an id from 0 to 9"):
        done.data(10)
    with pytest.raises(raysim.InputError, match="unknown part = 'tests': did you mean 'test'"):
        done.data(0, "tests")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["fedavg", "ditto"])
def test_means_are_those_of_the_evaluation(done: raysim.Run, name: str) -> None:
    clients, last = done.clients(name), done.metrics().query(f"algorithm == {name!r}").iloc[-1]
    for split, target in (("train", "local"), ("test", "held_out")):
        for metric in ("accuracy", "auc", "loss"):
            own = clients[clients.split == split][f"test_{metric}"]
            assert own.mean() == pytest.approx(last[f"{target}_mean_{metric}"], rel=1e-12)


@pytest.mark.parametrize("name", ["fedavg", "fedbn", "ditto"])
def test_costs_add_up_to_those_of_the_run(done: raysim.Run, name: str) -> None:
    clients, updates = done.clients(name), done.updates().query(f"algorithm == {name!r}")
    metrics = done.metrics().query(f"algorithm == {name!r}")
    assert clients.updates.tolist() == np.bincount(updates.client, minlength=10).tolist()
    for column in ("bytes_up", "bytes_down"):
        assert clients[column].sum() == pytest.approx(metrics[column].sum(), rel=1e-12)
    blocks = updates.drop_duplicates(["round", "block"]).machine_block_seconds
    assert clients.machine_seconds.sum() == pytest.approx(blocks.sum(), rel=1e-12)


SLOW = {"compute": 5.0, "spread": 1.0, "latency": 1000.0}
AT_NIGHT = {**SLOW, "availability": "day-night", "hours": 3.0}


@pytest.mark.parametrize(
    ("algorithm", "devices", "block"),
    [
        ({"name": "fedbuff", "cohort": 2, "concurrency": 4}, AT_NIGHT, ["block"]),
        ({"name": "fedprox", "cohort": 3, "deadline": 1006.0, "late": "stale"}, SLOW, ["round", "block"]),
    ],
    ids=["asynchronous", "stale"],
)
def test_costs_add_up_in_virtual_time(
    tmp_path: Path, algorithm: dict[str, Any], devices: dict[str, Any], block: list[str]
) -> None:
    config = {**CONFIG, "algorithm": [algorithm], "rounds": 20, "devices": devices, "fleet": {"block": 2}}
    run = quick_run(config, tmp_path / "run", inline=True)
    clients, metrics, updates = run.clients(), run.metrics(), run.updates()
    assert clients.bytes_up.sum() == pytest.approx(metrics.bytes_up.sum())
    assert clients.updates.sum() == metrics.updates.sum() == (updates.outcome == "counted").sum()
    computed = updates[updates.outcome == "counted"]
    assert (len(computed) < len(updates)) == (devices is AT_NIGHT) and computed.staleness.max() > 0
    sizes = computed.groupby(block).client.transform("size")
    assert (sizes > 1).any()
    assert clients.machine_seconds.sum() == pytest.approx((computed.machine_block_seconds / sizes).sum(), rel=1e-12)


def test_a_report_has_quantiles_groups_and_a_table_that_can_be_sorted(done: raysim.Run) -> None:
    (run,) = read_runs([done.folder])
    results = tuple(replace(each, metrics={}) for each in run.results)  # so that the other sections have no charts
    page = render([replace(run, population=None, results=results)])
    section = page[page.index("<h2>Each client</h2>") :]
    section = section[: section.index("</section>")]
    clients = done.clients("ditto")
    worst = f"{100 * clients.test_accuracy.min():.1f} %"
    assert "ditto, own test part" in section and worst in section
    assert "by device" in section and "by split" in section
    assert section.count("<table") == section.count("</table>") == 4
    assert section[section.index('class="sortable"') :].count('<th scope="row">') == 10


def test_no_group_is_of_clients_with_the_same_cost(done: raysim.Run) -> None:
    (run,) = read_runs([done.folder])
    late = pa.array([0, 1] * 5)
    results = [replace(each, clients=each.clients.append_column("late", late)) for each in run.results]
    described = describe([replace(run, results=tuple(results))], strokes_of([each.label for each in results]))
    assert described is not None and [name for name, _ in described["groups"]] == ["device", "split"]


OWN = """
from dataclasses import dataclass

from algorithms import Assign, Option, fedavg


@dataclass(frozen=True)
class Wards(Option):
    def client_columns(self, census, seed): return {"wards": [[1, 2]] * len(census.clients), "north": ["n", "s"] * 4}


def warded(participation, local, server=Assign()): return fedavg(participation, local, server).having(Wards())
def mean_miss(outputs, y): return outputs.argmax(1).ne(y).double()
"""


def test_a_report_describes_own_metrics_and_own_facts_of_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_clients.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    metrics = ["own_clients:mean_miss"]
    config = {**CONFIG, "algorithm": {"name": "own_clients:warded"}, "evaluate": {"metrics": metrics}, "rounds": 1}
    run = quick_run(config, tmp_path / "run", inline=True)
    assert [list(each) for each in run.clients().wards.dropna()] == [[1, 2]] * 8
    described = describe(read_runs([run.folder]), strokes_of(["own_clients:warded", "warded"]))
    # Lists make no groups, and a metric whose name begins like a mean keeps its name.
    assert described is not None and "mean_miss" in described["charts"][0].title
    groups = [name for name, _ in described["groups"]]
    assert "north" in groups and "wards" not in groups


def test_clients_may_be_left_unscored(tmp_path: Path) -> None:
    config = {**CONFIG, "algorithm": {"name": "fedavg"}, "evaluate": {**CONFIG["evaluate"], "clients": False}}
    run = quick_run({**config, "rounds": 1}, tmp_path / "run", inline=True)
    assert not (run.folder / "fedavg" / "clients.parquet").exists()
    with pytest.raises(raysim.InputError, match=r"evaluate\.clients is false"):
        run.clients()
    assert describe(read_runs([run.folder]), {}) is None


def test_the_global_model_comes_with_a_warning_where_clients_have_their_own(done: raysim.Run) -> None:
    trained = done.clients("ditto").query("updates > 0").client.tolist()
    with pytest.warns(
        UserWarning, match=rf"{len(trained)} clients have models of their own; take model\('ditto', client="
    ):
        model = done.model("ditto")
    never = next(client for client in range(10) if client not in trained)
    for one, other in zip(model.parameters(), done.model("ditto", client=never).parameters(), strict=True):
        assert torch.equal(one, other)
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), done.model("fedavg").parameters(), strict=True))
    with pytest.raises(raysim.InputError, match="client = 10: must be an id from 0 to 9"):
        done.model("ditto", client=10)


@pytest.mark.parametrize("file", ["*/clients.parquet", "columns.json", "devices-*.arrow"])
def test_what_tells_of_clients_is_outside_epsilon(file: str) -> None:
    assert any(file in each.files for each in UNCOVERED)
