"""`[attack]` and `server.aggregate`: what a file may say, and what is refused in one line."""

from typing import Any

import pytest

from algorithms.options.aggregation import Aggregate, Krum, Mean, Median, TrimmedMean
from algorithms.options.attack import Attack
from algorithms.options.robust import Robust
from algorithms.parts.server import Mix
from raysim.common.errors import InputError
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


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        ({"server": {"aggregate": "medain"}}, ["server.aggregate = 'medain'", "median"]),
        ({"server": {"aggregate": "krum"}}, ["server.byzantine", "must be given"]),
        ({"server": {"aggregate": "median", "trim": 0.1}}, ["server.trim"]),
        ({"server": {"aggregate": "trimmed-mean", "trim": 0.6}}, ["server.trim = 0.6", "[0, 0.5)"]),
        ({"server": {"aggregate": ["median"]}}, ["server.aggregate"]),
        ({"attack": {"kind": "signflip"}}, ["attack.kind = 'signflip'", "sign-flip"]),
        ({"attack": {"shares": 0.1}}, ["attack.shares", "share"]),
        ({"attack": {"share": 1.5}}, ["attack.share = 1.5", "[0, 1]"]),
        ({"attack": {"kind": "label-flip", "scale": 2.0}}, ["attack.scale = 2.0"]),
        ({"attack": {}, "algorithm": {"name": "fedasync"}}, ["attack", "rounds of its own"]),
        (
            {"server": {"aggregate": "median"}, "algorithm": {"name": "radfed"}},
            ['server.aggregate = "median"', "aggregate_every"],
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(change: dict[str, Any], texts: list[str]) -> None:
    with pytest.raises(InputError) as refused:
        made(**change)
    assert "\n" not in str(refused.value) and all(text in str(refused.value) for text in texts), str(refused.value)
