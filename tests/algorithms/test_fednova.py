"""FedNova against its equations."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import Assign, InputError, Local, Mix, Participation, WeightedMix, fedavg, fednova
from algorithms.fednova import length
from algorithms.parts.weighting import WeightingName
from raysim.fleet.inline import InlineFleet
from tests.kit.reference import DATA, agree, drawn, engine, mean, module, train

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.05, batch_size=4, epochs=2)
SOME = Participation(fraction=0.5)
PLAIN = (0.0, 0.0)


def norm(steps: int, momentum: float, pull: float) -> float:
    """|a|_1 in closed form, as the paper has it for each of the three."""
    if momentum:
        return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    return (1 - (1 - pull) ** steps) / pull if pull else float(steps)


@pytest.mark.parametrize(("momentum", "pull"), [PLAIN, (0.9, 0.0), (0.0, 0.02), (0.0, 0.5)])
@pytest.mark.parametrize("steps", [1, 2, 7, 200])
def test_lengths_are_those_of_the_paper(steps: int, momentum: float, pull: float) -> None:
    assert length(steps, momentum, pull) == pytest.approx(norm(steps, momentum, pull), rel=1e-12)


def test_the_length_of_momentum_with_a_proximal_term_is_the_sum_of_the_gradients_factors() -> None:
    lr, rho, mu, steps = 0.1, 0.9, 0.5, 30

    def moved(gradients: np.ndarray) -> float:
        w = u = 0.0
        for g in gradients:
            u = rho * u + g + mu * w
            w -= lr * u
        return w

    factors = [-moved(np.eye(steps)[j]) / lr for j in range(steps)]
    assert min(factors) < 0  # the weights swing around the received ones
    assert length(steps, rho, lr * mu) == pytest.approx(np.abs(factors).sum(), rel=1e-12)


@pytest.mark.parametrize("weighting", ["samples", "equal"])
@pytest.mark.parametrize(("momentum", "proximal"), [(0.0, 0.0), (0.6, 0.0), (0.0, 0.4)])
def test_fednova_matches_its_paper(
    federation: Federation, momentum: float, proximal: float, weighting: WeightingName
) -> None:
    local = replace(LOCAL, momentum=momentum)
    algorithm = fednova(SOME, local, Mix(0.8), proximal=proximal, weighting=weighting)
    state, fleet = engine(federation, algorithm, rounds=3)
    x = module()
    for number in range(1, 4):
        models, sizes, lengths = [], [], []
        for client in SOME.draw(np.arange(6), 0, number):
            y, u = deepcopy(x), {name: torch.zeros_like(p) for name, p in x.named_parameters()}

            @torch.no_grad()
            def step(model: nn.Module, u: dict[str, torch.Tensor] = u, at: nn.Module = x) -> None:
                for (name, p), then in zip(model.named_parameters(), at.parameters(), strict=True):
                    u[name] = momentum * u[name] + p.grad + proximal * (p - then)
                    p.sub_(LOCAL.lr * u[name])

            batches = drawn(local, DATA[client], number, int(client))
            train(y, DATA[client], batches, step)
            models.append(y)
            sizes.append(len(DATA[client][1]) if weighting == "samples" else 1.0)
            lengths.append(norm(len(batches), momentum, LOCAL.lr * proximal))
        p, a = np.array(sizes) / np.sum(sizes), np.array(lengths)
        averaged, then = mean(models, p / a), x.state_dict()
        for name, _ in x.named_parameters():
            changes = [model.state_dict()[name] - then[name] for model in models]
            direction = sum(share / size * change for share, size, change in zip(p, a, changes, strict=True))
            averaged[name] = then[name] + (p @ a) * direction
        mixed = {k: 0.2 * then[k] + 0.8 * averaged[k] if then[k].is_floating_point() else averaged[k] for k in then}
        x.load_state_dict(mixed)
    agree(state, fleet, x.state_dict())


@pytest.mark.parametrize("weighting", ["samples", "equal"])
def test_with_equal_steps_it_is_fedavg(federation: Federation, weighting: WeightingName) -> None:
    local = Local(lr=0.05, batch_size="full", steps=5, momentum=0.5)
    normalised, _ = engine(federation, fednova(SOME, local, weighting=weighting), rounds=3)
    plain, _ = engine(federation, fedavg(SOME, local, weighting=weighting), rounds=3)
    np.testing.assert_allclose(normalised.model.floats, plain.model.floats, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("local", "more", "message"),
    [
        (Local(optimizer="adam"), {}, "local.optimizer = 'adam': must be 'sgd' for fednova"),
        (Local(momentum=0.9, nesterov=True), {}, "local.nesterov = True: must be False for fednova"),
        (Local(lr_schedule="cosine"), {}, "local.lr_schedule = 'cosine': must be 'constant' for fednova"),
        (Local(lr_decay=0.9), {"proximal": 0.1}, "local.lr_decay = 0.9: must be 1.0 for fednova with algorithm.prox"),
        (LOCAL, {"server": WeightedMix(0.5)}, "server.rule = 'weighted-mix' with synchronous rounds"),
    ],
)
def test_equations_that_do_not_hold_are_refused(local: Local, more: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fednova(SOME, local, **{"server": Assign(), **more})


def test_a_server_rule_behind_the_step_gets_the_reports(federation: Federation) -> None:
    seen: list[list[float]] = []

    @dataclass(frozen=True)
    class Reads:
        def __call__(self, model, mean, total, memory, layout, updates=None):  # type: ignore[no-untyped-def]
            seen.append(updates.column("steps").tolist())
            return mean, {"rounds": memory.get("rounds", np.zeros(1)) + 1}

    own, _ = engine(federation, fednova(SOME, LOCAL, Reads()), rounds=2)
    plain, _ = engine(federation, fednova(SOME, LOCAL), rounds=2)
    assert len(seen) == 2 and all(len(steps) == 3 for steps in seen) and own.of("server")["rounds"] == [2]
    np.testing.assert_array_equal(own.model.floats, plain.model.floats)


def test_a_server_rule_behind_the_step_has_what_it_reads_and_is_fitted(federation: Federation) -> None:
    @dataclass(frozen=True)
    class Fits:
        clients: int = 0

        needs = ("change",)

        def fitted(self, census):  # type: ignore[no-untyped-def]
            return replace(self, clients=len(census.clients))

        def __call__(self, model, mean, total, memory, layout, updates):  # type: ignore[no-untyped-def]
            return mean, {"clients": np.array(self.clients), "change": updates.column("change")}

    memory = engine(federation, fednova(SOME, LOCAL, Fits()), rounds=1)[0].of("server")
    assert memory["clients"] == len(DATA) and (memory["change"] > 0).all()
