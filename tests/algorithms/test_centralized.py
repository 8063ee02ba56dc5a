"""Centralised training against plain loops on all data together."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from algorithms import Compute, InputError, Local, Mix, Participation, Purpose, centralized, fedavg, generator
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import clients, perceptron
from tests.kit.rounds import SIZES, run, same, simulate

Federation = Callable[..., InlineFleet]
LOCALS = {
    "epochs": Local(lr=0.1, epochs=2, batch_size=4),
    "steps": Local(lr=0.1, steps=3, batch_size=10),
    "momentum": Local(lr=0.05, steps=1, batch_size=10, momentum=0.9, lr_decay=0.8),
    "adam": Local(lr=0.05, steps=1, batch_size=10, optimizer="adam", lr_decay=0.8),
    "nesterov": Local(lr=0.05, epochs=1, batch_size=10, momentum=0.9, nesterov=True, weight_decay=0.1),
}


@pytest.mark.parametrize("execution", ["sequential", "vectorised"])
@pytest.mark.parametrize("name", LOCALS)
def test_it_is_a_plain_loop_on_the_union_in_float64(
    name: str, execution: Literal["sequential", "vectorised"], federation: Federation
) -> None:
    local, data = LOCALS[name], clients(SIZES)
    # A bias before batch norm has no gradient but rounding errors of some 1e-18. Adam divides these by sqrt(v) + 1e-8,
    # which makes steps of up to lr * 1e-17 / 1e-8 = 5e-11 of them, different ones for each processor.
    algorithm, module = centralized(Participation(), local), perceptron(True, bias=False).double()
    fleet = federation(data, module, algorithm.sharing, compute=Compute(execution, precision="fp64"))
    state = simulate(algorithm, fleet, module, rounds=3)
    module = perceptron(True, bias=False).double()
    x, y = torch.cat([x for x, _ in data]).double(), torch.cat([y for _, y in data])
    settings = {"momentum": local.momentum, "nesterov": local.nesterov, "weight_decay": local.weight_decay}
    plain = torch.optim.SGD(module.parameters(), local.lr, **settings)
    optimiser = torch.optim.Adam(module.parameters(), local.lr) if local.optimizer == "adam" else plain
    for number in (1, 2, 3):
        optimiser.param_groups[0]["lr"] = local.rate(number)
        for rows in local.passes(len(y), generator(0, Purpose.BATCHES, number)):
            if len(rows) > 1:
                optimiser.zero_grad()
                cross_entropy(module(x[rows]), y[rows]).backward()
                optimiser.step()
    names = {"momentum_buffer": "momentum", "exp_avg": "first", "exp_avg_sq": "second"}
    slots = {
        f"{names[key]}/{name}": value
        for name, p in module.named_parameters()
        for key, value in optimiser.state[p].items()
        if key in names and value is not None
    }
    found = fleet.layouts.shared.unpack(state.model)
    assert found.pop("steps/taken", 3) == 3
    assert set(found) == set(module.state_dict()) | set(slots)
    for entry, value in (module.state_dict() | slots).items():
        np.testing.assert_allclose(found[entry], value.numpy(), rtol=1e-9, atol=1e-12, err_msg=entry)


def test_with_one_client_it_is_fedavg_with_maintained_momentum(federation: Federation) -> None:
    data, local = clients((23,)), LOCALS["momentum"]
    ours = run(federation, centralized(Participation(), local), data)
    assert same(ours.model, run(federation, fedavg(Participation(), local, maintained_momentum="global"), data).model)
    assert not same(ours.model, run(federation, centralized(Participation(), LOCALS["steps"]), data).model)


@pytest.mark.parametrize("refused", ["a single sample", "NaN"])
def test_batches_that_are_refused_are_passed_over_once(refused: str, federation: Federation) -> None:
    norm = refused == "a single sample"
    ((x, y),) = clients((5 if norm else 12,))
    if not norm:
        x[generator(0, Purpose.BATCHES, 0).permutation(12)[4]] = torch.nan  # in the second batch
    local = Local(lr=0.1, batches=1, batch_size=4, nonfinite="leave-out")
    reports = [
        run(federation, centralized(Participation(), local), [(x, y)], rounds, norm).report for rounds in (1, 2, 3)
    ]
    assert [int(report.updates.report["steps"][0]) for report in reports if report] == [1, 0, 1]


def test_a_round_is_one_update_of_nobody_and_sends_nothing(federation: Federation) -> None:
    report = run(federation, centralized(Participation(fraction=1.0), LOCALS["steps"]), clients(SIZES), rounds=2).report
    assert report is not None and (report.bytes_up, report.bytes_down, report.exchanges) == (0, 0, 0)
    rows = report.updates
    assert (rows.clients, rows.report["samples"], rows.report["steps"]) == (-1, sum(SIZES), 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: centralized(Participation(cohort=3), Local()),
            "algorithm.cohort = 3: must be left out for united data",
        ),
        (lambda: centralized(Participation(fraction=0.5), Local()), "algorithm.fraction = 0.5: must be 1"),
        (lambda: centralized(Participation(), Local(), Mix(0.5)), "server.rule = Mix"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
