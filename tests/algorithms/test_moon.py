"""MOON against its Algorithm 1."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear, normalize

from algorithms import Compute, InputError, Local, Participation, begin, choose, fedavg, moon, next_round
from algorithms.training.local import Execution
from algorithms.training.own_update import OwnUpdate
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import perceptron
from tests.kit.reference import DATA, FP64, agree, drawn, engine, mean, module

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.05, batch_size=4)
SOME = Participation(fraction=0.5)


def features(model: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """The input of the last layer, normalised by the batch's statistics, on a copy if nothing is to be tracked."""
    return model[:-1](x)


@pytest.mark.parametrize(("mu", "temperature"), [(1.0, 0.5), (5.0, 0.2)])
def test_moon_matches_algorithm_1(federation: Federation, mu: float, temperature: float) -> None:
    state, fleet = engine(federation, moon(SOME, LOCAL, mu=mu, temperature=temperature), rounds=4)
    x, previous = module(), {}
    contrasted = 0
    for number in range(1, 5):
        models, sizes = [], []
        for client in SOME.draw(np.arange(6), 0, number).tolist():
            y = deepcopy(x)
            inputs, labels = DATA[client][0].double(), DATA[client][1]
            for rows in drawn(LOCAL, DATA[client], number, client):
                loss = cross_entropy(y(inputs[rows]), labels[rows])
                if client in previous:
                    others = [deepcopy(model).train() for model in (x, previous[client])]
                    z = normalize(features(deepcopy_of(y), inputs[rows]), dim=1)
                    near, far = (
                        (z * normalize(features(model, inputs[rows]).detach(), dim=1)).sum(1) / temperature
                        for model in others
                    )
                    loss = loss - mu * (near.exp() / (near.exp() + far.exp())).log().mean()
                    contrasted += 1
                gradients = torch.autograd.grad(loss, list(y.parameters()))
                with torch.no_grad():
                    for p, g in zip(y.parameters(), gradients, strict=True):
                        p.sub_(LOCAL.lr * g)
            previous[client] = deepcopy(y)
            models.append(y)
            sizes.append(len(labels))
        x.load_state_dict(mean(models, sizes))
    assert contrasted
    agree(state, fleet, x.state_dict())
    for client, model in previous.items():
        location = state.personal.latest(client, 4)
        assert location is not None
        kept = fleet.layouts.personal.unpack(fleet._worker.personal.read(location))
        for name, p in model.named_parameters():
            np.testing.assert_allclose(kept[f"previous/{name}"], p.detach().numpy(), rtol=1e-9, atol=1e-11)


def deepcopy_of(model: nn.Sequential) -> nn.Sequential:
    """Parameters that autograd sees, with batch-norm statistics of its own."""
    memo = {id(p): p for p in model.parameters()}
    return deepcopy(model, memo)


def test_with_mu_0_it_is_fedavg(federation: Federation) -> None:
    without, _ = engine(federation, moon(SOME, LOCAL, mu=0.0), rounds=3)
    plain, _ = engine(federation, fedavg(SOME, LOCAL), rounds=3)
    np.testing.assert_allclose(without.model.floats, plain.model.floats, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("execution", ["sequential", "vectorised"])
def test_a_first_update_has_no_contrast_whatever_zero_weights_do(execution: Execution, federation: Federation) -> None:
    class Normed(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return linear(x, self.weight / self.weight.norm(), self.bias)  # 0 / 0 without weights

    model = nn.Sequential(Normed(4, 4), *perceptron()).double()
    compute, found = Compute(execution, "fp64"), list[np.ndarray]()
    for algorithm in (moon(Participation(), LOCAL, mu=5.0), fedavg(Participation(), LOCAL)):
        fleet = federation(DATA, deepcopy(model), algorithm.sharing, compute=compute)
        found.append(next_round(begin(model, fleet, 0), algorithm.computed(compute), fleet).model.floats)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12, atol=1e-14)


def test_only_the_shared_model_is_sent(federation: Federation) -> None:
    algorithm = moon(SOME, LOCAL)
    fleet = federation(DATA, module(), algorithm.sharing, compute=FP64)
    state = next_round(begin(module(), fleet, 0), algorithm.computed(FP64), fleet)
    whole = fleet.layouts.shared.nbytes
    assert state.report is not None and (state.report.bytes_up, state.report.bytes_down) == (3 * whole, 3 * whole)


def test_dropout_drops_the_same_units_in_every_execution(federation: Federation) -> None:
    def made() -> nn.Sequential:
        plain = perceptron().double()
        return nn.Sequential(*plain[:2], nn.Dropout(0.5), plain[2])

    found = []
    for way in ("sequential", "vectorised"):
        compute, algorithm = Compute(way, "fp64"), moon(Participation(), LOCAL, mu=5.0)  # type: ignore[arg-type]
        fleet = federation(DATA, made(), algorithm.sharing, 3, compute, 3)
        state = begin(made(), fleet, 0)
        for _ in range(2):
            state = next_round(state, algorithm.computed(compute), fleet)
        found.append(state.model.floats)
        assert not any(layer._forward_pre_hooks for layer in fleet._worker.resident.module.modules())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9, atol=1e-11)


def test_auto_needs_autograd() -> None:
    local = moon(SOME, LOCAL).local
    assert choose(local, perceptron(), torch.zeros(4), "cpu", 8).execution == "vectorised"
    with pytest.raises(InputError, match="must be sequential or vectorised"):
        choose(replace(local, compute=Compute("fused")), perceptron(), torch.zeros(4), "cpu", 8)


class Alone(nn.Module):
    """A model without a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.w


class Uncalled(nn.Linear):
    """A model with a head whose weights it reads."""

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) @ self.head.weight[:, :3]


@pytest.mark.parametrize("model", [Alone(), Uncalled()])
def test_a_model_without_a_head_that_it_calls_is_refused(model: nn.Module) -> None:
    with pytest.raises(InputError, match="does not call its head as a layer"):
        moon(SOME, LOCAL).check_model(model, torch.zeros(4))
    moon(SOME, LOCAL).check_model(perceptron(True), torch.zeros(4))
    untracked = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, track_running_stats=False), nn.Linear(6, 3))
    moon(SOME, LOCAL).check_model(untracked, torch.zeros(4))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: moon(SOME, LOCAL, mu=-1.0), "algorithm.mu = -1.0: must be a number >= 0"),
        (lambda: moon(SOME, LOCAL, temperature=0.0), "algorithm.temperature = 0.0: must be a number > 0"),
        (lambda: moon(SOME, Local(compute=Compute(compile=True))), "local.compile = True: must be false for moon"),
        (lambda: moon(SOME, Local(update=OwnUpdate("mine:train", lambda *_: {}))), "local.update = 'mine:train'"),
    ],
)
def test_values_that_make_no_sense_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
