"""FedPer, LG-FedAvg, FedRep and FedBABU against plain loops, and the identities between them."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import (
    Algorithm,
    Augmented,
    InputError,
    Layout,
    Local,
    Mix,
    Participation,
    Work,
    fedavg,
    fedbabu,
    fedper,
    fedrep,
    freeze,
    lg_fedavg,
    singleset,
)
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import perceptron
from tests.kit.reference import DATA, Values, drawn, engine, mean, module
from tests.kit.rounds import same

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.05, batch_size=4, momentum=0.5)
SOME = Participation(fraction=0.5)
ROUNDS = 3
HEAD = ("3.weight", "3.bias")
CASES = {
    "fedper": (fedper(SOME, LOCAL), 0, HEAD, "samples"),
    "fedper, two parts": (fedper(SOME, LOCAL, personal=("head", "0")), 0, (*HEAD, "0.weight", "0.bias"), "samples"),
    "lg-fedavg": (lg_fedavg(SOME, LOCAL), 0, None, "samples"),
    "fedrep": (fedrep(SOME, LOCAL, head_epochs=2), 2, HEAD, "equal"),
    "fedbabu": (fedbabu(SOME, LOCAL), 0, HEAD, "samples"),
}


def train(model: nn.Module, batches: list[np.ndarray], client: int, only: Callable[[str], bool]) -> None:
    """Train some parameters by torch's own SGD; batch norm tracks its statistics in any case."""
    optimiser = torch.optim.SGD([p for n, p in model.named_parameters() if only(n)], LOCAL.lr, LOCAL.momentum)
    for rows in batches:
        model.zero_grad()
        nn.functional.cross_entropy(model(DATA[client][0].double()[rows]), DATA[client][1][rows]).backward()
        optimiser.step()


@pytest.mark.parametrize("name", CASES)
def test_the_method_matches_a_plain_loop(name: str, federation: Federation) -> None:
    algorithm, head_epochs, parts, weighting = CASES[name]
    state, fleet = engine(federation, algorithm, ROUNDS)
    shared = module()
    kept = [n for n in shared.state_dict() if (n not in HEAD if parts is None else n in parts)]
    own: list[Values] = [{n: shared.state_dict()[n].clone() for n in kept} for _ in DATA]
    for number in range(1, ROUNDS + 1):
        cohort, models = SOME.draw(np.arange(6), 0, number), []
        for client in cohort.tolist():
            model = deepcopy(shared)
            model.load_state_dict({**shared.state_dict(), **own[client]})
            model.train()
            batches = drawn(replace(LOCAL, epochs=1 + head_epochs), DATA[client], number, client)
            cut = len(batches) * head_epochs // (1 + head_epochs)
            if head_epochs:
                train(model, batches[:cut], client, lambda n: n in HEAD)
            body_alone = name in ("fedrep", "fedbabu")
            train(model, batches[cut:], client, lambda n, body=body_alone: not body or n not in HEAD)
            own[client] = {n: model.state_dict()[n].clone() for n in kept}
            models.append(model)
        shared.load_state_dict(mean(models, [len(DATA[c][1]) if weighting == "samples" else 1 for c in cohort]))
    found = fleet.layouts.shared.unpack(state.model)
    assert sorted([*found, *kept]) == sorted(shared.state_dict())
    for entry, value in found.items():
        np.testing.assert_allclose(value, shared.state_dict()[entry].numpy(), rtol=1e-9, atol=1e-11, err_msg=entry)
    for client in state.personal.clients(ROUNDS):
        location = state.personal.latest(client, ROUNDS)
        assert location is not None
        personal = fleet.layouts.personal.unpack(fleet._worker.personal.read(location))
        for entry in kept:
            np.testing.assert_allclose(personal[entry], own[client][entry].numpy(), rtol=1e-9, atol=1e-11)
    assert fleet.layouts.shared.nbytes == sum(
        v.nbytes for n, v in module().state_dict().items() if n not in kept
    )  # nothing personal is sent


def test_fedper_with_nothing_personal_is_fedavg_and_with_everything_singleset(federation: Federation) -> None:
    pairs = [
        (fedper(SOME, LOCAL, Mix(0.5), personal=()), fedavg(SOME, LOCAL, Mix(0.5))),
        (fedper(SOME, LOCAL, personal=("head", "body"), weighting="equal"), singleset(SOME, LOCAL)),
    ]
    for one, other in pairs:
        (a, _), (b, _) = engine(federation, one, ROUNDS), engine(federation, other, ROUNDS)
        assert same(a.model, b.model) and same(a.average, b.average)


def test_clients_may_train_any_model_alone() -> None:
    layouts = singleset(SOME, LOCAL).divide(Layout.of(perceptron()))
    assert not layouts.shared.entries and len(layouts.personal.entries) == 4


def test_fedbabu_never_changes_the_head_and_fedrep_does(federation: Federation) -> None:
    for algorithm, changes in ((fedbabu(SOME, LOCAL), False), (fedrep(SOME, LOCAL), True)):
        state, fleet = engine(federation, algorithm, 2)
        location = state.personal.latest(next(iter(state.personal.clients(2))), 2)
        assert location is not None
        kept = fleet._worker.personal.read(location)
        assert same(kept, fleet.layouts.personal.pack(module().state_dict())) != changes


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fedrep(SOME, Local(steps=3)), "local.steps = 3: must be left out with fedrep"),
        (
            lambda: fedrep(SOME, Local(steps="largest", epochs=1)),
            "local.steps = 'largest': must be left out with fedrep",
        ),
        (lambda: fedrep(SOME, Local(batches=2)), "local.batches = 2: must be left out with fedrep"),
        (lambda: fedrep(SOME, Local(part="head")), "local.part = 'head': must be 'all' for fedrep"),
        (lambda: fedrep(SOME, LOCAL, head_epochs=0), "algorithm.head_epochs = 0: must be >= 1"),
        (lambda: fedbabu(SOME, Local(part="head")), "local.part = 'head': must be 'all' for fedbabu"),
        (lambda: fedbabu(SOME, LOCAL).divide(Layout.of(nn.Linear(4, 3))), "local.part = 'body'"),
        (lambda: lg_fedavg(SOME, LOCAL).divide(Layout.of(nn.Linear(4, 3))), "in the model, which has no body; set"),
        (lambda: fedper(SOME, LOCAL).divide(Layout.of(nn.BatchNorm1d(4))), "in the model, which has no head; set"),
        (lambda: Local(part="tail"), "local.part = 'tail': must be 'all' or 'head' or 'body'"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], Algorithm], message: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert message in str(caught.value)


def test_a_part_that_is_frozen_cannot_be_personal() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    freeze(module, {"0.weight", "0.bias"})
    with pytest.raises(InputError, match=r"algorithm\.personal = '0': must have an entry that trains"):
        fedper(SOME, LOCAL, personal=("0",)).divide(Layout.of(module))


def test_work_is_split_with_its_draws() -> None:
    augment = Augmented(lambda x, draws: x + draws, torch.arange(5.0).view(5, 1))  # type: ignore[arg-type]
    work = Work(torch.zeros(3, 1), torch.zeros(3), [np.arange(3), np.arange(2)], augment=augment)
    first, rest = work.split(1)
    assert [len(rows) for rows in (*first.batches, *rest.batches)] == [3, 2]
    assert first.augment is not None and rest.augment is not None
    assert torch.equal(torch.cat([first.augment.draws, rest.augment.draws]), augment.draws)
    assert len(rest.augment.draws) == 2
