"""The papers' models: parameter counts worked out by hand, the logits' shape, and the samples that they refuse."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from algorithms.core.batch_norm import is_batch_norm
from partitioning import InputError
from raysim.models.build import build


def conv(inputs: int, outputs: int, kernel: int, bias: bool = True) -> int:
    """Parameters of a convolution."""
    return inputs * outputs * kernel**2 + outputs * bias


def norm(*channels: int) -> int:
    """Parameters of norms: a scale and a shift a channel."""
    return 2 * sum(channels)


def linear(*widths: int) -> int:
    """Parameters of linear layers between these widths."""
    return sum(a * b + b for a, b in pairwise(widths))


def bare(inputs: int, outputs: int, kernel: int) -> int:
    """Parameters of a convolution without bias and its norm."""
    return conv(inputs, outputs, kernel, bias=False) + norm(outputs)


def lstm_layer(inputs: int, hidden: int) -> int:
    """Four gates, each with two matrices and two biases."""
    return 4 * (inputs * hidden + hidden * hidden + 2 * hidden)


def basic(inputs: int, width: int) -> int:
    """ResNet-18's stage: two blocks of two 3x3 convolutions, and a shortcut where the width changes."""
    shortcut = bare(inputs, width, 1) if inputs != width else 0
    return bare(inputs, width, 3) + 3 * bare(width, width, 3) + shortcut


def bottlenecks(inputs: int, width: int, count: int) -> int:
    """ResNet-50's stage: `count` blocks of 1x1, 3x3, 1x1, and a shortcut in the first."""
    first = bare(inputs, width, 1) + bare(width, width, 3) + bare(width, 4 * width, 1) + bare(inputs, 4 * width, 1)
    return first + (count - 1) * (bare(4 * width, width, 1) + bare(width, width, 3) + bare(width, 4 * width, 1))


def inverted(inputs: int, outputs: int, expansion: int) -> int:
    """MobileNetV2's block: 1x1 up (where it expands), 3x3 a channel, 1x1 down."""
    middle = inputs * expansion
    up = bare(inputs, middle, 1) if expansion > 1 else 0
    return up + middle * 9 + norm(middle) + bare(middle, outputs, 1)


# Sandler et al., table 2: expansion, channels, repeats.
TABLE = ((1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1))
WIDTHS = [32] + [channels for _, channels, repeats in TABLE for _ in range(repeats)]
FACTORS = [expansion for expansion, _, repeats in TABLE for _ in range(repeats)]
BOTTLENECKS = bare(3, 32, 3) + sum(map(inverted, WIDTHS, WIDTHS[1:], FACTORS))

RESNET18 = basic(64, 64) + basic(64, 128) + basic(128, 256) + basic(256, 512)
RESNET50 = bare(3, 64, 7) + sum(
    [bottlenecks(64, 64, 3), bottlenecks(256, 128, 4), bottlenecks(512, 256, 6), bottlenecks(1024, 512, 3)]
)


def decoder(low: int, high: int) -> int:
    """DeepLabv3+ behind a backbone, 19 classes: the pyramid (1x1, three 3x3, the image's mean, a 1x1), the decoder."""
    pyramid = 2 * bare(high, 256, 1) + 3 * bare(high, 256, 3) + bare(5 * 256, 256, 1)
    return pyramid + bare(low, 48, 1) + bare(48 + 256, 256, 3) + bare(256, 256, 3) + conv(256, 19, 1)


VGG16 = (
    *(conv(3, 64, 3), conv(64, 64, 3), conv(64, 128, 3), conv(128, 128, 3)),
    *(conv(128, 256, 3), 2 * conv(256, 256, 3), conv(256, 512, 3), 5 * conv(512, 512, 3)),
)

