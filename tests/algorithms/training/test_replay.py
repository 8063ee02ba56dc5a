"""Replayed steps: the same bytes as steps that are launched kernel by kernel."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from algorithms import AffineTerm, Compute, Layout, Local, Method, Resident, Sharing, trainer
from algorithms.fedprox import Proximal
from algorithms.moon import Contrasted
from algorithms.training import replay
from algorithms.training.loss import CrossEntropy, OwnLoss
from algorithms.training.replay import Captured, Replays
from algorithms.training.terms import pull
from algorithms.training.work import Launch, Work
from tests.kit.recorded import Recorded
from tests.kit.stacked import seeded

LOCAL = Local(lr=0.05, batch_size=4)
LOCALS = {
    "plain": LOCAL,
    "momentum": replace(LOCAL, momentum=0.9),
    "nesterov": replace(LOCAL, momentum=0.9, nesterov=True, weight_decay=0.1),
    "proximal": replace(LOCAL, method=Proximal(0.5)),
    "proximal with momentum": replace(LOCAL, momentum=0.9, weight_decay=0.1, method=Proximal(0.5)),
    "clipped": replace(LOCAL, clip=0.1),
    "frozen": replace(LOCAL, statistics="frozen"),
    "head": replace(LOCAL, part="head", momentum=0.9),
}
FUSED = ("plain", "momentum", "proximal", "proximal with momentum")


GPU = pytest.param(Captured, "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))


def trainer_of(
    model: str, execution: Any = "vectorised", device: str = "cpu", launch: Callable[[Resident], Launch] = Replays
) -> tuple[Any, Resident]:
    module = seeded(model)
    layouts = Sharing().divide(Layout.of(module))
    resident = Resident(module, layouts, torch.zeros(4), device, lanes=3)
    made: Any = trainer(resident, Compute(execution))
    made.start = resident.layouts.shared.pack(resident.module.state_dict())
    made._launch = launch(resident)
    return made, resident


def models_after(
    made: Any,
    resident: Resident,
    local: Local,
    rounds: int = 3,
    rate: float | None = None,
    sizes: tuple[int, ...] = (4, 4, 4),
) -> list[np.ndarray]:
    """Train three clients; return their models.

    Args:
        made: trainer.
        resident: its models.
        local: content of a client update.
        rounds: number of rounds. The last client has 1 batch in the first round, 5 in the next and so on.
        rate: learning rate; None for that of `local`.
        sizes: samples of each client's batches, of which the first ones have 5.
    """
    start, nothing = made.start, resident.layouts.personal.pack(resident.module.state_dict())
    models = []
    for number in range(rounds):
        rng = np.random.default_rng(number)
        works = []
        batches = 5, 5, 5 if number % 2 or len(set(sizes)) > 1 else 1
        for lane, count in enumerate(size * each for size, each in zip(sizes, batches, strict=True)):
            x = torch.from_numpy(rng.normal(size=(count, 4)).astype(np.float32)).to(resident.device)
            masks = torch.Generator(resident.device).manual_seed(number * 3 + lane)
            y = torch.arange(count, device=resident.device) % 3
            works.append(Work(x, y, np.array_split(rng.permutation(count), batches[lane]), masks))
        made.load([start] * 3, [nothing] * 3)
        made.train(local, works, local.lr if rate is None else rate)
        models += [made.shared(lane).floats.copy() for lane in range(3)]
    return models


@pytest.mark.parametrize(("kind", "device"), [(Recorded, "cpu"), GPU])
@pytest.mark.parametrize(
    ("model", "execution", "name"),
    [("linear", "fused", name) for name in FUSED]
    + [(model, "vectorised", name) for model in ("group_norm", "convolution") for name in LOCALS],
)
def test_replayed_steps_are_those_of_separate_kernels(
    model: str, execution: str, name: str, kind: type, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = LOCALS[name]
    expected = models_after(*trainer_of(model, execution, device, lambda _: Launch()), local)
    monkeypatch.setattr(replay, "Captured", kind)
    monkeypatch.setattr(Recorded, "taken", 0)
    found = models_after(*trainer_of(model, execution, device), local)
    assert kind is not Recorded or Recorded.taken == 4 + 5 + 4  # 4 steps of two lanes, or 5 of three
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "local",
    [
        replace(LOCAL, optimizer="adam"),
        replace(LOCAL, optimizer="adamw"),
        replace(LOCAL, lr_schedule="linear"),
        replace(LOCAL, loss=CrossEntropy(class_weights=(1.0, 2.0, 3.0))),
        replace(LOCAL, loss=OwnLoss("mine:loss", lambda outputs, y: outputs.logsumexp(1))),
        replace(LOCAL, method=type("Own", (Method,), {"__module__": "own"})()),
        replace(LOCAL, method=Contrasted(1.0, 0.5)),
    ],
    ids=[
        "adam",
        "of torch.optim",
        "a rate of each step",
        "weights of classes",
        "an own loss",
        "a method of one's own",
        "moon",
    ],
)
def test_steps_that_differ_from_each_other_are_not_captured(local: Local) -> None:
    launch = trainer_of("group_norm")[0]._launch
    assert launch.begin(LOCAL) is not None
    assert launch.begin(local) is None


def test_several_constants_are_not_captured() -> None:
    class Two(Method):
        __module__ = Method.__module__  # as one of raysim

        @property
        def terms(self) -> tuple[AffineTerm, ...]:
            return (pull(0.5), AffineTerm(b=0.1, v="momentum"))

    assert trainer_of("group_norm")[0]._launch.begin(replace(LOCAL, method=Two())) is None


def test_a_step_that_cannot_be_captured_is_taken_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(Recorded):
        tried = 0

        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            Failing.tried += 1
            raise RuntimeError("operation not permitted when stream is capturing")

    expected = models_after(*trainer_of("convolution", launch=lambda _: Launch()), LOCAL)
    monkeypatch.setattr(replay, "Captured", Failing)
    with pytest.warns(UserWarning, match="steps start kernel by kernel, .*: operation not permitted"):
        found = models_after(*trainer_of("convolution"), LOCAL)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert Failing.tried == 1


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    ],
)
def test_a_lack_of_memory_is_not_taken_for_a_refusal(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise RuntimeError(text)

    monkeypatch.setattr(replay, "Captured", full)
    with pytest.raises(RuntimeError, match=re.escape(text)):
        models_after(*trainer_of("convolution"), LOCAL)


def test_layers_with_hooks_are_not_captured() -> None:
    resident = trainer_of("convolution")[1]
    assert Replays(resident).begin(LOCAL) is not None
    next(resident.module.children()).register_forward_hook(lambda *_: None)
    assert Replays(resident).begin(LOCAL) is None


def test_a_trainer_keeps_few_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "Captured", Recorded)
    monkeypatch.setattr(replay, "MOST_GRAPHS", 2)
    made, resident = trainer_of("convolution")
    for lr in (0.1, 0.2, 0.1, 0.3):
        models_after(made, resident, replace(LOCAL, lr=lr), rounds=1)
    assert [key[1] for key in made._launch._graphs] == [0.1, 0.3]


def test_kinds_of_client_updates_and_rates_have_graphs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "Captured", Recorded)
    made, resident = trainer_of("convolution")
    for name in ("plain", "proximal", "clipped", "plain", "momentum", "proximal with momentum", "head", "momentum"):
        for rate in (0.05, 0.02):
            local = replace(LOCALS[name], lr=rate)
            expected = models_after(*trainer_of("convolution", launch=lambda _: Launch()), local, rounds=1)
            for ours, theirs in zip(models_after(made, resident, local, rounds=1), expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)


def test_rates_that_decay_share_a_kind_but_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "Captured", Recorded)
    monkeypatch.setattr(replay, "LEAST_DECAYING", 4)
    local = replace(LOCAL, lr_decay=0.5)
    pairs = [trainer_of("convolution"), trainer_of("convolution", launch=lambda _: Launch())]
    for rate in (0.1, 0.05, 0.1):
        found, expected = (models_after(*pair, local, rounds=1, rate=rate) for pair in pairs)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_graphs_of_past_rates_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "Captured", Recorded)
    monkeypatch.setattr(replay, "LEAST_DECAYING", 4)
    made, resident = trainer_of("convolution")
    models_after(made, resident, replace(LOCAL, lr=0.3), rounds=1)
    for rate in (0.1, 0.05, 0.025):
        models_after(made, resident, replace(LOCAL, lr_decay=0.5), rounds=2, rate=rate)
        assert [key[1] for key in made._launch._graphs] == [0.3, rate, rate]


def test_lanes_of_equal_shapes_have_graphs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "Captured", Recorded)
    pairs = [trainer_of("linear", "fused"), trainer_of("linear", "fused", launch=lambda _: Launch())]
    found, expected = (models_after(*pair, LOCAL, rounds=1, sizes=(4, 3, 4)) for pair in pairs)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_few_steps_of_a_rate_that_decays_are_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "Captured", Recorded)
    monkeypatch.setattr(Recorded, "taken", 0)
    models_after(*trainer_of("convolution"), replace(LOCAL, lr_decay=0.9), rounds=1)
    assert Recorded.taken == 0


def test_on_a_cpu_nothing_is_captured() -> None:
    assert type(replay.launch_of(trainer_of("linear")[1])) is Launch
