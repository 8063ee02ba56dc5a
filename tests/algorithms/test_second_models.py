"""Ditto, APFL, pFedMe and Per-FedAvg against plain loops written from the papers, and their limits."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from math import inf

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from algorithms import (
    Algorithm,
    InputError,
    Local,
    Mix,
    Participation,
    State,
    apfl,
    choose,
    ditto,
    fedavg,
    per_fedavg,
    pfedme,
    singleset,
)
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import perceptron
from tests.kit.reference import DATA, FP64, Values, agree, drawn, engine, mean, module
from tests.kit.rounds import same, simulate

Federation = Callable[..., InlineFleet]
Client = Callable[[nn.Module, Values, int, list[np.ndarray]], nn.Module]
LOCAL = Local(lr=0.05, batch_size=4)
SOME = Participation(fraction=0.5)
ROUNDS = 3


def gradients(model: nn.Module, client: int, rows: np.ndarray) -> list[torch.Tensor]:
    model.train()
    loss = cross_entropy(model(DATA[client][0].double()[rows]), DATA[client][1][rows])
    return list(torch.autograd.grad(loss, list(model.parameters())))


@torch.no_grad()
def move(model: nn.Module, steps: list[torch.Tensor], rate: float) -> None:
    for p, step in zip(model.parameters(), steps, strict=True):
        p.sub_(rate * step)


def loop(client_update: Client, weighting: str, beta: float = 1.0) -> tuple[nn.Module, dict[int, Values]]:
    """Rounds of the cohort; `client_update` gets a copy of the model and the client's own values, which it changes."""
    w, own = module(), {client: module().state_dict() for client in range(6)}
    for number in range(1, ROUNDS + 1):
        cohort, models = SOME.draw(np.arange(6), 0, number).tolist(), []
        for client in cohort:
            batches = drawn(LOCAL, DATA[client], number, client)
            models.append(client_update(deepcopy(w), own[client], client, batches))
        shares = [len(DATA[c][1]) if weighting == "samples" else 1.0 for c in cohort]
        before, after = w.state_dict(), mean(models, shares)
        mixed = {n: (1 - beta) * before[n] + beta * v if v.is_floating_point() else v for n, v in after.items()}
        w.load_state_dict(mixed)
    return w, own


def kept(state: State, fleet: InlineFleet) -> dict[int, Values]:
    """The clients' personal entries, without the slot's name."""
    found = {}
    for client in state.personal.clients(ROUNDS):
        location = state.personal.latest(client, ROUNDS)
        assert location is not None
        values = fleet.layouts.personal.unpack(fleet._worker.personal.read(location))
        found[client] = {name.removeprefix("own/"): torch.tensor(value) for name, value in values.items()}
    return found


def near(ours: Values, theirs: Values) -> None:
    for name, value in ours.items():
        np.testing.assert_allclose(value.numpy(), theirs[name].numpy(), rtol=1e-9, atol=1e-11, err_msg=name)


def with_own(own: Values) -> nn.Module:
    model = module()
    model.load_state_dict({name: own[name] for name in model.state_dict()})
    return model


def dittos(attraction: float) -> Client:
    def update(w: nn.Module, own: Values, client: int, batches: list[np.ndarray]) -> nn.Module:
        v, received = with_own(own), [p.detach().clone() for p in w.parameters()]
        for rows in batches:
            pulls = [p.detach() - r for p, r in zip(v.parameters(), received, strict=True)]
            g = gradients(v, client, rows)
            move(v, [a + attraction * b for a, b in zip(g, pulls, strict=True)], LOCAL.lr)
            move(w, gradients(w, client, rows), LOCAL.lr)
        own |= deepcopy(v.state_dict())
        return w

    return update


def pfedmes(attraction: float, inner_steps: int, outer_lr: float) -> Client:
    def update(w: nn.Module, own: Values, client: int, batches: list[np.ndarray]) -> nn.Module:
        theta = deepcopy(w)
        for rows in batches:
            for _ in range(inner_steps):
                g = gradients(theta, client, rows)
                both = zip(g, theta.parameters(), w.parameters(), strict=True)
                move(theta, [a + attraction * (t.detach() - p.detach()) for a, t, p in both], LOCAL.lr)
            both = zip(w.parameters(), theta.parameters(), strict=True)
            move(w, [(p - t).detach() for p, t in both], outer_lr * attraction)
        own |= deepcopy(theta.state_dict())
        w.load_state_dict({**theta.state_dict(), **{n: p.detach() for n, p in w.named_parameters()}})
        return w

    return update


