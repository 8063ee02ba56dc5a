"""FedAvg, FedProx and the algorithms that differ by what stays with the clients, against plain loops in float64."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import Algorithm, Local, Participation, fedavg, fedbn, fedprox, silobn, singleset
from raysim.fleet.inline import InlineFleet
from tests.kit.reference import DATA, Values, agree, drawn, engine, mean, module, train

Federation = Callable[..., InlineFleet]
HALF = Participation(fraction=0.5)
LOCAL = Local(lr=0.1, batch_size=4)
AFFINE = ("1.weight", "1.bias")
STATISTICS = ("1.running_mean", "1.running_var", "1.num_batches_tracked")
ALL = tuple(module().state_dict())


@dataclass(frozen=True)
class Plain:
    """What the reference has to know of an algorithm."""

    algorithm: Algorithm
    personal: tuple[str, ...] = ()
    by_samples: bool = False
    mu: float = 0.0


CASES = {
    "fedavg": Plain(fedavg(HALF, LOCAL), by_samples=True),
    "fedavg equally": Plain(fedavg(HALF, LOCAL, weighting="equal")),
    "fedprox": Plain(fedprox(HALF, LOCAL, proximal=0.4), by_samples=True, mu=0.4),
    "fedprox equally": Plain(fedprox(HALF, LOCAL, weighting="equal", proximal=0.4), mu=0.4),
    "fedbn": Plain(fedbn(HALF, LOCAL), AFFINE + STATISTICS),
    "fedbn by samples": Plain(fedbn(HALF, LOCAL, weighting="samples"), AFFINE + STATISTICS, by_samples=True),
    "silobn": Plain(silobn(HALF, LOCAL), STATISTICS),
    "singleset": Plain(singleset(HALF, LOCAL), ALL),
}


def near(received: Values, mu: float) -> Callable[[nn.Module], None]:
    @torch.no_grad()
    def step(model: nn.Module) -> None:
        for name, p in model.named_parameters():
            p.sub_(LOCAL.lr * (p.grad + mu * (p - received[name])))

    return step


@pytest.mark.parametrize("name", CASES)
def test_the_engine_does_what_a_plain_loop_does(name: str, federation: Federation) -> None:
    plain = CASES[name]
    state, fleet = engine(federation, plain.algorithm, rounds=4)
    model, personal = module(), [deepcopy(module().state_dict()) for _ in DATA]
    for number in range(1, 5):
        cohort = [int(client) for client in HALF.draw(np.arange(6), 0, number)]
        models = [deepcopy(model) for _ in cohort]
        for w, client in zip(models, cohort, strict=True):
            w.load_state_dict({**w.state_dict(), **{key: personal[client][key] for key in plain.personal}})
            received = {key: value.clone() for key, value in w.state_dict().items()}
            train(w, DATA[client], drawn(LOCAL, DATA[client], number, client), near(received, plain.mu))
            personal[client] = {key: value.clone() for key, value in w.state_dict().items()}
        aggregated = mean(models, [len(DATA[client][1]) if plain.by_samples else 1.0 for client in cohort])
        model.load_state_dict(
            {**model.state_dict(), **{k: v for k, v in aggregated.items() if k not in plain.personal}}
        )
    agree(state, fleet, {key: value for key, value in model.state_dict().items() if key not in plain.personal})
    for client in range(6) if plain.personal else ():
        location = state.personal.latest(client, 4)
        assert location is not None
        found = fleet.layouts.personal.unpack(fleet._worker.personal.read(location))
        assert set(found) == set(plain.personal)
        for key, value in found.items():
            np.testing.assert_allclose(value, personal[client][key].numpy(), rtol=1e-9, atol=1e-11, err_msg=key)
