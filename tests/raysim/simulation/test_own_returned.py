"""Values that a user's own code returns, and that no run can use: each is refused in one line that names the code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import partitioning
import raysim
from raysim.common.errors import InputError, OwnCodeError
from raysim.data.sources import load
from tests.kit.own_returned import RETURNING
from tests.kit.runs import quick_run


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_returned.py").write_text(RETURNING)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_returned", None)


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return an experiment on two clients of 20 samples each."""
    path = tmp_path_factory.mktemp("own_returned") / "population"
    partitioning.make(load("digits").train.slice(0, 40), path, scheme="iid", clients=2, local_test=0.2)
    return {"rounds": 1, "data": {"population": str(path)}, "model": {"name": "logistic"}}


def stage(name: str) -> dict[str, Any]:
    return {"chain": [{"name": f"own_returned:{name}"}]}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"local": {"update": "own_returned:huge"}}, "huge': must return numbers up to 1.8e308, and 'x' is larger"),
        ({"local": {"update": "own_returned:surrogate"}}, r"surrogate': must return names .*'x\\ud800' has a lone"),
        ({"local": {"update": "own_returned:text"}}, "text': must return numbers, and 'x' is a str"),
        ({"local": {"update": "own_returned:pair"}}, "pair': must return numbers, and 'x' is a Tensor"),
        ({"local": {"update": "own_returned:nothing"}}, "nothing': must return numbers by name"),
        ({"local": {"update": "own_returned:Kept"}}, "Kept': must return from `personal` .* names of UTF-8"),
        ({"local": {"loss": "own_returned:no_loss"}}, "no_loss': must give a loss for each .* gives NoneType"),
        ({"local": {"loss": "own_returned:whole_loss"}}, "whole_loss': must give a loss .* gives .2,. of torch.int64"),
        ({"local": {"loss": "own_returned:array_loss"}}, "array_loss': must give a loss .* gives .2,. of float64"),
        ({"local": {"loss": "own_returned:spoilt_loss"}}, "spoilt_loss': must .* RuntimeError: .* by an inplace op"),
        ({"uplink": stage("Args")}, r"Args': must take \(changes\), and does not"),
        ({"uplink": stage("Abstract")}, "Abstract': must define __call__"),
        ({"evaluate": {"metrics": ["own_returned:one_argument"]}}, r"one_argument': must take \(outputs, y\)"),
        ({"uplink": stage("NoStage")}, "NoStage': must return Changes, and returns a NoneType"),
        ({"downlink": stage("NoStage")}, "downlink.chain has 'own_returned:NoStage': must return Changes"),
        ({"uplink": stage("Flat")}, "Flat': must return values"),
        ({"uplink": stage("Double")}, "Double': must return values .* torch.float64"),
        ({"uplink": stage("Fewer")}, "Fewer': must return a place for each value"),
        ({"uplink": stage("NoMessage")}, "NoMessage': must return a Message from `message`, and returns a NoneType"),
        ({"uplink": stage("Wide")}, "Message's bits = 'a number beyond 2.64': must be a number from 0 to 2.40"),
        ({"downlink": stage("Less")}, "Message's beside = -1: must be a number from 0 to 2.40; correct the stage"),
        ({"uplink": stage("Undefined")}, "Message's values = nan: must be"),
        ({"uplink": stage("Text")}, "Message's bits = '8': must be"),
        ({"uplink": stage("Product")}, "Message's values x bits = .*: must be at most 2.43 bits"),
        (
            {"evaluate": {"metrics": ["own_returned:no_metric"]}},
            "must give a number .* a NoneType .own_returned.py, line",
        ),
        (
            {"evaluate": {"metrics": ["own_returned:of_numpy"]}},
            "must give a number .* a ndarray .own_returned.py, line",
        ),
        (
            {"evaluate": {"metrics": ["own_returned:mean_metric"]}},
            "'mean_metric' of .* gives one for all .own_returned.py, line .*; leave out its",
        ),
        ({"evaluate": {"metrics": ["own_returned:complex_metric"]}}, "'complex_metric' of .* gives a torch.complex"),
        ({"evaluate": {"metrics": ["own_returned:Huge"]}}, "own_returned:Huge': must return numbers up to 1.8e308"),
        ({"evaluate": {"metrics": ["own_returned:NoValue"]}}, "own_returned:NoValue': must return numbers, and its"),
        ({"server": {"rule": "own_returned:NoRule"}}, "NoRule': must return a model and a memory"),
        ({"server": {"rule": "own_returned:Alone"}}, "Alone': must return a model and a memory, and returns a Packed"),
        ({"server": {"rule": "own_returned:Short"}}, "Short': must return a model with .* returns .2,. of float32"),
        ({"server": {"rule": "own_returned:Named"}}, "Named': must return a memory of arrays by names of UTF-8"),
        ({"server": {"rule": "own_returned:Listed"}}, "Listed': must return a memory .* 'x' is a list"),
        ({"algorithm": {"name": "own_returned:unweighted"}}, "NoWeight': must return numbers, and the weight is"),
        ({"algorithm": {"name": "own_returned:complex_weight"}}, "Weight': must return .* the weight is a complex128"),
        ({"algorithm": {"name": "own_returned:array_weight"}}, "Weight': must return numbers, .* is a ndarray"),
        ({"algorithm": {"name": "own_returned:tensor_weight"}}, "Weight': must return numbers, .* is a Tensor"),
        ({"algorithm": {"name": "own_returned:text_weight"}}, "Weight': must return numbers, and the weight is a str"),
        ({"algorithm": {"name": "own_returned:arriving"}}, "Weight': must return numbers, and the weight is a str"),
        ({"algorithm": {"name": "own_returned:overweight"}}, "HugeWeight': must return numbers up to 1.8e308"),
        ({"algorithm": {"name": "own_returned:parity"}}, r"Knows.*: `client_columns`: must return arrays by name"),
        ({"algorithm": {"name": "own_returned:few"}}, "an array of 2 values .* and 'x' is an array of 1"),
        ({"algorithm": {"name": "own_returned:single"}}, "an array of 2 values .* and 'x' is a int"),
        ({"algorithm": {"name": "own_returned:square"}}, "an array of 2 values .* and 'x' is a ndarray"),
        ({"algorithm": {"name": "own_returned:client"}}, "new names as texts, and 'client' is another"),
        ({"algorithm": {"name": "own_returned:round_"}}, "new names as texts, and 'round' is another"),
        *(
            ({"algorithm": {"name": f"own_returned:{name}"}}, f"new names as texts, and '{name}' is another column")
            for name in ("split", "cluster", "algorithm")
        ),
        ({"algorithm": {"name": "own_returned:scored"}}, "new names as texts, and 'test_accuracy' is another column"),
        *(
            ({"algorithm": {"name": f"own_returned:{name}"}}, f"Measures.*`columns` has '{column}': must be a new name")
            for name, column in (
                ("sent", "bytes_up"),
                ("privately", "epsilon"),
                ("tested", "local_accuracy"),
                ("twin", "concordance"),
                ("twice", "x"),
            )
        ),
        (
            {"algorithm": {"name": "own_returned:undeclared"}},
            "Measures.*: `publish` measures 'updates', which is not among its `columns`: must be one of x, simulated_s",
        ),
        ({"evaluate": {"metrics": ["own_returned:samples"]}}, "a metric named 'samples': must have a column of its"),
        ({"algorithm": {"name": "own_returned:seven"}}, "new names as texts, and 7 is another column or no text"),
        ({"algorithm": {"name": "own_returned:lone"}}, r"new names as texts, and 'x.*ud800' is"),
    ],
)
def test_a_value_that_no_run_can_use_is_refused(
    here: Path, experiment: dict[str, Any], more: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as refused:
        raysim.run({**experiment, **more}, here / "run", inline=True)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("names", "table"),
    [("metrics", "Metrics"), ("linked", "edges"), ("outside", "../x"), ("same", "X"), ("uneven", "x")],
)
def test_a_table_that_cannot_be_written_is_left_out_and_the_run_is_done(
    here: Path, experiment: dict[str, Any], names: str, table: str
) -> None:
    found = quick_run({**experiment, "algorithm": {"name": f"own_returned:{names}"}}, here / "run", inline=True)
    assert len(found.metrics()) == 1
    assert f"table '{table}' of `tables` is left out" in (here / "run" / "run.log").read_text()
    written = next((here / "run").glob("*/summary.json")).parent
    assert not (written.parent / "x.parquet").exists() and (written / "x.parquet").exists() == (names == "same")


