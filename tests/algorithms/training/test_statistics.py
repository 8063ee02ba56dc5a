"""Statistics from a pass over data: exact numbers, HeteroFL's static batch norm, and what it is refused for."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import (
    Compute,
    InputError,
    Layout,
    Local,
    Participation,
    Purpose,
    aggregated_model,
    begin,
    current_model,
    fedavg,
    fixbn,
    generator,
    next_round,
    silobn,
    static_bn,
)
from algorithms.core.chunks import CHUNK
from algorithms.parts.algorithm import phases
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import Samples, clients, perceptron
from tests.kit.rounds import SIZES, run, same, simulate

Federation = Callable[..., InlineFleet]
HALF = Participation(fraction=0.5)
LOCAL = Local(lr=0.1, batch_size=4)
FP64 = Compute("sequential", precision="fp64")


def column(*values: float) -> Samples:
    """Samples whose four inputs are all one value."""
    return torch.tensor(values).unsqueeze(1).expand(-1, 4).contiguous(), torch.zeros(len(values), dtype=torch.int64)


def normed() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))


def test_statistics_by_hand(federation: Federation) -> None:
    # Means 2 and 5, variances over n - 1: 2 and 9; three samples weigh more than two, and one alone has no variance.
    data, algorithm = [column(1, 3), column(2, 5, 8), column(100), column()], static_bn(Participation(), LOCAL)
    fleet = federation(data, normed(), algorithm.sharing)
    state = next_round(begin(normed(), fleet, 0), algorithm, fleet)
    found = fleet.layouts.shared.unpack(current_model(state, algorithm, fleet))
    np.testing.assert_allclose(found["0.running_mean"], [(2 * 2 + 3 * 5) / 5] * 4, rtol=1e-6)
    np.testing.assert_allclose(found["0.running_var"], [(2 * 2 + 3 * 9) / 5] * 4, rtol=1e-6)
    assert found["0.num_batches_tracked"] == 1
    # What travels holds no statistics but the first ones.
    left = fleet.layouts.shared.unpack(aggregated_model(state, algorithm, fleet))
    assert not left["0.running_mean"].any() and (left["0.running_var"] == 1).all()
    np.testing.assert_array_equal(found["1.weight"], left["1.weight"])


def test_a_chunk_is_a_batch(federation: Federation) -> None:
    many = column(*([0.0] * CHUNK), *([4.0] * 512), 9.0)
    rest = torch.tensor([4.0] * 512 + [9.0])
    algorithm = static_bn(Participation(), replace(LOCAL, batch_size="full"))
    fleet = federation([many], normed(), algorithm.sharing)
    state = next_round(begin(normed(), fleet, 0), algorithm, fleet)
    found = fleet.layouts.shared.unpack(current_model(state, algorithm, fleet))
    np.testing.assert_allclose(found["0.running_mean"], [rest.sum() / (CHUNK + 513)] * 4, rtol=1e-6)
    np.testing.assert_allclose(found["0.running_var"], [rest.var() * 513 / (CHUNK + 513)] * 4, rtol=1e-5)
    assert found["0.num_batches_tracked"] == 1  # each chunk is the layer's first batch


def reference(data: list[Samples], rounds: int) -> nn.Module:
    """Static batch norm as one would write it: nothing is tracked in training; then all clients are asked."""
    module = perceptron(True).double()
    norm = module[1]
    norm.track_running_stats = False
    for number in range(1, rounds + 1):
        models, sizes = [], []
        for client in HALF.draw(np.arange(len(data)), 0, number):
            model, (x, y) = deepcopy(module), data[int(client)]
            optimiser = torch.optim.SGD(model.parameters(), LOCAL.lr)
            rows_of = [
                rows
                for rows in LOCAL.passes(len(y), generator(0, Purpose.BATCHES, number, int(client)))
                if len(rows) > 1
            ]
            for rows in rows_of:
                optimiser.zero_grad()
                batch = model[0](x[rows].double())
                batch = (batch - batch.mean(0)) / (batch.var(0, correction=0) + norm.eps).sqrt()
                logits = model[3](torch.relu(batch * model[1].weight + model[1].bias))
                torch.nn.functional.cross_entropy(logits, y[rows]).backward()
                optimiser.step()
            if rows_of:
                models.append(dict(model.named_parameters()))
                sizes.append(len(y))
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.copy_(sum(n * m[name] for n, m in zip(sizes, models, strict=True)) / sum(sizes))
    asked = [(len(y), module[0](x.double()).detach()) for x, y in data if len(y) > 1]
    total = sum(n for n, _ in asked)
    norm.running_mean.copy_(sum(n * h.mean(0) for n, h in asked) / total)
    norm.running_var.copy_(sum(n * h.var(0) for n, h in asked) / total)
    return module


def test_static_bn_matches_its_description_in_float64(federation: Federation) -> None:
    data, algorithm = clients(SIZES), static_bn(HALF, LOCAL)
    module = perceptron(True).double()
    fleet = federation(data, module, algorithm.sharing, compute=FP64)
    state = simulate(algorithm, fleet, module, rounds=5)
    found = fleet.layouts.shared.unpack(current_model(state, algorithm, fleet))
    expected = reference(data, rounds=5).state_dict()
    for name, value in found.items():
        if name != "1.num_batches_tracked":
            np.testing.assert_allclose(value, expected[name].numpy(), rtol=1e-9, atol=1e-11, err_msg=name)


def test_the_pass_does_not_touch_the_run_nor_depend_on_dropout(federation: Federation) -> None:
    def dropping() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 3))

    algorithm = static_bn(Participation(), LOCAL)
    models = []
    for looks in (0, 2):
        fleet = federation([column(1, 3), column(2, 5, 8)], dropping(), algorithm.sharing)
        state = begin(dropping(), fleet, 0)
        for _ in range(3):
            state = next_round(state, algorithm, fleet)
            for _ in range(looks):
                found = fleet.layouts.shared.unpack(current_model(state, algorithm, fleet))
                np.testing.assert_allclose(found["1.running_mean"], [3.8] * 4, rtol=1e-6)
        models.append(state.model)
    assert same(*models)


def test_the_initial_model_is_as_it_was_made(federation: Federation) -> None:
    algorithm = static_bn(HALF, LOCAL)
    fleet = federation(clients(SIZES), perceptron(True), algorithm.sharing)
    state = begin(perceptron(True), fleet, 0)
    assert same(current_model(state, algorithm, fleet), state.model)


def test_protocol_bytes_leave_the_statistics_out(federation: Federation) -> None:
    state = run(federation, static_bn(HALF, LOCAL), clients(SIZES), rounds=1)
    assert state.report is not None
    parameters = 4 * (4 * 6 + 6 + 6 + 6 + 6 * 3 + 3)
    assert (state.report.bytes_up, state.report.bytes_down) == (3 * parameters, 3 * parameters)


@pytest.mark.parametrize("algorithm", [static_bn(HALF, LOCAL), fixbn(HALF, LOCAL)])
def test_a_model_without_batch_norm_is_refused(algorithm: object) -> None:
    with pytest.raises(InputError, match="about batch-norm statistics, but the model has no batch-norm layer"):
        algorithm.divide(Layout.of(perceptron()))  # type: ignore[attr-defined]
    assert algorithm.divide(Layout.of(perceptron(True))).personal.entries == ()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: silobn(HALF, replace(LOCAL, statistics="untracked")),
            'untracked.* with sharing.statistics = "personal"',
        ),
        (
            lambda: phases(static_bn(HALF, LOCAL), (2, fedavg(HALF, replace(LOCAL, statistics="frozen")))),
            "untracked.* with a later phase that freezes them",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
