"""FedAvgM against Hsu et al., section 4.3."""

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import torch

from algorithms import Assign, InputError, Local, Momentum, Participation, fedavg, fedavgm
from algorithms.parts.weighting import WeightingName
from raysim.fleet.inline import InlineFleet
from tests.kit.reference import DATA, agree, drawn, engine, mean, module, sgd, train

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.05, batch_size=4)
SOME = Participation(fraction=0.5)


@pytest.mark.parametrize("weighting", ["samples", "equal"])
def test_fedavgm_matches_its_paper(federation: Federation, weighting: WeightingName) -> None:
    server = Momentum(lr=0.7, beta=0.8)
    state, fleet = engine(federation, fedavgm(SOME, LOCAL, server, weighting=weighting), rounds=5)
    x = module()
    v = {name: torch.zeros_like(p) for name, p in x.named_parameters()}
    for number in range(1, 6):
        models, shares = [], []
        for client in SOME.draw(np.arange(6), 0, number):
            models.append(deepcopy(x))
            shares.append(len(DATA[client][1]) if weighting == "samples" else 1.0)
            train(models[-1], DATA[client], drawn(LOCAL, DATA[client], number, int(client)), sgd(LOCAL.lr))
        then = dict(x.named_parameters())
        averaged = mean(models, shares)
        v = {name: 0.8 * v[name] + averaged[name] - then[name].detach() for name in v}
        x.load_state_dict({**averaged, **{name: then[name] + 0.7 * v[name] for name in v}})
    agree(state, fleet, x.state_dict())


def test_without_momentum_it_is_fedavg(federation: Federation) -> None:
    without, _ = engine(federation, fedavgm(SOME, LOCAL, Momentum(lr=1.0, beta=0.0)), rounds=4)
    plain, _ = engine(federation, fedavg(SOME, LOCAL), rounds=4)
    np.testing.assert_allclose(without.model.floats, plain.model.floats, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fedavgm(SOME, LOCAL, Assign()), "server.rule = Assign.*: must be 'momentum' for fedavgm"),
        (lambda: Momentum(lr=0), "server.lr = 0: must be a number > 0"),
        (lambda: Momentum(beta=1.0), r"server.beta = 1.0: must be in \[0, 1\)"),
    ],
)
def test_values_out_of_range_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