def test_a_subclass_of_raysim_s_option_keeps_its_columns(here: Path, experiment: dict[str, Any]) -> None:
    found = quick_run({**experiment, "algorithm": {"name": "own_returned:diverging"}}, here / "run", inline=True)
    assert found.metrics()["dl"].notna().any()


def test_a_table_of_an_option_of_a_user_is_among_the_checked_files(here: Path, experiment: dict[str, Any]) -> None:
    quick_run({**experiment, "algorithm": {"name": "own_returned:found"}}, here / "run", inline=True)
    table = here / "run" / "found" / "found.parquet"
    assert pq.read_table(table).to_pydict() == {"x": [1.0]}
    table.write_bytes(b"")
    with pytest.raises(InputError, match=r"found\.parquet is damaged"):
        raysim.resume(here / "run", inline=True)


@pytest.mark.parametrize("metric", ["NoValue", "mean_metric"])
def test_a_metric_without_a_number_is_refused_before_any_round(
    here: Path, experiment: dict[str, Any], metric: str
) -> None:
    with pytest.raises(InputError):
        raysim.run({**experiment, "evaluate": {"metrics": [f"own_returned:{metric}"]}}, here / "run", inline=True)
    assert not list(here.rglob("metrics.journal"))


@pytest.mark.parametrize("loss", ["generator_loss", "system_loss", "odd_loss"])
def test_an_error_that_is_no_exception_is_named(here: Path, experiment: dict[str, Any], loss: str) -> None:
    with pytest.raises((InputError, OwnCodeError), match=rf": leaving \(.*own_returned.py, line \d+, in {loss}\)"):
        raysim.run({**experiment, "local": {"loss": f"own_returned:{loss}"}}, here / "run", inline=True)


@pytest.mark.parametrize("column", ["bytes_up", "local_accuracy", "dl", "epsilon", "algorithm"])
def test_a_number_of_a_rule_is_a_new_column_of_the_metrics(here: Path, experiment: dict[str, Any], column: str) -> None:
    rated = {**experiment, "server": {"rule": "own_returned:Rated"}}
    quick_run(rated, here / "run", inline=True)
    assert pq.read_table(here / "run" / "fedavg" / "metrics.parquet")["rate"].to_pylist() == [2.5]
    rated["server"]["column"] = column
    with pytest.raises(InputError, match=f"own_returned:Rated': its `columns` has '{column}': must be a new name"):
        raysim.run(rated, here / "taken", inline=True)


def test_a_column_of_an_option_of_a_user_is_in_the_rows_of_client_updates(
    here: Path, experiment: dict[str, Any]
) -> None:
    quick_run({**experiment, "algorithm": {"name": "own_returned:known"}}, here / "run", inline=True)
    rows = pq.read_table(here / "run" / "known" / "updates.parquet").to_pydict()
    assert rows["client"] == rows["parity"] == [0, 1]
