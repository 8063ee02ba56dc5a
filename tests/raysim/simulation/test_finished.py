"""A run in Python: frames, figures, models and its appearance, from `raysim.run` and from `raysim.load`."""

import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import raysim
from partitioning import Population
from raysim import Run
from raysim.data.tensors import decoder_of
from raysim.watching.progress import Watcher
from tests.kit.runs import quick_run

pytestmark = pytest.mark.usefixtures("drawn")

pandas = pytest.importorskip("pandas")

CONFIG = {
    "rounds": 30,
    "data": {"dataset": "digits", "sample": 0.2},
    "partition": {"scheme": "iid", "clients": 8, "test_clients": 2},
    "model": {"name": "logistic"},
    "algorithm": [
        {"name": "fedavg", "cohort": 2},
        {"name": "fedbn", "cohort": 3, "model": {"name": "mlp", "hidden": [4], "norm": "batch"}},
    ],
}

FEW = {"every": 1, "metrics": ["accuracy"], "on": ["held_out"], "clients": False}
"""Evaluation of which a report has few charts."""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return quick_run(CONFIG, tmp_path_factory.mktemp("finished") / "a & b", inline=True)


def test_metrics_and_updates_are_frames(done: Run) -> None:
    metrics, updates = done.metrics(), done.updates()
    assert list(metrics.groupby("algorithm", sort=False).size().items()) == [("fedavg", 30), ("fedbn", 30)]
    stored = pq.read_table(done.folder / "fedbn" / "metrics.parquet")
    assert metrics[metrics.algorithm == "fedbn"].train_loss.tolist() == stored.column("train_loss").to_pylist()
    assert updates.algorithm.value_counts().to_dict() == {"fedavg": 60, "fedbn": 90}


def test_by_default_a_run_is_evaluated_up_to_twenty_times(done: Run) -> None:
    metrics = done.metrics()
    known = metrics[(metrics.algorithm == "fedavg") & metrics.held_out_accuracy.notna()]
    assert known["round"].tolist() == list(range(2, 31, 2))


def test_the_model_is_the_one_of_the_files(done: Run) -> None:
    with pytest.raises(raysim.InputError, match="algorithm is missing: must be one of fedavg, fedbn"):
        done.model()
    with pytest.raises(raysim.InputError, match="did you mean 'fedavg'"):
        done.model("fedavgg")
    model = done.model("fedavg")
    assert not model.training
    test = pq.read_table(done.folder / "fedavg" / "metrics.parquet").column("held_out_accuracy").to_pylist()[-1]
    population = Population.open(done.folder / "population")
    x, y = zip(
        *(decoder_of(population)(population.batch(int(client))) for client in population.test_clients), strict=True
    )
    with torch.no_grad():
        right = model(torch.as_tensor(np.concatenate(x))).argmax(1).numpy() == np.concatenate(y)
    assert right.mean() == pytest.approx(test)
    with pytest.warns(UserWarning, match="the global model of fedbn"):
        average = done.model("fedbn")
    assert average(torch.zeros(3, 64)).shape == (3, 10)


def test_columns_are_plotted(done: Run) -> None:
    figure = done.plot("held_out_accuracy", "train_loss")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Held-out clients, pooled", "train_loss"]
    assert figure._repr_svg_().startswith("<svg")  # type: ignore[attr-defined]
    assert len(done.plot().axes) == 1
    with pytest.raises(raysim.InputError, match="did you mean 'held_out_accuracy'"):
        done.plot("held_out_acuracy")


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: object) -> None:
        if tag not in ("line", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_it_shows_itself(done: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(done.folder.parent)
    first, *lines = str(done).splitlines()
    assert first == f"Run in {done.folder}" and len(lines) == len(done.results)
    assert all(f"{each.name}, {each.rounds} rounds: " in line for each, line in zip(done.results, lines, strict=True))
    page = done._repr_html_()
    assert Tags(page).open == []
    assert "<b>a &amp; b</b>" in page and 'href="a &amp; b/report.html"' in page
    assert "fedbn" in page and "<svg" in page


def test_a_loaded_run_is_the_same(done: Run, tmp_path: Path) -> None:
    again = raysim.load(done.folder)
    assert [each.metrics for each in again.results] == [each.metrics for each in done.results]
    assert again.metrics().equals(done.metrics()) and again._repr_html_() == done._repr_html_()
    with pytest.raises(raysim.InputError, match="must be the folder of a run"):
        raysim.load(tmp_path)


def test_a_run_that_was_stopped_has_what_it_has(done: Run, tmp_path: Path) -> None:
    class Stopping(Watcher):
        def round(self, round_number: int, metrics: dict[str, float]) -> None:
            if round_number == 3:
                raise KeyboardInterrupt

    with pytest.raises(raysim.StoppedError) as stopped:
        raysim.run({**CONFIG, "evaluate": FEW}, tmp_path / "stopped", inline=True, watcher=Stopping())
    assert f'continue with: raysim.resume("{tmp_path / "stopped"}", inline=True)' in str(stopped.value)
    found = raysim.load(tmp_path / "stopped")
    assert found.results == () and 2 <= len(found.metrics()) <= 4
    assert "fedavg" in found._repr_html_()
    for read in (found.model, found.clients):
        with pytest.raises(raysim.InputError, match="fedavg must have ended; if no process runs it, continue it with"):
            read("fedavg")
        with pytest.raises(raysim.InputError, match="did you mean 'fedavg'"):
            read("fedavgg")
    with pytest.raises(raysim.InputError, match="algorithm is missing: must be one of fedavg, fedbn; name it"):
        found.model()


def test_a_reader_of_a_run_never_makes_its_population(done: Run, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(done.folder, tmp_path / "run"))
    table = folder / "population" / "clients.parquet"
    table.write_bytes(table.read_bytes()[:-1])
    refusal = f"{folder}: its population cannot be opened .*clients.parquet.*; if no process runs it, continue it with"
    with pytest.raises(raysim.InputError, match=refusal):
        raysim.load(folder).data(0)
    assert table.is_file(), "another process may write these files"
    shutil.rmtree(folder / "population")
    with pytest.raises(raysim.InputError, match="its population cannot be opened"):
        raysim.load(folder).model("fedavg")
    assert not (folder / "population").exists()


def test_errors_are_short_and_name_python() -> None:
    with pytest.raises(raysim.InputError) as refusal:
        raysim.run(CONFIG, inline=True, actors=2)
    assert str(refusal.value).startswith("inline with actors or address: must stand alone")
    assert refusal.value._render_traceback_() == [f"InputError: {refusal.value}"]
    for name in raysim.__all__:
        if name.endswith("Error"):
            assert hasattr(getattr(raysim, name), "_render_traceback_"), name
