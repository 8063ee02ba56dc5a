"""Convolutions as matrix products: the outputs and gradients of grouped ones."""

from itertools import product

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

from algorithms.training.products import as_products, convolutions

LANES, BATCH = 3, 4


class Net(nn.Module):
    """Two convolutions of different kernels and strides, and a mean."""

    def __init__(self, stride: int, padding: int, bias: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 3, 3, padding=padding, bias=bias)
        self.second = nn.Conv2d(3, 4, (2, 5), stride=(stride, 1), padding=(0, padding), bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).sigmoid()).square().mean()


@pytest.mark.parametrize(("stride", "padding", "bias"), [*product((1, 2), (0, 1, 2), (True, False))])
def test_products_have_the_values_and_gradients_of_convolutions(stride: int, padding: int, bias: bool) -> None:
    torch.manual_seed(0)
    net = Net(stride, padding, bias).double()
    stacks = {name: torch.randn(LANES, *p.shape, dtype=torch.float64) for name, p in net.named_parameters()}
    x = torch.randn(LANES, BATCH, 2, 9, 8, dtype=torch.float64)

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = functional_call(net, parameters, (x,))
        return value

    expected, value = vmap(grad_and_value(loss))(stacks, x)
    with as_products(convolutions(net)):
        found, same = vmap(grad_and_value(loss))(stacks, x)
    torch.testing.assert_close(same, value, rtol=1e-13, atol=0)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-12, atol=1e-13)
    assert all("_conv_forward" not in vars(layer) for layer in net.modules())


def test_in_bf16_products_have_its_type() -> None:
    layer = nn.Conv2d(2, 3, 3)
    with as_products(convolutions(layer)), torch.autocast("cpu", torch.bfloat16):
        y = layer(torch.ones(2, 2, 5, 5))
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.dtype == torch.float32


def test_an_image_without_a_batch_is_convolved_as_before() -> None:
    layer, image = nn.Conv2d(2, 3, 3, stride=2, padding=1), torch.randn(2, 6, 5)
    expected = layer(image)
    with as_products(convolutions(layer)):
        assert torch.equal(layer(image), expected)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(4, 4, 3, dilation=2),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.Conv1d(4, 4, 3),
        nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 3)),
    ],
    ids=["groups", "dilation", "another padding", "padding by name", "one dimension", "weight norm"],
)
def test_other_convolutions_stay_as_they_are(layer: nn.Module) -> None:
    assert convolutions(nn.Sequential(layer, nn.ReLU())) == []
