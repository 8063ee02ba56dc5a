"""Every model: its parameter count, its output, and that its initial weights are a function of the seed."""

import pytest
import torch

from partitioning import InputError
from raysim.models.build import MODELS, build

COUNTS = [
    ("logistic", (1, 28, 28), {}, 784 * 10 + 10),
    ("mlp", (1, 28, 28), {}, 199_210),
    ("mlp", (1, 28, 28), {"norm": "batch"}, 199_210 + 2 * 400),
    ("mlp", (1, 28, 28), {"norm": "group"}, 199_210 + 2 * 400),
    ("mlp", (54,), {"hidden": [64]}, 54 * 64 + 64 + 64 * 10 + 10),
    ("cnn", (1, 28, 28), {}, 320 + 18_496 + (64 * 7 * 7 * 128 + 128) + 1_290),
    ("cnn_dropout", (1, 28, 28), {}, 1_206_590 - 52 * 129),
    ("cnn", (3, 32, 32), {"norm": "batch"}, 896 + 18_496 + (64 * 8 * 8 * 128 + 128) + 1_290 + 2 * (32 + 64 + 128)),
    ("cnn", (1, 9, 8), {"channels": [4], "hidden": 6, "norm": "group", "groups": 2}, 40 + 390 + 70 + 2 * (4 + 6)),
]

SHAPES = {"lenet": (1, 16, 16), "lstm": (8,)}
"""The smallest samples of the models that 8x8 images do not fit; the large ones have tests of their own."""

LARGE = ("alexnet_bn", "vgg16")


def _bytes(model: torch.nn.Module) -> list[bytes]:
    return [entry.numpy().tobytes() for entry in model.state_dict().values()]


@pytest.mark.parametrize(("name", "shape", "parameters", "count"), COUNTS)
def test_parameter_count_and_output(
    name: str, shape: tuple[int, ...], parameters: dict[str, object], count: int
) -> None:
    model = build(name, shape=shape, classes=10, seed=0, **parameters)
    assert sum(p.numel() for p in model.parameters()) == count
    logits = model(torch.rand(3, *shape))
    assert logits.shape == (3, 10)
    logits.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("name", [name for name in MODELS if name not in (*LARGE, "transformer")])
def test_seed_decides_the_weights(name: str) -> None:
    def weights(seed: int) -> list[bytes]:
        return _bytes(build(name, shape=SHAPES.get(name, (1, 8, 8)), classes=10, seed=seed))

    assert weights(1) == weights(1)
    assert weights(1) != weights(2)


def test_weights_are_torch_default() -> None:
    torch.manual_seed(7)
    expected = torch.nn.Linear(64, 10)
    model = build("logistic", shape=(1, 8, 8), classes=10, seed=7)
    assert _bytes(model) == _bytes(expected)


def test_global_random_state_is_neither_used_nor_changed() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = _bytes(build("mlp", shape=(4,), classes=2, seed=5))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    assert _bytes(build("mlp", shape=(4,), classes=2, seed=5)) == first


def test_descriptions_and_parameters() -> None:
    assert all(model.description.endswith(".") for model in MODELS.values())
    assert MODELS["mlp"].parameters == {"hidden": (200, 200)}
    assert (MODELS["mlp"].norm, MODELS["logistic"].norm) == ("none", None)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("mpl", {}, "'mlp'"),
        ("resnet", {}, "logistic, mlp, cnn"),
        ("mlp", {"hiden": [3]}, "'hidden'"),
        ("logistic", {"hidden": [3]}, "hidden"),
        ("mlp", {"classes_": 3}, "classes_"),
    ],
)
def test_unknown_names(name: str, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as error:
        build(name, shape=(4,), classes=2, seed=0, **parameters)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("shape", "classes"), [((4,), 0), ((0,), 2), ((), 2)])
def test_impossible_sizes(shape: tuple[int, ...], classes: int) -> None:
    with pytest.raises(InputError):
        build("mlp", shape=shape, classes=classes, seed=0)
