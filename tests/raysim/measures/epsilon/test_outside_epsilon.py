"""Everything that a private run publishes is noised, or listed as outside of epsilon.

The clipping norm is too small to move a weight, so neither the clients' changes nor the noise reach the model. All that
epsilon covers is therefore the same to the last bit with one client or without it, and all that differs has no noise.
"""

from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysim.common.errors import InputError
from raysim.common.names import REPORT
from raysim.config.experiment import Experiment
from raysim.config.privacy import PrivacyTable
from raysim.measures.epsilon.outside_epsilon import SENTENCE, UNCOVERED, covers
from raysim.measures.selection import Selection
from raysim.report.read import read_runs
from raysim.report.tables import endings
from tests.kit.runs import quick_run

NATURAL = {"scheme": "natural", "column": "client"}
POISSON = {"sampling": "poisson", "fraction": 0.6}
PRIVACY = {"noise": 1.0, "clip": 1e-40, "delta": 1e-2, "accountant": "rdp"}
COVERED = {"round", "aggregated", "phase", "epsilon"}
PRIVATE = ["apfl", "ditto", "fedadagrad", "fedadam", "fedavg", "fedavgm", "fedbabu", "fedbn", "fedper", "fedprox"]
PRIVATE += ["fedrep", "fedyogi", "lg-fedavg", "per-fedavg", "pfedme"]
CHANGED = ["fedavg", "fedbn", "ditto", "apfl", "pfedme"]
"""One method of each kind, by what a client keeps: for the other ones, client 3 is removed alone."""
PAIRS = [*(("removed", name) for name in PRIVATE), *(("changed", name) for name in CHANGED)]
DOCS = Path(__file__).parents[4] / "docs" / "explanation" / "privacy.md"


def samples(client_3: str) -> pa.Table:
    """Return eight clients' samples: client 3 as it is, with other samples and more of them, or removed."""
    rng = np.random.default_rng(0)
    each = {client: (rng.normal(size=(12 + client, 4)), rng.integers(0, 3, 12 + client)) for client in range(8)}
    if client_3 == "changed":
        each[3] = 3 * rng.normal(size=(25, 4)), rng.integers(0, 3, 25)
    elif client_3 == "removed":
        del each[3]
    x, y = (np.concatenate(parts) for parts in zip(*each.values(), strict=True))
    clients = np.repeat(list(each), [len(labels) for _, labels in each.values()])
    return pa.table({"client": clients, **{f"x{j}": x[:, j] for j in range(4)}, "label": y})


