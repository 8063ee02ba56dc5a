"""What distinguishes the models that are no plain stacks: shortcuts, strides, windows, symbols."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from partitioning import InputError
from raysim.common.vision import torchvision
from raysim.models.build import build
from raysim.models.networks import ResidualBlock, WindowMean


def test_shortcut_takes_every_other_pixel_and_adds_zeros() -> None:
    block = ResidualBlock(2, 4, 2, "none")
    for parameter in block.parameters():
        nn.init.zeros_(parameter)
    x = torch.rand(3, 2, 4, 6)
    expected = torch.zeros(3, 4, 2, 3)
    for row in range(2):
        for column in range(3):
            expected[:, :2, row, column] = x[:, :, 2 * row, 2 * column]
    assert torch.equal(block(x), expected)


def test_resnet20_halves_twice() -> None:
    model = build("resnet20", shape=(3, 32, 32), classes=10, seed=0)
    assert isinstance(model, nn.Sequential)
    assert model[:-3](torch.rand(2, 3, 32, 32)).shape == (2, 64, 8, 8)


@pytest.mark.parametrize(("stem", "side"), [("imagenet", 2), ("small", 8)])
def test_resnet18_has_two_stems(stem: str, side: int) -> None:
    model = build("resnet18", shape=(3, 64, 64), classes=5, seed=0, stem=stem)
    seen: list[torch.Size] = []
    model.get_submodule("layer4").register_forward_hook(lambda layer, x, y: seen.append(y.shape))
    model(torch.rand(2, 3, 64, 64))
    assert seen == [(2, 512, side, side)]


@pytest.mark.parametrize(
    ("backbone", "widths"), [("mobilenet_v2", (24, 320)), pytest.param("resnet50", (256, 2048), marks=pytest.mark.slow)]
)
@torch.no_grad()
def test_deeplab_strides(backbone: str, widths: tuple[int, int]) -> None:
    model = build("deeplab_v3plus", shape=(3, 64, 96), classes=5, seed=0, backbone=backbone).eval()
    low = model.get_submodule("low")(torch.rand(1, 3, 64, 96))
    assert low.shape == (1, widths[0], 16, 24)
    assert model.get_submodule("high")(low).shape == (1, widths[1], 4, 6)


def test_holes_stand_in_for_a_stride() -> None:
    """Every other pixel of the features with holes is what the network with its fifth stride computes."""
    model = build("deeplab_v3plus", shape=(3, 64, 64), classes=5, seed=0).double().eval()
    plain = torchvision.models.mobilenet_v2(weights=None).features[:18].double().eval()
    ours, theirs = ([*nn.Sequential(*parts).state_dict().values()] for parts in ([model.low, model.high], [plain]))
    for mine, other in zip(ours, theirs, strict=True):
        other.copy_(mine)
    x = torch.rand(1, 3, 64, 64, dtype=torch.float64)
    with torch.no_grad():
        assert torch.allclose(model.high(model.low(x))[..., ::2, ::2], plain(x), atol=1e-12)


@pytest.mark.parametrize("height", [1, 6, 7, 11])
def test_window_mean_is_adaptive_pooling(height: int) -> None:
    x = torch.rand(2, 3, height, 8, dtype=torch.float64, requires_grad=True)
    ours, theirs = WindowMean(height, 8, 6).double()(x), F.adaptive_avg_pool2d(x, 6)
    assert torch.allclose(ours, theirs, atol=1e-7)
    weights = torch.rand_like(theirs)
    gradients = [torch.autograd.grad((y * weights).sum(), x)[0] for y in (ours, theirs)]
    assert torch.allclose(*gradients, atol=1e-7)


@pytest.mark.parametrize("shape", [(1, 28, 28), (80, 1)])
def test_lstm_takes_sequences(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError) as error:
        build("lstm", shape=shape, classes=80, seed=0)
    message = str(error.value)
    assert f"model lstm on samples of shape {shape}: must be sequences" in message and "\n" not in message


@pytest.mark.parametrize(("value", "written"), [(0.5, "0.5"), (-1.0, "-1"), (80.0, "80"), (float("nan"), "nan")])
def test_lstm_takes_symbols(value: float, written: str) -> None:
    model = build("lstm", shape=(4,), classes=3, seed=0, hidden=5)
    x = torch.tensor([[0.0, 79.0, 1.0, 2.0], [3.0, 4.0, value, 5.0]])
    with pytest.raises(InputError) as error:
        model(x)
    message = str(error.value)
    assert f"on the value {written}: must be a whole number from 0 to 79" in message and "\n" not in message


def test_lstm_reads_the_last_state() -> None:
    model = build("lstm", shape=(4,), classes=3, seed=0, hidden=5)
    x = torch.tensor([[3.0, 1.0, 4.0, 1.0]])
    state = model.get_submodule("lstm")(model.get_submodule("embedding")(x.long()))[1][0][-1]
    assert torch.allclose(model(x), model.get_submodule("output")(state))
