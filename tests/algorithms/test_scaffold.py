"""SCAFFOLD against its Algorithm 1."""

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import torch

from algorithms import InputError, Local, Participation, choose, scaffold
from algorithms.options.own_selection import OwnSelection
from algorithms.parts.weighting import WeightingName
from raysim.fleet.inline import InlineFleet
from tests.kit.reference import DATA, Values, agree, drawn, engine, mean, module, train

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.05, batch_size=4, epochs=2)


@pytest.mark.parametrize(
    ("participation", "weighting"),
    [
        (Participation(fraction=0.5), "equal"),
        (Participation(fraction=0.4), "equal"),
        (Participation(cohort=4), "equal"),
        (Participation(cohort=4), "samples"),
    ],
)
def test_scaffold_matches_algorithm_1_with_option_2(
    federation: Federation, participation: Participation, weighting: WeightingName
) -> None:
    state, fleet = engine(federation, scaffold(participation, LOCAL, weighting=weighting), rounds=4)
    x = module()
    zero = {name: torch.zeros_like(p) for name, p in x.named_parameters()}
    c, controls = dict(zero), [dict(zero) for _ in DATA]
    for number in range(1, 5):
        cohort = participation.draw(np.arange(6), 0, number)
        models, changes = [], []
        for client in cohort:
            y, own = deepcopy(x), controls[client]

            @torch.no_grad()
            def corrected(model: torch.nn.Module, own: Values = own, common: Values = c) -> None:
                for name, p in model.named_parameters():
                    p.sub_(LOCAL.lr * (p.grad - own[name] + common[name]))

            batches = drawn(LOCAL, DATA[client], number, int(client))
            train(y, DATA[client], batches, corrected)
            then, now = dict(x.named_parameters()), dict(y.named_parameters())
            new = {k: own[k] - c[k] + (then[k] - now[k]).detach() / (len(batches) * LOCAL.lr) for k in own}
            changes.append({k: new[k] - own[k] for k in own})
            controls[client] = new
            models.append(y)
        shares = [len(DATA[client][1]) if weighting == "samples" else 1.0 for client in cohort]
        x.load_state_dict(mean(models, shares))
        scale = len(cohort) / (6 * sum(shares))  # m / K of the weighted mean
        c = {k: c[k] + scale * sum(w * change[k] for w, change in zip(shares, changes, strict=True)) for k in c}
    agree(state, fleet, {**x.state_dict(), **{f"common_control/{k}": value for k, value in c.items()}})
    location = state.personal.latest(int(cohort[0]), 4)
    assert location is not None
    personal = fleet.layouts.personal.unpack(fleet._worker.personal.read(location))
    for name, value in controls[cohort[0]].items():
        np.testing.assert_allclose(personal[f"control/{name}"], value.numpy(), rtol=1e-9, atol=1e-11)


def test_the_share_is_that_of_the_clients_that_a_rule_chose(federation: Federation) -> None:
    """c moves by |S| / K of the mean change, whatever number of clients was asked for."""

    def first(count: int) -> Participation:
        return Participation(fraction=0.5, by=OwnSelection("first", lambda context: context.clients[:count]))

    for count in (1, 2, 5):
        state, fleet = engine(federation, scaffold(first(count), LOCAL), rounds=1)
        shared = fleet.layouts.shared.unpack(state.model)
        chosen = [state.personal.latest(client, 1) for client in range(count)]
        controls = [fleet.layouts.personal.unpack(fleet._worker.personal.read(each)) for each in chosen if each]
        for name, _ in module().named_parameters():
            changes = sum(each[f"control/{name}"] for each in controls)
            np.testing.assert_allclose(shared[f"common_control/{name}"], changes / len(DATA), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("participation", "local", "message"),
    [
        (Participation(active=0.5), LOCAL, "algorithm.active = 0.5: must be 1.0 for scaffold"),
        (Participation(), Local(momentum=0.9), "local.momentum = 0.9: must be 0"),
    ],
)
def test_what_makes_no_sense_is_refused(participation: Participation, local: Local, message: str) -> None:
    with pytest.raises(InputError, match=message):
        scaffold(participation, local)


def test_an_unknown_weighting_is_refused() -> None:
    with pytest.raises(InputError, match=r'algorithm.weighting = \'size\': must be "samples" or "equal"'):
        scaffold(Participation(), LOCAL, weighting="size")  # type: ignore[arg-type]


def test_auto_may_stack_it() -> None:
    local = scaffold(Participation(), LOCAL).local
    assert choose(local, module(), torch.zeros(4, dtype=torch.float64), "cpu", 8).execution == "vectorised"