def algorithm(name: str) -> dict[str, Any]:
    batch_norm = {"model": {"name": "mlp", "hidden": [5], "norm": "batch"}} if name == "fedbn" else {}
    return {"name": name, **POISSON, "weighting": "equal", **batch_norm}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of equal runs, apart from client 3."""
    folder = tmp_path_factory.mktemp("runs")
    pq.write_table(samples("as it is").slice(0, 30), folder / "test.parquet")
    config = {
        "rounds": 2,
        "data": {"dataset": f"file:{folder / 'samples.parquet'}", "test": f"file:{folder / 'test.parquet'}"},
        "partition": {**NATURAL, "local_test": 0.2},
        "model": {"name": "mlp", "hidden": [5]},
        "local": {"batch_size": 16},
        "evaluate": {"every": 1, "measures": ["dl"]},
        "privacy": PRIVACY,
    }
    for client_3, names in (("as it is", PRIVATE), ("removed", PRIVATE), ("changed", CHANGED)):
        pq.write_table(samples(client_3), folder / "samples.parquet")
        quick_run({**config, "algorithm": [algorithm(name) for name in names]}, folder / client_3, inline=True)
    return folder


def outputs(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file()]


def is_listed(path: str) -> bool:
    return any(fnmatch(path, pattern) for each in UNCOVERED for pattern in each.files)


@pytest.mark.parametrize(("client_3", "name"), PAIRS)
def test_no_file_tells_of_a_client_unless_it_is_listed(client_3: str, name: str, runs: Path) -> None:
    one, other = runs / "as it is" / name, runs / client_3 / name
    compared = [path for path in outputs(one) if not is_listed(f"{name}/{path}")]
    assert outputs(one) == outputs(other) and "model.safetensors" in compared
    for path in compared:
        if path != "metrics.parquet":
            assert (one / path).read_bytes() == (other / path).read_bytes(), path


def test_no_file_beside_those_of_methods_tells_of_a_client_unless_it_is_listed(runs: Path) -> None:
    one, other = runs / "as it is", runs / "removed"
    assert outputs(one) == outputs(other)
    compared = [path for path in outputs(one) if path.partition("/")[0] not in PRIVATE and not is_listed(path)]
    assert "config.toml" in compared
    assert all((one / path).read_bytes() == (other / path).read_bytes() for path in compared)


@pytest.mark.parametrize(("client_3", "name"), PAIRS)
def test_no_column_tells_of_a_client_unless_it_is_listed(client_3: str, name: str, runs: Path) -> None:
    one, other = (pq.read_table(runs / run / name / "metrics.parquet") for run in ("as it is", client_3))
    moved = {column for column in one.column_names if one[column].to_pylist() != other[column].to_pylist()}
    assert {"train_loss", "local_loss"} <= moved
    assert not [column for column in moved if covers(column, own_models=True)]
    # A new column is either listed, or known to be covered.
    others = {column for column in one.column_names if covers(column, own_models=True)} - COVERED
    assert others and all(column.startswith("test_") for column in others)


def test_held_out_clients_tell_of_a_client_by_their_last_digits_alone(tmp_path: Path) -> None:
    """The partitioner's permutation, and with it the order of each client's rows, depends on the number of all rows."""
    tables = []
    for client_3 in ("as it is", "changed"):
        pq.write_table(samples(client_3), tmp_path / "samples.parquet")
        config = {
            "rounds": 1,
            "data": {"dataset": f"file:{tmp_path / 'samples.parquet'}"},
            "partition": {**NATURAL, "test_clients": 0.2},
            "model": {"name": "mlp", "hidden": [5]},
            "privacy": PRIVACY,
            "algorithm": [algorithm("fedavg")],
        }
        quick_run(config, tmp_path / client_3, inline=True)
        tables.append(pq.read_table(tmp_path / client_3 / "fedavg" / "metrics.parquet").to_pylist()[-1])
    one, other = tables
    held_out = [column for column in one if column.startswith("held_out")]
    assert held_out and {column: one[column] for column in held_out} == pytest.approx(
        {column: other[column] for column in held_out}, rel=1e-14
    )


def test_the_page_has_the_list() -> None:
    page = DOCS.read_text()
    assert all(each.name in page for each in UNCOVERED)


def test_the_list_stands_beside_epsilon(runs: Path) -> None:
    assert SENTENCE in endings(read_runs([runs / "removed"])[0].results)
    assert is_listed(REPORT)


def test_domains_tell_of_clients_with_models_of_their_own() -> None:
    assert covers("domain_mnist_accuracy", own_models=False) and not covers("domain_mnist_accuracy", own_models=True)


def private(delta: float) -> PrivacyTable:
    return PrivacyTable(clip=1.0, noise=1.0, delta=delta)


@pytest.mark.parametrize(
    ("delta", "selection", "message"),
    [
        (0.125, Selection(), r"privacy.delta = 0.125 with 8 training clients: must be below 1 / 8 = 0.12, .*= 0.01$"),
        (1e-5, Selection(best=True, by="local_loss"), r"evaluate.select = \"best\" by 'local_loss' with \[privacy\]"),
        (
            1e-5,
            Selection(by="local_loss", patience=3),
            "patience = 3 by 'local_loss'.*name 'test_loss' in evaluate.sel",
        ),
        (
            1e-5,
            Selection(targets={"test_loss": 1, "local_loss": 1}, until_target=True),
            "until_target = true by 'local_loss'.*name 'test_loss' in evaluate.target$",
        ),
        (
            1e-5,
            Selection(best=True, by="local_loss", targets={"local_loss": 1}),
            "name 'test_loss' in evaluate.select_by$",
        ),
    ],
)
def test_what_would_tell_of_a_client_is_refused(delta: float, selection: Selection, message: str) -> None:
    with pytest.raises(InputError, match=message):
        private(delta).check_run(8, selection, ["local_loss", "test_loss"], own_models=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 3.0}, r"epochs = 3 with \[privacy\]: must be rounds"),
        ({"data": {"dataset": "digits", "standardise": "global"}}, 'standardise = "global" with'),
        ({"data": {"dataset": "digits", "standardise": "client"}}, 'standardise = "client" with'),
        ({"data": {"dataset": "digits", "test": 0.2}, "partition": NATURAL}, 'data.test = 0.2 with .* "natural": must'),
    ],
)
def test_lengths_means_and_test_rows_of_the_clients_samples_are_refused(changes: dict[str, Any], message: str) -> None:
    config = {"privacy": {"noise": 1.0, "clip": 1.0}, "algorithm": [algorithm("fedavg")], "data": {"dataset": "digits"}}
    with pytest.raises(InputError, match=message):
        Experiment.of({**config, **changes})


def test_other_deltas_and_selections_pass() -> None:
    private(0.12).check_run(8, Selection(best=True, by="test_loss", patience=2), ["test_loss"], own_models=False)
    private(0.12).check_run(8, Selection(by="local_loss"), ["local_loss"], own_models=False)