COUNTS = [
    # RADFed's, McMahan et al.'s 2NN, which is FedMMB's 2FNN, and FedBN's for ABIDE
    ("mlp", (54,), 7, {"hidden": [64, 64]}, linear(54, 64, 64, 7), 8_135),
    ("mlp", (1, 28, 28), 10, {"hidden": [200, 200]}, linear(784, 200, 200, 10), 199_210),
    ("mlp", (5995,), 2, {"hidden": [16, 16], "norm": "batch"}, linear(5995, 16, 16, 2) + norm(16, 16), 96_306),
    ("logistic", (54,), 2, {}, linear(54, 2), 110),
    ("lenet", (3, 32, 32), 10, {}, conv(3, 6, 5) + conv(6, 16, 5) + linear(16 * 5 * 5, 120, 84, 10), 62_006),
    (
        *("lenet", (3, 32, 32), 10, {"norm": "batch"}),
        *(conv(3, 6, 5) + conv(6, 16, 5) + linear(400, 120, 84, 10) + norm(6, 16, 120, 84), 62_458),
    ),
    ("cnn3", (1, 28, 28), 10, {}, conv(1, 32, 5) + conv(32, 64, 5) + linear(64 * 7 * 7, 512, 10), 1_663_370),
    (
        *("cnn4", (3, 32, 32), 10, {}),
        *(conv(3, 128, 3) + conv(128, 256, 3) + conv(256, 512, 3) + linear(512 * 4 * 4, 1024, 10), 9_878_794),
    ),
    ("fedbs_mnist", (1, 28, 28), 10, {}, conv(1, 16, 5) + conv(16, 32, 5) + norm(16, 32) + linear(1568, 10), 29_034),
    (
        *("fedbs_cifar", (3, 32, 32), 10, {}),
        conv(3, 100, 5)
        + (conv(100, 150, 3) + conv(150, 250, 3) + conv(250, 500, 3) + norm(100, 150, 250, 500))
        + linear(4500, 270, 150, 10),
        2_865_430,
    ),
    (
        *("digit_cnn", (3, 28, 28), 10, {}),
        conv(3, 64, 5)
        + (conv(64, 64, 5) + conv(64, 128, 5) + linear(6272, 2048, 512, 10))
        + norm(64, 64, 128, 2048, 512),
        14_219_210,
    ),
    (
        *("alexnet_bn", (3, 256, 256), 10, {}),
        conv(3, 64, 11)
        + (conv(64, 192, 5) + conv(192, 384, 3) + conv(384, 256, 3) + conv(256, 256, 3))
        + (linear(9216, 4096, 4096, 10) + norm(64, 192, 384, 256, 256, 4096, 4096)),
        57_063_498,
    ),
    ("vgg16", (3, 150, 200), 7, {}, sum(VGG16) + linear(6 * 4 * 512, 4096, 4096, 7), 81_860_423),
    (
        *("resnet20", (3, 32, 32), 10, {}),
        bare(3, 16, 3)
        + (6 * bare(16, 16, 3) + bare(16, 32, 3) + 5 * bare(32, 32, 3) + bare(32, 64, 3) + 5 * bare(64, 64, 3))
        + linear(64, 10),
        269_722,
    ),
    ("resnet18", (3, 224, 224), 1000, {}, bare(3, 64, 7) + RESNET18 + linear(512, 1000), 11_689_512),
    ("resnet18", (3, 64, 64), 200, {"stem": "small"}, bare(3, 64, 3) + RESNET18 + linear(512, 200), 11_271_432),
    ("resnet18", (3, 64, 64), 200, {}, bare(3, 64, 7) + RESNET18 + linear(512, 200), 11_279_112),
    ("resnet18", (1, 64, 64), 200, {}, bare(1, 64, 7) + RESNET18 + linear(512, 200), 11_272_840),
    ("mobilenet_v2", (3, 224, 224), 10, {}, BOTTLENECKS + bare(320, 1280, 1) + linear(1280, 10), 2_236_682),
    (*("lstm", (80,), 80, {}), *(80 * 8 + lstm_layer(8, 256) + lstm_layer(256, 256) + linear(256, 80), 819_920)),
    ("deeplab_v3plus", (3, 768, 768), 19, {}, BOTTLENECKS + decoder(24, 320), 5_815_539),
    ("deeplab_v3plus", (3, 768, 768), 19, {"backbone": "resnet50"}, RESNET50 + decoder(256, 2048), 40_351_667),
]


