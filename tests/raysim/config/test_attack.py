"""`[attack]` and `server.aggregate`: what a file may say, and what is refused in one line."""

from typing import Any

from algorithms.options.aggregation import Aggregate, Krum, Mean, Median, TrimmedMean
from algorithms.options.attack import Attack
from algorithms.options.robust import Robust
from algorithms.parts.server import Mix
from raysim.config.experiment import Experiment

BASE: dict[str, Any] = {"data": {"dataset": "digits"}, "model": {"name": "mlp"}, "algorithm": {"name": "fedavg"}}


def made(**change: Any) -> Experiment:
    experiment = Experiment.of({**BASE, **change})
    assert Experiment.of(experiment.to_toml()) == experiment
    return experiment


def test_a_rule_of_aggregation_stands_beside_the_server_rule() -> None:
    def composed(**change: Any) -> Any:
        experiment = made(**change)
        return [table.compose() for table in experiment.algorithm]

    def rules(found: Any) -> list[Aggregate]:
        return [option.rule if (option := each.option(Robust)) else Mean() for each in found]

    assert rules(composed()) == [Mean()]
    (algorithm,) = composed(server={"rule": "mix", "alpha": 0.5, "aggregate": "trimmed-mean", "trim": 0.2})
    assert rules([algorithm]) == [TrimmedMean(0.2)] and algorithm.server == Mix(0.5)
    # The common rule of aggregation stays with an algorithm's own server rule, and goes with its own aggregate.
    both = [
        {"name": "fedavg", "server": {"rule": "mix", "alpha": 0.5}},
        {"name": "fedadam"},
        {"name": "fedavg", "server": {"aggregate": "median"}},
        {"name": "fedavg", "server": {"aggregate": "mean"}},
    ]
    found = composed(server={"aggregate": "krum", "byzantine": 2}, algorithm=both)
    assert rules(found) == [Krum(2), Krum(2), Median(), Mean()]
    assert found[0].server == Mix(0.5) and type(found[1].server).__name__ == "Adam"


def test_an_attack_reaches_all_phases() -> None:
    experiment = made(attack={"share": 0.1, "kind": "gaussian"}, algorithm={"name": "fixbn"})
    algorithm = experiment.compose("fixbn")
    assert [phase.option(Attack) for phase in algorithm.phases] == [Attack(0.1, "gaussian")] * 2
    assert made().compose("fedavg").option(Attack) is None
