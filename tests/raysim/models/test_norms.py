"""Normalisers: found by type, computed as their papers say, and the same whichever way client updates are trained."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, cross_entropy

from algorithms import Compute, Layout, Local, Participation, Resident, Sharing, Work, fedbn, trainer
from algorithms.core.batch_norm import is_batch_norm
from algorithms.core.chunks import CHUNK
from algorithms.core.sums import Sum
from algorithms.training.statistics import add_statistics, statistics_of
from raysim.common.errors import InputError
from raysim.common.vision import torchvision
from raysim.models.build import build
from raysim.models.keys import KEYS, NORMS
from raysim.models.norm import converted
from raysim.models.normalisers.fixup import ScalarAffine, ShiftedConv2d
from raysim.models.normalisers.modified_convolutions import StandardisedConv2d, standardised
from raysim.models.normalisers.renorm import BatchRenorm
from raysim.models.options import RENORM_PREFIX, ModelOptions


class Custom(nn.BatchNorm2d):
    """A user's subclass."""


class Block(nn.Module):
    """A residual block whose shortcut holds a batch norm, by the names that Fixup knows."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = Custom(outputs)
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))) + self.shortcut(x))


def tiny() -> nn.Module:
    """A residual net for 2x4x4 images: five batch-norm layers, two of them in shortcuts, and 3 classes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        stem = (nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        return nn.Sequential(*stem, Block(4, 4), nn.Flatten(), nn.Linear(64, 3))


def one(norm: str, shape: tuple[int, ...] = (2, 4, 4), **numbers: Any) -> nn.Module:
    """What becomes of a batch-norm layer of two channels with a scale and a shift."""
    layer = nn.BatchNorm2d(2) if len(shape) == 3 else nn.BatchNorm1d(shape[0])
    with torch.no_grad():
        layer.weight.copy_(torch.arange(shape[0]) + 1)
        layer.bias.copy_(torch.arange(shape[0]) - 1)
    return converted(nn.Sequential(layer), ModelOptions(norm, **numbers), shape)[0]


def two(norm: str, groups: int = 2) -> dict[str, int]:
    """So many groups where the norm has groups."""
    return {"groups": groups} if "groups" in KEYS[norm] else {}


def of_type(module: nn.Module, *types: type[nn.Module]) -> list[str]:
    return [name for name, layer in module.named_modules() if isinstance(layer, types)]


@pytest.mark.parametrize("norm", NORMS)
def test_all_batch_norm_of_torchvisions_resnet_is_replaced(norm: str) -> None:
    module = torchvision.models.resnet18(num_classes=5)
    before, places = list(module.state_dict()), of_type(module, nn.BatchNorm2d)
    assert len(places) == 20 and "layer2.0.downsample.1" in places
    made = converted(module, ModelOptions(norm, **two(norm)), (3, 64, 64))
    kind = {"none": nn.Identity, "batch": nn.BatchNorm2d, "batch-renorm": BatchRenorm}.get(norm, nn.GroupNorm)
    if norm != "fixup":
        assert of_type(made, kind) == places
    assert bool(of_type(made, nn.BatchNorm2d)) == (norm == "batch")
    kept = {"none": set(), "fixup": set(), "batch": set(before), "batch-renorm": set(before)}.get(norm)
    affine = {f"{place}.{name}" for place in places for name in ("weight", "bias")}
    statistics = {f"{p}.{name}" for p in places for name in ("running_mean", "running_var", "num_batches_tracked")}
    if norm == "none":
        assert set(made.state_dict()) == set(before) - affine - statistics
    elif norm != "fixup":
        assert set(made.state_dict()) == (kept or set(before) - statistics)
    assert made(torch.rand(2, 3, 64, 64)).shape == (2, 5)
    assert len(of_type(made, StandardisedConv2d)) == (20 if norm == "group+ws" else 0)


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, Custom])
def test_batch_norm_of_all_dimensions_nested_and_shared(kind: type[nn.Module]) -> None:
    places = {nn.BatchNorm1d: (5,), nn.BatchNorm3d: (2, 3, 2)}.get(kind, (3, 2))  # type: ignore[call-overload]
    shared = kind(4)
    module = nn.Sequential(nn.Sequential(shared), nn.ReLU(), shared)
    made = converted(module, ModelOptions("group", groups=4), (4, *places))
    assert of_type(made, nn.GroupNorm) == ["0.0"] and made[0][0] is made[2]
    assert made(torch.rand(3, 4, *places)).shape == (3, 4, *places)
    assert isinstance(converted(kind(4), ModelOptions("layer"), (4, *places)), nn.GroupNorm)