def apfls(share: float, share_lr: float) -> Client:
    def update(w: nn.Module, own: Values, client: int, batches: list[np.ndarray]) -> nn.Module:
        v, u, a = with_own(own), with_own(own), float(own.get("share/value", share))
        for rows in batches:
            apart = [(p - q).detach() for p, q in zip(v.parameters(), w.parameters(), strict=True)]
            with torch.no_grad():
                for p, q, d in zip(u.parameters(), w.parameters(), apart, strict=True):
                    p.copy_(q + a * d)
            move(w, gradients(w, client, rows), LOCAL.lr)
            g = gradients(u, client, rows)
            move(v, [a * each for each in g], LOCAL.lr)
            if rows is batches[0]:
                slope = sum(float((x * y).sum()) for x, y in zip(g, apart, strict=True))
                a = float(np.clip(a - share_lr * slope, 0, 1))
        statistics = {n: b for n, b in u.state_dict().items() if n not in dict(u.named_parameters())}
        own |= deepcopy({**v.state_dict(), **statistics, "share/value": torch.tensor(a, dtype=torch.float64)})
        return w

    return update


def metas(inner_lr: float) -> Client:
    def update(w: nn.Module, own: Values, client: int, batches: list[np.ndarray]) -> nn.Module:
        for i in range(0, len(batches), 2):
            ahead = deepcopy(w)
            move(ahead, gradients(ahead, client, batches[i]), inner_lr)
            move(w, gradients(ahead, client, batches[min(i + 1, len(batches) - 1)]), LOCAL.lr)
            w.load_state_dict({**ahead.state_dict(), **{n: p.detach() for n, p in w.named_parameters()}})
        return w

    return update


CASES: dict[str, tuple[Algorithm, Client, str, float]] = {
    "ditto": (ditto(SOME, LOCAL, attraction=0.7), dittos(0.7), "samples", 1.0),
    "ditto, equal and mixed": (ditto(SOME, LOCAL, Mix(0.6), weighting="equal"), dittos(0.1), "equal", 0.6),
    "pfedme": (pfedme(SOME, LOCAL), pfedmes(15, 5, 0.005), "equal", 1.0),
    "pfedme, mixed": (
        pfedme(SOME, LOCAL, Mix(0.5), attraction=2.0, inner_steps=3, outer_lr=0.1, weighting="samples"),
        *(pfedmes(2.0, 3, 0.1), "samples", 0.5),
    ),
    "apfl": (apfl(SOME, LOCAL), apfls(0.5, 0.1), "equal", 1.0),
    "apfl, at the bounds": (apfl(SOME, LOCAL, share=0.9, share_lr=5.0), apfls(0.9, 5.0), "equal", 1.0),
    "per-fedavg": (per_fedavg(SOME, LOCAL, inner_lr=0.2), metas(0.2), "equal", 1.0),
    "per-fedavg, by samples": (per_fedavg(SOME, LOCAL, weighting="samples"), metas(0.01), "samples", 1.0),
}


@pytest.mark.parametrize("name", CASES)
def test_the_method_matches_a_plain_loop(name: str, federation: Federation) -> None:
    algorithm, client_update, weighting, beta = CASES[name]
    state, fleet = engine(federation, algorithm, ROUNDS)
    w, own = loop(client_update, weighting, beta)
    agree(state, fleet, w.state_dict())
    for client, values in kept(state, fleet).items():
        near(values, own[client])
    if name != "per-fedavg" and "per" not in name:
        assert fleet.layouts.personal.entries
    assert fleet.layouts.shared.nbytes == sum(
        value.nbytes for value in w.state_dict().values()
    )  # the second is not sent


def test_ditto_without_attraction_is_fedavg_beside_singleset(federation: Federation) -> None:
    state, fleet = engine(federation, ditto(SOME, LOCAL, attraction=0), ROUNDS)
    shared, _ = engine(federation, fedavg(SOME, LOCAL), ROUNDS)
    alone, other = engine(federation, singleset(SOME, LOCAL), ROUNDS)
    assert same(state.model, shared.model)
    ours, theirs = kept(state, fleet), kept(alone, other)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[c][name], value) for c in theirs for name, value in theirs[c].items())


def test_apfl_at_share_1_is_fedavg_beside_singleset_and_at_0_fedavg(federation: Federation) -> None:
    shared, _ = engine(federation, fedavg(SOME, LOCAL, weighting="equal"), ROUNDS)
    alone, other = engine(federation, singleset(SOME, LOCAL), ROUNDS)
    theirs = kept(alone, other)
    for share in (1.0, 0.0):
        state, fleet = engine(federation, apfl(SOME, LOCAL, share=share, share_lr=0.0), ROUNDS)
        np.testing.assert_allclose(state.model.floats, shared.model.floats, rtol=1e-9, atol=1e-12)
        for client, values in kept(state, fleet).items():
            assert float(values.pop("share/value")) == share
            location = state.personal.latest(client, ROUNDS)
            assert location is not None
            model = fleet.layouts.own_model(state.model, fleet._worker.personal.read(location))
            evaluated, common = (fleet.layouts.shared.unpack(each) for each in (model, state.model))
            for entry, value in values.items():
                # Statistics are always the second model's.
                mixes = share == 0 and entry in dict(module().named_parameters())
                np.testing.assert_allclose(evaluated[entry], common[entry] if mixes else value.numpy(), rtol=1e-12)
                first = module().state_dict()[entry] if mixes else theirs[client][entry] if share else value
                near({entry: value}, {entry: first})