@pytest.mark.parametrize(("name", "shape", "classes", "parameters", "by_hand", "count"), COUNTS)
def test_parameter_count(
    name: str, shape: tuple[int, ...], classes: int, parameters: dict[str, object], by_hand: int, count: int
) -> None:
    model = build(name, shape=shape, classes=classes, seed=0, **parameters)
    assert sum(p.numel() for p in model.parameters()) == by_hand == count


SMALLEST = [
    ("cnn", 4),
    ("lenet", 16),
    ("cnn3", 4),
    ("cnn4", 8),
    ("fedbs_mnist", 4),
    ("fedbs_cifar", 2),
    ("digit_cnn", 4),
    ("alexnet_bn", 63),
    ("vgg16", 32),
    ("resnet20", 1),
    ("resnet18", 1),
    ("mobilenet_v2", 1),
    ("deeplab_v3plus", 1),
]
"""The smallest height and width of each model of images."""


@pytest.mark.parametrize(("name", "least"), SMALLEST)
@torch.no_grad()
def test_smallest_image(name: str, least: int) -> None:
    shape = (2, least, least + 3)
    logits = build(name, shape=shape, classes=4, seed=0).eval()(torch.rand(3, *shape))
    assert logits.shape == ((3, 4, *shape[1:]) if name == "deeplab_v3plus" else (3, 4))
    if least == 1:
        return
    # It could not be smaller: without the check, some layer has nothing left to give.
    with pytest.raises(InputError) as error:
        build(name, shape=(2, least + 3, least - 1), classes=4, seed=0)
    message = str(error.value)
    assert f"model {name} on samples of shape (2, {least + 3}, {least - 1})" in message
    assert f"of at least {least}x{least}" in message and "data.image_size" in message and "\n" not in message


@pytest.mark.parametrize("name", [name for name, _ in SMALLEST])
@pytest.mark.parametrize("shape", [(54,), (28, 28), (1, 3, 28, 28)])
def test_samples_that_are_no_images(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError) as error:
        build(name, shape=shape, classes=10, seed=0)
    message = str(error.value)
    assert f"model {name} on samples of shape {shape}: must be images" in message and "\n" not in message


NORMS = {
    "lenet": 4,
    "cnn3": 3,
    "cnn4": 4,
    "fedbs_mnist": 2,
    "fedbs_cifar": 4,
    "digit_cnn": 5,
    "resnet20": 19,
    "resnet18": 20,
    "mobilenet_v2": 52,
    "deeplab_v3plus": 60,
}
"""Layers of batch norm: behind each convolution but those that end a model, and behind hidden layers."""


@pytest.mark.parametrize(("name", "layers"), NORMS.items())
def test_norms(name: str, layers: int) -> None:
    for kind, count in (("batch", layers), ("none", 0)):
        model = build(name, shape=(3, 16, 16), classes=4, seed=0, norm=kind)
        assert sum(is_batch_norm(layer) for layer in model.modules()) == count
        assert model.eval()(torch.rand(2, 3, 16, 16)).isfinite().all()


@pytest.mark.parametrize("name", [*NORMS, "mlp"])
def test_activations_keep_their_input(name: str) -> None:
    layers = build(name, shape=(3, 16, 16), classes=4, seed=0).modules()
    assert not any(layer.inplace for layer in layers if isinstance(layer, (nn.ReLU, nn.ReLU6)))


def test_tables_number_their_layers() -> None:
    model = build("digit_cnn", shape=(3, 28, 28), classes=10, seed=0)
    names = [name for name, _ in model.named_children()]
    assert names == [
        *("conv1", "norm1", "relu1", "pool1", "conv2", "norm2", "relu2", "pool2", "conv3", "norm3", "relu3"),
        *("flatten", "linear4", "norm4", "relu4", "linear5", "norm5", "relu5", "output"),
    ]
