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
from tests.kit.runs import quick_run

MINE = """
from dataclasses import dataclass, replace

import numpy as np
import torch
from algorithms import Assign, Divergence, Option, Stage, WeightedMix, fedasync, fedavg




def huge(model, batches, context): return {"loss": 1.0, "x": 10**400}
def surrogate(model, batches, context): return {"loss": 1.0, "x\\ud800": 1.0}
def text(model, batches, context): return {"loss": 1.0, "x": "many"}
def pair(model, batches, context): return {"loss": 1.0, "x": torch.zeros(2)}
def nothing(model, batches, context): return None


class Kept:
    def personal(self, model): return {"x\\ud800": torch.zeros(1)}
    def __call__(self, model, batches, context): return {"loss": 1.0}


def no_loss(outputs, y): return None
def whole_loss(outputs, y): return outputs.argmax(1)
def array_loss(outputs, y): return np.zeros(len(y))
def spoilt_loss(outputs, y):
    kept = outputs.exp()
    losses = kept.square().sum(1)
    kept.zero_()
    return losses


@dataclass(frozen=True)
class Args(Stage):
    def __call__(self): return None


class Abstract(Stage):
    pass


def one_argument(outputs): return 1.0


@dataclass(frozen=True)
class NoStage(Stage):
    def __call__(self, changes): return None


@dataclass(frozen=True)
class Flat(Stage):
    def __call__(self, changes): return replace(changes, values=changes.values.flatten())


@dataclass(frozen=True)
class Double(Stage):
    def __call__(self, changes): return replace(changes, values=changes.values.double())


@dataclass(frozen=True)
class Fewer(Stage):
    def __call__(self, changes): return replace(changes, values=changes.values[:, :3])


@dataclass(frozen=True)
class NoMessage(Stage):
    def __call__(self, changes): return changes
    def message(self, message): return None


@dataclass(frozen=True)
class Wide(Stage):
    def __call__(self, changes): return changes
    def message(self, message): return replace(message, bits=10**5000)


@dataclass(frozen=True)
class Less(Wide):
    def message(self, message): return replace(message, beside=-1)


@dataclass(frozen=True)
class Undefined(Wide):
    def message(self, message): return replace(message, values=float("nan"))


@dataclass(frozen=True)
class Text(Wide):
    def message(self, message): return replace(message, bits="8")


@dataclass(frozen=True)
class Product(Wide):
    def message(self, message): return replace(message, values=2**40, bits=2**40)


class OddEnd(BaseException): pass


def generator_loss(outputs, y): raise GeneratorExit("leaving")
def system_loss(outputs, y): raise SystemExit("leaving")
def odd_loss(outputs, y): raise OddEnd("leaving")


def no_metric(outputs, y): return None
def complex_metric(outputs, y): return outputs[:, 0] * 1j
def mean_metric(outputs, y): return outputs[:, 0].mean()
def of_numpy(outputs, y): return outputs[:, 0].numpy()


class Huge:
    def sums(self, outputs, y): return outputs[:, :1]
    def value(self, sums, samples): return 10**400


class NoValue(Huge):
    def value(self, sums, samples): return None


class NoRule:
    def __call__(self, model, mean, total, memory, layout): return None


class Alone:
    def __call__(self, model, mean, total, memory, layout): return mean


class Short:
    def __call__(self, model, mean, total, memory, layout): return replace(mean, floats=mean.floats[:2]), memory


class Named:
    def __call__(self, model, mean, total, memory, layout): return mean, {"x\\ud800": np.zeros(2)}


class Listed:
    def __call__(self, model, mean, total, memory, layout): return mean, {"x": [0.0]}


@dataclass(frozen=True)
class NoWeight:
    def __call__(self, report): return None


@dataclass(frozen=True)
class HugeWeight:
    def __call__(self, report): return 10**400


@dataclass(frozen=True)
class Weight:
    value: object
    def __call__(self, report): return self.value


def weighing(value):
    return lambda participation, local, server=Assign(): replace(
        fedavg(participation, local, server), weighting=Weight(value)
    )


def arriving(participation, local, server=WeightedMix(0.5)):
    return replace(fedasync(participation, local, server), weighting=Weight("0.5"))


complex_weight, text_weight = weighing(np.complex128(1 + 1j)), weighing("7")
array_weight, tensor_weight = weighing(np.array(1 + 1j)), weighing(torch.tensor(1 + 0j))


def unweighted(participation, local, server=Assign()):
    return replace(fedavg(participation, local, server), weighting=NoWeight())
def overweight(participation, local, server=Assign()):
    return replace(fedavg(participation, local, server), weighting=HugeWeight())


@dataclass(frozen=True)
class Knows(Option):
    facts: object
    def client_columns(self, census, seed): return self.facts


def knowing(facts):
    return lambda participation, local, server=Assign(): fedavg(participation, local, server).having(Knows(facts))


known, parity = knowing({"parity": [0, 1]}), knowing([0, 1])
few, single, square = knowing({"x": [1]}), knowing({"x": 3}), knowing({"x": np.zeros((2, 2))})
client, round_, seven, lone = (knowing({name: [0, 1]}) for name in ("client", "round", 7, "x\\ud800"))
split, cluster, algorithm = (knowing({name: [0, 1]}) for name in ("split", "cluster", "algorithm"))
scored = knowing({"test_accuracy": [0, 1]})


def samples(outputs, y): return torch.ones(len(y))


@dataclass(frozen=True)
class Measures(Option):
    columns: tuple
    name = "measures"
    def publish(self, draft, received, state): return state.measuring({"updates": 3.0})


def measuring(*columns):
    return lambda participation, local, server=Assign(): fedavg(participation, local, server).having(Measures(columns))


@dataclass(frozen=True)
class Tables(Option):
    names: tuple
    def tables(self, state, fleet): return {name: {"x": [1.0]} for name in self.names}


class Uneven(Tables):
    def tables(self, state, fleet): return {"x": {"a": [1.0], "b": [1.0, 2.0]}}


def uneven(participation, local, server=Assign()):
    return fedavg(participation, local, server).having(Uneven(()))




def tabling(*names):
    return lambda participation, local, server=Assign(): fedavg(participation, local, server).having(Tables(names))


metrics, linked, outside, same, found = (
    tabling(*names) for names in (["Metrics"], ["edges"], ["../x"], ["x", "X"], ["found"])
)


@dataclass(frozen=True)
class MyDivergence(Divergence):
    pass


def diverging(participation, local, server=Assign()):
    return fedavg(participation, local, server).having(MyDivergence())


sent, privately, tested, twin = map(measuring, ("bytes_up", "epsilon", "local_accuracy", "concordance"))
twice, undeclared = measuring("x", "x"), measuring("x")


@dataclass(frozen=True)
class Rated:
    column: str = "rate"
    @property
    def columns(self): return (self.column,)
    def __call__(self, model, mean, total, memory, layout):
        return mean, {self.column: np.float64(2.5)}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_returned.py").write_text(MINE)
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