def normalised(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def test_group_layer_and_instance_by_their_formulas() -> None:
    x = np.random.default_rng(0).normal(2, 3, (3, 2, 4, 4))
    scale, shift = np.array([1.0, 2.0]).reshape(1, 2, 1, 1), np.array([-1.0, 0.0]).reshape(1, 2, 1, 1)
    expected = {
        "layer": normalised(x, (1, 2, 3)) * scale + shift,
        "instance": normalised(x, (2, 3)) * scale + shift,
        "group": normalised(x, (1, 2, 3)) * scale + shift,
    }
    for norm, values in expected.items():
        made = one(norm, **two(norm, 1)).double()
        np.testing.assert_allclose(made(torch.from_numpy(x)).detach().numpy(), values, rtol=1e-9, atol=1e-12)


def test_features_are_normalised_by_groups_and_layers() -> None:
    x = np.random.default_rng(0).normal(2, 3, (5, 6))
    affine = np.arange(6) + 1, np.arange(6) - 1
    layer = one("layer", (6,)).double()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(layer, normalised(x, (1,)) * affine[0] + affine[1], rtol=1e-9)
    group = one("group", (6,), groups=3).double()(torch.from_numpy(x)).detach().numpy()
    by_two = normalised(x.reshape(5, 3, 2), (2,)).reshape(5, 6)
    np.testing.assert_allclose(group, by_two * affine[0] + affine[1], rtol=1e-9)


def test_weights_are_standardised_by_filter() -> None:
    made = build("cnn", shape=(1, 8, 8), classes=2, seed=0, norm="group+ws", groups=4).double()
    plain = build("cnn", shape=(1, 8, 8), classes=2, seed=0, norm="group", groups=4).double()
    assert list(made.state_dict()) == list(plain.state_dict())
    assert of_type(made, StandardisedConv2d) == ["conv1", "conv2"]
    w = made.get_parameter("conv1.weight").detach().numpy()
    expected = normalised(w, (1, 2, 3))
    np.testing.assert_allclose(standardised(torch.from_numpy(w)).numpy(), expected, rtol=1e-9)
    x = torch.rand(2, 1, 8, 8).double()
    out = conv2d(x, torch.from_numpy(expected), made.get_parameter("conv1.bias"), padding=1)
    torch.testing.assert_close(made.get_submodule("conv1")(x), out)


@pytest.mark.parametrize("norm", NORMS)
def test_stacked_steps_are_sequential_ones(norm: str) -> None:
    limits = {"r_max": 1.5, "d_max": 0.5, "start": 0, "r_end": 2, "d_end": 1}
    keys: dict[str, Any] = {RENORM_PREFIX + key: value for key, value in limits.items()}
    keys = keys if norm == "batch-renorm" else {}
    rng = np.random.default_rng(2)
    works = [
        Work(
            torch.from_numpy(rng.normal(i, 1 + i, (6, 2, 4, 4))),
            torch.from_numpy(rng.integers(0, 3, 6)),
            [rng.permutation(6)[:4] for _ in range(3)],
        )
        for i in range(2)
    ]

    def trained(execution: str, each: list[Work]) -> list[dict[str, torch.Tensor]]:
        module = converted(tiny(), ModelOptions(norm, **two(norm), **keys), (2, 4, 4)).double()
        resident = Resident(module, Sharing().divide(Layout.of(module)), torch.zeros(2, 4, 4), lanes=len(each))
        trainer(resident, Compute(execution, "fp64")).train(Local(lr=0.1, batch_size=4), each, 0.1)  # type: ignore[arg-type]
        return [{e.name: stack[lane].clone() for e, stack in resident.stacks.items()} for lane in range(len(each))]

    stacked = trained("vectorised", works)
    start = converted(tiny(), ModelOptions(norm, **two(norm)), (2, 4, 4)).double().state_dict()
    for lane, work in enumerate(works):
        (alone,) = trained("sequential", [work])
        torch.testing.assert_close(stacked[lane], alone, rtol=1e-9, atol=1e-11)
        assert not torch.equal(alone[next(reversed(alone))], start[next(reversed(alone))])


@pytest.mark.parametrize(("norm", "layers"), [("batch", 4), ("batch-renorm", 4)])
def test_fedbn_keeps_every_layer_of_a_nested_model(norm: str, layers: int) -> None:
    module = converted(tiny(), ModelOptions(norm), (2, 4, 4))
    layouts = fedbn(Participation(), Local()).divide(Layout.of(module))
    assert len(layouts.personal.entries) == 5 * layers
    assert {e.name.rpartition(".")[0] for e in layouts.personal.entries} == {"1", "3.bn1", "3.bn2", "3.shortcut.1"}
    assert sum(is_batch_norm(layer) for layer in module.modules()) == layers


def torchvisions() -> nn.Module:
    resnet = torchvision.models.resnet
    return resnet.ResNet(resnet.BasicBlock, [1, 2, 1, 1], num_classes=5)


def bottlenecks() -> nn.Module:
    resnet = torchvision.models.resnet
    return resnet.ResNet(resnet.Bottleneck, [1, 1, 2, 1], num_classes=5)


@pytest.mark.parametrize(
    ("make", "shape", "count", "depth"),
    [(tiny, (2, 4, 4), 1, 2), (torchvisions, (3, 32, 32), 5, 2), (bottlenecks, (3, 32, 32), 5, 3)],
)
def test_fixup_starts_at_the_shortcuts(make: Callable[[], nn.Module], shape: Any, count: int, depth: int) -> None:
    module = converted(make(), ModelOptions("fixup"), shape, seed=3)
    assert torch.count_nonzero(module(torch.rand(2, *shape))) == 0
    blocks = [m for m in module.modules() if hasattr(m, f"bn{depth}")]
    assert len(blocks) == count
    for block in blocks:
        last = block.get_submodule(f"bn{depth}")
        assert (
            isinstance(last, ScalarAffine)
            and last.scale is not None
            and last.scale.item() == 1
            and last.bias.item() == 0
        )
        assert all(isinstance(block.get_submodule(f"bn{i}"), ScalarAffine) for i in range(1, depth))
        assert not block.get_submodule(f"conv{depth}").get_parameter("weight").any()
        first = block.get_submodule("conv1")
        assert isinstance(first, ShiftedConv2d) and first.shift.shape == (1,)
        he = np.sqrt(2 / (first.out_channels * first.kernel_size[0] * first.kernel_size[1]))
        if first.weight.numel() > 10_000:
            assert first.weight.std().item() == pytest.approx(he * count ** (-1 / (2 * depth - 2)), rel=0.05)
    again = converted(make(), ModelOptions("fixup"), shape, seed=3).state_dict()
    torch.testing.assert_close(module.state_dict(), again, rtol=0, atol=0)
    assert not [m for m in module.modules() if is_batch_norm(m)]


def test_fixup_trains_and_its_blocks_leave_zero() -> None:
    module = converted(tiny(), ModelOptions("fixup"), (2, 4, 4))
    x, y = torch.rand(8, 2, 4, 4), torch.arange(8) % 3
    before = cross_entropy(module(x), y).item()
    assert before == pytest.approx(np.log(3))
    for _ in range(30):
        module.zero_grad()
        cross_entropy(module(x), y).backward()
        with torch.no_grad():
            for p in module.parameters():
                p.sub_(0.1 * p.grad)
    assert cross_entropy(module(x), y).item() < before - 0.1
    assert module[3].conv2.weight.any() and module[3].bn2.scale.item() != 1


def named(**layers: nn.Module) -> nn.Sequential:
    model = nn.Sequential()
    for name, layer in layers.items():
        model.add_module(name, layer)
    return model


PLAIN = {
    "conv1": nn.Conv2d(2, 4, 3),
    "bn1": nn.BatchNorm2d(4),
    "conv2": nn.Conv2d(4, 4, 1, groups=4),
    "bn2": nn.BatchNorm2d(4),
}


@pytest.mark.parametrize(
    ("make", "shape", "numbers", "message"),
    [
        (lambda: nn.Linear(4, 2), (4,), {"norm": "group"}, "must have a batch-norm layer to replace"),
        (lambda: nn.Linear(4, 2), (4,), {"norm": "batch"}, "on a model without batch norm"),
        (lambda: nn.BatchNorm1d(4), (4,), {"norm": "instance"}, "one value at a time"),
        (lambda: nn.BatchNorm1d(1), (1,), {"norm": "layer"}, "one value at a time"),
        (lambda: nn.BatchNorm2d(4), (4, 1, 1), {"norm": "instance"}, "one value at a time"),
        (lambda: nn.BatchNorm1d(4), (4,), {"norm": "group", "groups": 4}, "equal groups of at least 2"),
        (lambda: nn.BatchNorm2d(4), (4, 2, 2), {"norm": "group", "groups": 3}, "choose one of 1, 2, 4"),
        (lambda: nn.BatchNorm1d(4), (4,), {"norm": "group+ws", "groups": 2}, "without convolutions"),
        (lambda: named(**PLAIN), (2, 4, 4), {"norm": "group+ws", "groups": 2}, "filters have one weight"),
        (lambda: named(**PLAIN), (2, 4, 4), {"norm": "fixup"}, "without a shortcut"),
        (lambda: nn.BatchNorm1d(4), (4,), {"norm": "fixup"}, "has none"),
        (tiny, (2, 4, 4), {"norm": "bach"}, "unknown model.norm = 'bach'"),
        (
            tiny,
            (2, 4, 4),
            {"norm": "group", "norm_momentum": 0.1},
            'has groups and norm_eps: is only for model.norm = "batch" or',
        ),
        (
            tiny,
            (2, 4, 4),
            {"norm": "none", "norm_eps": 0.1},
            "^model.norm_eps = 0.1 with model.norm = 'none', which has no keys",
        ),
        (
            tiny,
            (2, 4, 4),
            {"norm": "batch", "groups": 2},
            'is only for model.norm = "group" or "group.ws"; leave it out',
        ),
    ],
)
def test_refusals(make: Callable[[], nn.Module], shape: Any, numbers: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        converted(make(), ModelOptions(**numbers), shape)
    assert "\n" not in str(error.value)


def test_a_pass_over_statistics_corrects_no_batch_by_another() -> None:
    x = torch.randn(2 * CHUNK + 7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[CHUNK:] = 3 * x[CHUNK:] + 2
    found = []
    opening = ModelOptions("batch-renorm", renorm_start=0, renorm_r_end=1, renorm_d_end=1)  # from the second batch on
    for normaliser in (ModelOptions("batch"), opening):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            layers = (nn.BatchNorm1d(4), nn.Linear(4, 3), nn.ReLU(), nn.BatchNorm1d(3), nn.Linear(3, 2))
        module = converted(nn.Sequential(*layers), normaliser, (4,)).double()
        resident = Resident(module, Sharing().divide(Layout.of(module)), torch.zeros(4))
        total = Sum.zero(statistics_of(resident.layouts.whole))
        add_statistics(total, resident, x)
        mean = total.mean()
        assert mean is not None
        found.append(mean.floats)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)


def test_a_batch_of_a_pass_over_statistics_is_larger_than_a_chunk_of_an_evaluation() -> None:
    module = nn.Sequential(nn.BatchNorm2d(3)).double()
    resident = Resident(module, Sharing().divide(Layout.of(module)), torch.zeros(3, 64, 64))
    x = torch.randn(400, 3, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    first, *others = resident.chunks(x)
    assert others
    x[first.stop :] += 10  # two batches would not have the variance of the whole
    total = Sum.zero(statistics_of(resident.layouts.whole))
    add_statistics(total, resident, x)
    mean = total.mean()
    assert mean is not None
    found = statistics_of(resident.layouts.whole).unpack(mean)
    np.testing.assert_allclose(found["0.running_var"], x.var((0, 2, 3)).numpy(), rtol=1e-12)


def test_momentum_and_eps_reach_the_layers() -> None:
    for norm in ("batch", "batch-renorm"):
        made = build("cnn", shape=(1, 8, 8), classes=2, seed=0, norm=norm, norm_momentum=0.3, norm_eps=0.01)
        assert {(m.momentum, m.eps) for m in made.modules() if is_batch_norm(m)} == {(0.3, 0.01)}
    made = build("cnn", shape=(1, 8, 8), classes=2, seed=0, norm="layer", norm_eps=0.01)
    assert {(m.num_groups, m.eps) for m in made.modules() if isinstance(m, nn.GroupNorm)} == {(1, 0.01)}
