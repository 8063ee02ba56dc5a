"""FedDyn against its Algorithm 1."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import Assign, InputError, Local, Mix, Participation, State, feddyn
from raysim.fleet.inline import InlineFleet
from tests.kit.reference import DATA, Values, agree, drawn, engine, mean, module, sgd, train

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.05, batch_size=4, epochs=2)
SOME = Participation(fraction=0.5)


def duals(state: State, fleet: InlineFleet, client: int) -> Values:
    """A client's h_k; zeros if it has not trained."""
    layout, location = fleet.layouts.personal, state.personal.latest(client, state.round)
    packed = state.initial if location is None else fleet._worker.personal.read(location)
    return {name.removeprefix("dual/"): torch.from_numpy(np.array(v)) for name, v in layout.unpack(packed).items()}


@pytest.mark.parametrize("local", [LOCAL, replace(LOCAL, momentum=0.5, weight_decay=0.01)])
def test_feddyn_matches_algorithm_1(federation: Federation, local: Local) -> None:
    alpha = 0.2
    state, fleet = engine(federation, feddyn(SOME, local, alpha=alpha), rounds=6)
    x = module()
    zero = {name: torch.zeros_like(p) for name, p in x.named_parameters()}
    h, own = dict(zero), [dict(zero) for _ in DATA]
    for number in range(1, 7):
        models, then = [], dict(x.named_parameters())
        for client in SOME.draw(np.arange(6), 0, number):
            y, u = deepcopy(x), dict(zero)

            @torch.no_grad()
            def step(model: nn.Module, u: Values = u, own: Values = own[client], then: Values = then) -> None:
                for name, p in model.named_parameters():
                    g = p.grad - own[name] + alpha * (p - then[name]) + local.weight_decay * p
                    u[name] = local.momentum * u[name] + g
                    p.sub_(local.lr * u[name])

            train(y, DATA[client], drawn(local, DATA[client], number, int(client)), step)
            changes = {name: (p - then[name]).detach() for name, p in y.named_parameters()}
            own[client] = {name: own[client][name] - alpha * changes[name] for name in changes}
            h = {name: h[name] - alpha / 6 * changes[name] for name in changes}
            models.append(y)
        averaged = mean(models, [1.0] * len(models))
        x.load_state_dict({**averaged, **{name: averaged[name] - h[name] / alpha for name in h}})
    agree(state, fleet, x.state_dict())
    for client, expected in enumerate(own):
        for name, value in duals(state, fleet, client).items():
            np.testing.assert_allclose(value.numpy(), expected[name].numpy(), rtol=1e-9, atol=1e-11)


def test_the_servers_h_is_the_mean_of_the_clients(federation: Federation) -> None:
    alpha = 0.05
    state, fleet = engine(federation, feddyn(SOME, LOCAL, alpha=alpha), rounds=5)
    own = [duals(state, fleet, client) for client in range(6)]
    for entry, place in fleet.layouts.shared.places():
        if entry.is_parameter:
            h = -alpha * state.of("server")["v"][place].reshape(entry.shape)
            np.testing.assert_allclose(h, sum(each[entry.name] for each in own) / 6, rtol=1e-9, atol=1e-12)


def test_as_alpha_falls_to_0_it_is_fedavg_that_adds_all_changes_so_far(federation: Federation) -> None:
    state, fleet = engine(federation, feddyn(SOME, LOCAL, alpha=1e-13), rounds=4)
    x = module()
    v = {name: torch.zeros_like(p) for name, p in x.named_parameters()}
    for number in range(1, 5):
        models = []
        for client in SOME.draw(np.arange(6), 0, number):
            models.append(deepcopy(x))
            train(models[-1], DATA[client], drawn(LOCAL, DATA[client], number, int(client)), sgd(LOCAL.lr))
        averaged, then = mean(models, [1.0] * len(models)), x.state_dict()
        v = {name: v[name] + len(models) / 6 * (averaged[name] - then[name]) for name in v}
        x.load_state_dict({**averaged, **{name: averaged[name] + v[name] for name in v}})
    agree(state, fleet, x.state_dict())


@pytest.mark.parametrize(
    ("alpha", "server", "message"),
    [
        (0.0, Assign(), "algorithm.alpha = 0.0: must be a float32 number > 0"),
        (1e39, Assign(), r"algorithm.alpha = 1e\+39: must be a float32 number > 0"),
        (0.1, Mix(0.5), "server.rule = Mix.*: must be 'assign' for feddyn"),
    ],
)
def test_values_that_make_no_sense_are_refused(alpha: float, server: Assign | Mix, message: str) -> None:
    with pytest.raises(InputError, match=message):
        feddyn(SOME, LOCAL, server, alpha=alpha)
