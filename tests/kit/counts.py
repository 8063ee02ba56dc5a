"""Parameters of models, counted by hand."""

from itertools import pairwise

COUNTS = [
    ("logistic", (1, 28, 28), {}, 784 * 10 + 10),
    ("mlp", (1, 28, 28), {}, 199_210),
    ("mlp", (1, 28, 28), {"norm": "batch"}, 199_210 + 2 * 400),
    ("mlp", (1, 28, 28), {"norm": "group"}, 199_210 + 2 * 400),
    ("mlp", (54,), {"hidden": [64]}, 54 * 64 + 64 + 64 * 10 + 10),
    ("cnn", (1, 28, 28), {}, 320 + 18_496 + (64 * 7 * 7 * 128 + 128) + 1_290),
    ("cnn_dropout", (1, 28, 28), {}, 1_206_590 - 52 * 129),
    (
        "cnn",
        (3, 32, 32),
        {"norm": "batch"},
        896 + 18_496 + (64 * 8 * 8 * 128 + 128) + 1_290 + 2 * (32 + 64 + 128),
    ),
    (
        "cnn",
        (1, 9, 8),
        {"channels": [4], "hidden": 6, "norm": "group", "groups": 2},
        40 + 390 + 70 + 2 * (4 + 6),
    ),
]


RECIPE_PARAMETERS = 256 * 64 + 64 * 64 + 2 * (4 * 64 + (64 + 1) * (192 + 64 + 256) + (256 + 1) * 64) + 2 * 64
"""Embeddings of tokens and places; norms, attention and a hidden layer, twice; the last norm."""


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


PAPERS = [
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
    (
        *("lstm", (80,), 80, {}),
        *(80 * 8 + lstm_layer(8, 256) + lstm_layer(256, 256) + linear(256, 80), 819_920),
    ),
    ("deeplab_v3plus", (3, 768, 768), 19, {}, BOTTLENECKS + decoder(24, 320), 5_815_539),
    ("deeplab_v3plus", (3, 768, 768), 19, {"backbone": "resnet50"}, RESNET50 + decoder(256, 2048), 40_351_667),
]
