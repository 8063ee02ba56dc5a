"""q-FedAvg against its Algorithm 2."""

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from algorithms import InputError, Local, Participation, fedavg, q_fedavg
from algorithms.qfedavg import LossPower
from raysim.fleet.inline import InlineFleet
from tests.kit.reference import DATA, agree, drawn, engine, mean, module, sgd, train

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.05, batch_size=4, epochs=2)
SOME = Participation(fraction=0.5)


@pytest.mark.parametrize("q", [0.3, 1.0, 3.0])
def test_q_fedavg_matches_algorithm_2(federation: Federation, q: float) -> None:
    state, fleet = engine(federation, q_fedavg(SOME, LOCAL, q=q), rounds=5)
    x, lipschitz = module(), 1 / LOCAL.lr
    for number in range(1, 6):
        models, powers, h, then = [], [], 0.0, {k: v.clone() for k, v in x.state_dict().items()}
        steps = {name: torch.zeros_like(p) for name, p in x.named_parameters()}
        for client in SOME.draw(np.arange(6), 0, number):
            inputs, labels = DATA[client][0].double(), DATA[client][1]
            with torch.no_grad():
                loss = cross_entropy(deepcopy(x).eval()(inputs), labels).item() + 1e-10
            y = deepcopy(x)
            train(y, DATA[client], drawn(LOCAL, DATA[client], number, int(client)), sgd(LOCAL.lr))
            moved = {name: lipschitz * (then[name] - p.detach()) for name, p in y.named_parameters()}
            square = sum(float(each.square().sum()) for each in moved.values())
            h += q * loss ** (q - 1) * square + lipschitz * loss**q
            steps = {name: steps[name] + loss**q * moved[name] for name in steps}
            models.append(y)
            powers.append(loss**q)
        x.load_state_dict({**mean(models, powers), **{name: then[name] - steps[name] / h for name in steps}})
    agree(state, fleet, x.state_dict())


def test_with_q_0_it_is_fedavg_with_equal_weights(federation: Federation) -> None:
    fair, _ = engine(federation, q_fedavg(SOME, LOCAL, q=0.0), rounds=4)
    plain, _ = engine(federation, fedavg(SOME, LOCAL, weighting="equal"), rounds=4)
    np.testing.assert_allclose(fair.model.floats, plain.model.floats, rtol=1e-12, atol=1e-14)


def test_a_weight_beyond_all_numbers_is_infinite_and_that_of_no_loss_is_positive() -> None:
    assert LossPower(0.5, LOCAL.lr)({"loss_received": 0.0}) == pytest.approx(1e-5)
    assert LossPower(15.0, LOCAL.lr)({"loss_received": 1e30}) == np.inf


@pytest.mark.parametrize(
    ("local", "q", "message"),
    [
        (LOCAL, -1.0, "algorithm.q = -1.0: must be a number >= 0"),
        (Local(lr_decay=0.9), 1.0, "local.lr_decay = 0.9: must be 1.0 for q-fedavg"),
        (Local(lr_schedule="linear"), 1.0, "local.lr_schedule = 'linear': must be 'constant' for q-fedavg"),
    ],
)
def test_values_that_make_no_sense_are_refused(local: Local, q: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        q_fedavg(SOME, local, q=q)
