"""FedTAN: centralised training where it must be, and the exchanges of its paper by hand."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from algorithms import (
    Compute,
    InputError,
    Layout,
    Local,
    Packed,
    Participation,
    Purpose,
    State,
    begin,
    centralized,
    fedtan,
    generator,
    next_round,
)
from algorithms.fedprox import Proximal
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import Samples, clients, perceptron
from tests.kit.rounds import SIZES, simulate

Federation = Callable[..., InlineFleet]
HALF = Participation(fraction=0.5)
LOCAL = Local(lr=0.1, batch_size=4)
FP64 = Compute("sequential", precision="fp64")


def deep() -> nn.Sequential:
    """Two batch-norm layers, so that the second one's statistics depend on the first one's."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first = (nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU())
        return nn.Sequential(*first, nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).double()


def convolution() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        convolution = (nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3, momentum=None), nn.ReLU(), nn.Flatten())
        return nn.Sequential(nn.Unflatten(1, (1, 2, 2)), *convolution, nn.Linear(12, 3)).double()


def equal(a: Packed, b: Packed) -> None:
    np.testing.assert_allclose(a.floats, b.floats, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(a.integers, b.integers)


@pytest.mark.parametrize("make", [deep, convolution])
def test_one_step_of_equal_batches_is_central_training(make: Callable[[], nn.Module], federation: Federation) -> None:
    data, local = clients((7, 7, 7)), Local(lr=0.3, steps=1, batch_size="full", weight_decay=0.01)
    states: list[State] = []
    for function in (fedtan, centralized):
        algorithm = function(Participation(), local)
        states.append(simulate(algorithm, federation(data, make(), algorithm.sharing, compute=FP64), make(), rounds=4))
    equal(states[0].model, states[1].model)


def protocol(module: nn.Sequential, batches: list[Samples]) -> list[dict[str, torch.Tensor]]:
    """Each client's gradient, by the exchanges of the paper: forward and back through the layers in step, by hand."""
    m = len(batches)
    h, personal = [x.double() for x, _ in batches], []
    for layer in module:
        if isinstance(layer, nn.BatchNorm1d):
            mu = sum(each.mean(0) for each in h) / m
            var = sum(((each - mu) ** 2).mean(0) for each in h) / m
            count = sum(len(each) for each in h)
            with torch.no_grad():
                layer.running_mean += 0.1 * (mu - layer.running_mean)
                layer.running_var += 0.1 * (var * count / (count - 1) - layer.running_var)
                layer.num_batches_tracked += 1
            personal.append((h, mu, (var + layer.eps).sqrt()))
            h = [(each - mu) / (var + layer.eps).sqrt() * layer.weight + layer.bias for each in h]
        else:
            personal.append((h, None, None))
            h = [layer(each) for each in h]
    delta = []
    for logits, (_, y) in zip(h, batches, strict=True):
        delta.append((logits.softmax(1) - nn.functional.one_hot(y, 3)) / len(y))
    gradients: list[dict[str, torch.Tensor]] = [{} for _ in batches]
    for i in reversed(range(len(module))):
        layer, (h, mu, sigma) = module[i], personal[i]
        if isinstance(layer, nn.Linear):
            for g, d, each in zip(gradients, delta, h, strict=True):
                g[f"{i}.weight"], g[f"{i}.bias"] = d.T @ each, d.sum(0)
            delta = [d @ layer.weight for d in delta]
        elif isinstance(layer, nn.ReLU):
            delta = [d * (each > 0) for d, each in zip(delta, h, strict=True)]
        else:
            for g, d, each in zip(gradients, delta, h, strict=True):
                g[f"{i}.weight"], g[f"{i}.bias"] = (d * (each - mu) / sigma).sum(0), d.sum(0)
            delta = [d * layer.weight for d in delta]
            by_mu = sum(-(d / sigma).sum(0) for d in delta) / m
            by_var = sum((d * (each - mu)).sum(0) * -0.5 / sigma**3 for d, each in zip(delta, h, strict=True)) / m
            delta = [
                d / sigma + by_mu / len(each) + by_var * 2 * (each - mu) / len(each)
                for d, each in zip(delta, h, strict=True)
            ]
    return gradients


def reference(data: list[Samples], rounds: int, local: Local) -> nn.Module:
    """FedTAN as one would write it."""
    module = deep()
    for number in range(1, rounds + 1):
        plans = []
        for client in HALF.draw(np.arange(len(data)), 0, number):
            x, y = data[int(client)]
            rng = generator(0, Purpose.BATCHES, number, int(client))
            batches = [(x[rows].double(), y[rows]) for rows in local.passes(len(y), rng) if len(rows) > 1]
            plans += [batches] if batches else []
        with torch.no_grad():
            gradients = protocol(module, [batches[0] for batches in plans])
        models = []
        for gradient, batches in zip(gradients, plans, strict=True):
            model = deepcopy(module)
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    parameter -= local.lr * gradient[name]  # noqa: PLW2901
            optimiser = torch.optim.SGD(model.parameters(), local.lr)
            for x, y in batches[1:]:
                optimiser.zero_grad()
                cross_entropy(model(x), y).backward()
                optimiser.step()
            models.append(model.state_dict())
        module.load_state_dict(
            {
                name: sum(each[name] for each in models) / len(models)
                if value.is_floating_point()
                else max(each[name] for each in models)
                for name, value in module.state_dict().items()
            }
        )
    return module


def test_it_matches_its_paper_in_float64(federation: Federation) -> None:
    data, algorithm = clients(SIZES), fedtan(HALF, LOCAL)
    fleet = federation(data, deep(), algorithm.sharing, compute=FP64)
    state = simulate(algorithm, fleet, deep(), rounds=5)
    expected = reference(data, 5, LOCAL).state_dict()
    for entry, value in fleet.layouts.shared.unpack(state.model).items():
        np.testing.assert_allclose(value, expected[entry].numpy(), rtol=1e-9, atol=1e-11, err_msg=entry)


@pytest.mark.parametrize("block", [1, 3])
def test_blocks_do_not_change_what_clients_have_in_common(block: int, federation: Federation) -> None:
    data, algorithm = clients((9, 5, 14)), fedtan(Participation(), LOCAL)
    states = [
        simulate(algorithm, federation(data, deep(), algorithm.sharing, size, FP64), deep(), rounds=2)
        for size in (block, 2)
    ]
    equal(states[0].model, states[1].model)


def test_the_exchanges_and_their_bytes(federation: Federation) -> None:
    algorithm = fedtan(Participation(), LOCAL)
    fleet = federation(clients((9, 5, 0)), deep(), algorithm.sharing, compute=FP64)
    report = next_round(begin(deep(), fleet, 0), algorithm, fleet).report
    assert report is not None and report.exchanges == 3 * 2 + 1
    statistics = 8 * 4 * (6 + 5)  # of two layers the mean, the variance, and the derivatives by both
    model = fleet.layouts.shared.nbytes
    assert report.bytes_up == report.bytes_down == 3 * model + 2 * statistics


def test_who_is_left_out_afterwards_has_exchanged_all_the_same(federation: Federation) -> None:
    reports = []
    for factor in (1.0, torch.nan):
        algorithm = fedtan(Participation(), replace(LOCAL, nonfinite="leave-out"))
        fleet = federation([(x * factor, y) for x, y in clients((9, 5))], deep(), algorithm.sharing, compute=FP64)
        reports.append(next_round(begin(deep(), fleet, 0), algorithm, fleet).report)
    whole, broken = reports
    assert whole is not None and broken is not None and not broken.updates.finite.any()
    assert broken.bytes_up == whole.bytes_up and broken.exchanges == whole.exchanges


def test_the_loss_is_that_of_all_batches(federation: Federation) -> None:
    data = clients((10,))
    algorithm = fedtan(Participation(), LOCAL)
    fleet = federation(data, deep(), algorithm.sharing, compute=FP64)
    report = next_round(begin(deep(), fleet, 0), algorithm, fleet).report
    assert report is not None
    # Alone, what a client has in common with the others is its own.
    module, (x, y), losses = deep(), data[0], []
    for rows in LOCAL.passes(10, generator(0, Purpose.BATCHES, 1, 0)):
        loss = cross_entropy(module(x[rows].double()), y[rows])
        losses += [loss.item()] * len(rows)
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(module.parameters(), gradients, strict=True):
                parameter.sub_(0.1 * gradient)
    assert report.updates.report["loss"][0] == pytest.approx(np.mean(losses), rel=1e-9)


def test_nobody_has_samples(federation: Federation) -> None:
    algorithm = fedtan(Participation(), LOCAL)
    fleet = federation(clients((0, 1)), deep(), algorithm.sharing, compute=FP64)
    state = simulate(algorithm, fleet, deep(), rounds=2)
    equal(state.model, fleet.layouts.shared.pack(deep().state_dict()))


class Uncalled(nn.Module):
    """A model with a batch-norm layer that no pass calls."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = perceptron(), nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def test_a_model_that_calls_no_batch_norm_is_refused(federation: Federation) -> None:
    algorithm = fedtan(Participation(), Local())
    fleet = federation(clients((5, 4)), Uncalled())
    with pytest.raises(InputError, match="a model that does not call its batch-norm layers: must call one") as error:
        next_round(begin(Uncalled(), fleet, 0), algorithm, fleet)
    assert "\n" not in str(error.value)


def test_a_model_without_batch_norm_or_with_dropout_is_refused(federation: Federation) -> None:
    algorithm = fedtan(Participation(), LOCAL)
    with pytest.raises(InputError, match="the model has no batch-norm layer"):
        algorithm.divide(Layout.of(perceptron()))
    dropping = nn.Sequential(perceptron(True), nn.Dropout(0.5))
    with pytest.raises(InputError, match="'fedtan' on a model with dropout"):
        algorithm.check_model(dropping, torch.zeros(4))
    algorithm.check_model(perceptron(True), torch.zeros(4))
    fleet = federation(clients((9, 5)), dropping, algorithm.sharing)
    with pytest.raises(InputError, match="'fedtan' on a model with dropout"):
        next_round(begin(dropping, fleet, 0), algorithm, fleet)


@pytest.mark.parametrize(
    ("local", "message"),
    [
        (replace(LOCAL, momentum=0.9), "local.momentum = 0.9: must be 0.0 for fedtan"),
        (replace(LOCAL, method=Proximal(0.1)), r"local.method = Proximal\(mu=0.1, .*\): must be Method\(\) for fedtan"),
        (replace(LOCAL, statistics="frozen"), "local.statistics = 'frozen': must be 'batch' for fedtan"),
        (replace(LOCAL, compute=Compute(precision="bf16")), "local.precision = 'bf16': must be fp32 or fp64"),
    ],
)
def test_what_makes_no_sense_is_refused(local: Local, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fedtan(Participation(), local)