def test_pfedme_that_follows_at_once_is_fedavg(federation: Federation) -> None:
    state, _ = engine(federation, pfedme(SOME, LOCAL, attraction=4.0, inner_steps=1, outer_lr=0.25), ROUNDS)
    shared, _ = engine(federation, fedavg(SOME, LOCAL, weighting="equal"), ROUNDS)
    np.testing.assert_allclose(state.model.floats, shared.model.floats, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("epochs", [1, 2])
def test_per_fedavg_without_a_look_ahead_is_fedavg_on_every_second_batch(federation: Federation, epochs: int) -> None:
    """On two full batches, which are one batch twice, it takes one step; on one too, which it takes twice."""
    full = replace(LOCAL, batch_size="full", epochs=epochs)
    state, fleet = engine(federation, per_fedavg(Participation(), full, inner_lr=0.0), 1)
    full = replace(full, epochs=1)
    shared, _ = engine(federation, fedavg(Participation(), full, weighting="equal"), 1)
    ours, theirs = (fleet.layouts.shared.unpack(each.model) for each in (state, shared))
    for name in dict(module().named_parameters()):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_batches_that_batch_norm_refuses_are_in_no_pair(epochs: int, federation: Federation) -> None:
    """Of five samples one is alone in its batch: each epoch has one batch. The last of an odd number counts twice."""
    local, data = replace(LOCAL, epochs=epochs), [(x[:5], y[:5]) for x, y in DATA[:1]]
    algorithm = per_fedavg(Participation(), local, inner_lr=0.2)
    fleet = federation(data, module(), algorithm.sharing, compute=FP64)
    state = simulate(algorithm, fleet, module(), 1)
    batches = drawn(local, data[0], 1, 0)
    agree(state, fleet, metas(0.2)(module(), {}, 0, batches).state_dict())
    assert state.report is not None
    assert state.report.updates.report["steps"].tolist() == [len(batches) + epochs % 2] == [(2, 2, 4)[epochs - 1]]


def test_auto_keeps_dittos_linear_models_fused_and_stacks_the_others() -> None:
    for algorithm, execution in ((CASES["ditto"][0], "fused"), (CASES["apfl"][0], "vectorised")):
        found = choose(algorithm.local, perceptron(), torch.zeros(4), "cpu", 8, 9, "second models")
        assert found.execution == execution


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ditto(SOME, LOCAL, attraction=-1), "algorithm.attraction = -1: must be a float32 number >= 0"),
        (lambda: ditto(SOME, LOCAL, attraction=1e39), "algorithm.attraction = 1e+39: must be a float32 number >= 0"),
        (lambda: pfedme(SOME, LOCAL, attraction=0), "algorithm.attraction = 0: must be a float32 number > 0"),
        (lambda: pfedme(SOME, LOCAL, attraction=inf), "algorithm.attraction = inf: must be a float32 number > 0"),
        (lambda: pfedme(SOME, LOCAL, attraction=1e30, outer_lr=1e9), "algorithm.outer_lr = 1000000000.0: must be > 0,"),
        (lambda: pfedme(SOME, LOCAL, inner_steps=0), "algorithm.inner_steps = 0: must be in [1, 1000000]"),
        (lambda: pfedme(SOME, LOCAL, outer_lr=0), "algorithm.outer_lr = 0: must be > 0"),
        (lambda: pfedme(SOME, Local(momentum=0.9)), "local.momentum = 0.9: must be 0.0 for pfedme"),
        (lambda: apfl(SOME, LOCAL, share=1.5), "algorithm.share = 1.5: must be in [0, 1]"),
        (lambda: apfl(SOME, LOCAL, share_lr=-1), "algorithm.share_lr = -1: must be a float32 number >= 0"),
        (lambda: apfl(SOME, LOCAL, share_lr=inf), "algorithm.share_lr = inf: must be a float32 number >= 0"),
        (lambda: apfl(SOME, Local(optimizer="adam")), "local.optimizer = 'adam': must be 'sgd' for apfl"),
        (lambda: per_fedavg(SOME, LOCAL, inner_lr=-1), "algorithm.inner_lr = -1: must be a float32 number >= 0"),
        (lambda: per_fedavg(SOME, LOCAL, inner_lr=1e39), "algorithm.inner_lr = 1e+39: must be a float32 number >= 0"),
        (lambda: per_fedavg(SOME, Local(momentum=0.9)), "local.momentum = 0.9: must be 0.0 for per-fedavg"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], Algorithm], message: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert message in str(caught.value)
