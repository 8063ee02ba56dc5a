"""Own code of a user that returns what no run can use, and some that a run can."""

RETURNING = """
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
"""Text of a module."""
