"""Augmentation: its draws come from the client update's key alone, and every execution trains on the same samples."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from algorithms import Augmented, Compute, Local, Participation, Purpose, begin, fedavg, fedtan, next_round, torch_seed
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import clients, perceptron
from tests.kit.reference import DATA, FP64, agree, drawn, mean, module, sgd, train
from tests.kit.rounds import simulate
from tests.kit.stacked import differ, seeded

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.1, batch_size=4, epochs=2)
HALF = Participation(fraction=0.5)


@dataclass(frozen=True)
class Stretch:
    """A change of vectors: x <- x (1/2 + a) + b."""

    numbers = 2

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return x * (0.5 + draws[:, :1]) + draws[:, 1:]


def test_the_engine_does_what_a_plain_loop_does(federation: Federation) -> None:
    fleet = federation(DATA, module(), compute=FP64, augment=Stretch())
    state = simulate(fedavg(HALF, LOCAL), fleet, module(), 4)
    model = module()
    for number in range(1, 5):
        models, weights = [], []
        for client in HALF.draw(np.arange(6), 0, number):
            x, y = DATA[client][0].double(), DATA[client][1]
            batches = drawn(LOCAL, DATA[client], number, int(client))
            numbers = torch.Generator().manual_seed(torch_seed(0, Purpose.AUGMENT, number, int(client)))
            own = deepcopy(model)
            for rows in batches:
                changed = Stretch()(x[rows], torch.rand(len(rows), 2, generator=numbers))
                train(own, (changed, y[rows]), [np.arange(len(rows))], sgd(0.1))
            models.append(own)
            weights.append(len(y) if batches else 0)
        model.load_state_dict(mean(models, weights))
    agree(state, fleet, model.state_dict())


@pytest.mark.parametrize(("execution", "model"), [("vectorised", "batch_norm"), ("fused", "linear")])
def test_every_execution_trains_on_the_same_samples(execution: str, model: str, federation: Federation) -> None:
    states = []
    for way, lanes in (("sequential", 1), (execution, 3)):
        compute = Compute(way, "fp64")  # type: ignore[arg-type]
        fleet = federation(clients((7, 4, 1, 9, 0, 7)), seeded(model).double(), None, 5, compute, lanes, Stretch())
        state = begin(seeded(model).double(), fleet, seed=4, rounds=2)
        for number in (1, 2):
            state = next_round(state, fedavg(Participation(), LOCAL), fleet, last=number == 2)
        states.append(state)
    assert differ(states[0].model, states[1].model) < 1e-9
    assert states[0].report and states[0].report.updates.report["samples"].tolist() == [7, 4, 1, 9, 0, 7]


def test_a_step_in_common_is_on_augmented_samples_too(federation: Federation) -> None:
    """With one client FedTAN's common statistics are its own, so it is FedAvg."""
    states = []
    for algorithm in (fedavg(Participation(), LOCAL), fedtan(Participation(), LOCAL)):
        fleet = federation(clients((11,)), perceptron(True).double(), compute=FP64, augment=Stretch())
        states.append(simulate(algorithm, fleet, perceptron(True).double(), 2))
    plain = simulate(fedavg(Participation(), LOCAL), federation(clients((11,)), module(), compute=FP64), module(), 2)
    assert differ(states[0].model, states[1].model) < 1e-9
    assert differ(states[0].model, plain.model) > 1e-3


def test_draws_are_uniform_and_of_the_key() -> None:
    batches = [np.arange(300), np.arange(200)]
    one, same, other = (Augmented.of(Stretch(), batches, key, torch.device("cpu")).draws for key in (5, 5, 6))
    assert one.shape == (500, 2) and torch.equal(one, same) and not torch.equal(one, other)
    assert one.min() >= 0 and one.max() < 1 and abs(one.mean() - 0.5) < 0.05
