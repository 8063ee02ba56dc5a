"""The multilayer perceptron and logistic regression: their layers, and what they refuse."""

import pytest
from torch import nn

from partitioning import InputError
from raysim.models.build import build


def _layers(name: str, **parameters: object) -> list[str]:
    model = build(name, shape=(1, 2, 2), classes=3, seed=0, **parameters)
    return [type(layer).__name__ for layer in model.children()]


def test_layers() -> None:
    assert _layers("logistic") == ["Flatten", "Linear"]
    assert _layers("logistic", norm="none") == ["Flatten", "Linear"]
    assert _layers("mlp", hidden=[8]) == ["Flatten", "Linear", "ReLU", "Linear"]
    assert _layers("mlp", hidden=(8,), norm="batch") == ["Flatten", "Linear", "BatchNorm1d", "ReLU", "Linear"]
    assert _layers("mlp", hidden=[8], norm="group", groups=4) == ["Flatten", "Linear", "GroupNorm", "ReLU", "Linear"]


def test_relu_keeps_its_input() -> None:
    layers = build("mlp", shape=(4,), classes=2, seed=0).modules()
    assert not any(layer.inplace for layer in layers if isinstance(layer, nn.ReLU))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"hidden": []}, "hidden is []"),
        ({"hidden": 200}, "hidden is 200"),
        ({"hidden": "200"}, "hidden is '200'"),
        ({"hidden": [200, 0]}, "hidden[1] is 0"),
        ({"hidden": [-1]}, "hidden[0] is -1"),
        ({"hidden": [2.5]}, "hidden[0] is 2.5"),
        ({"hidden": [True]}, "hidden[0] is True"),
        ({"norm": "layers"}, "none, batch, group, layer, instance, group+ws, batch-renorm, fixup"),
        ({"norm": "group", "groups": 0}, "groups is 0"),
        ({"norm": "group", "groups": 7}, "choose one of 1, 2, 4, 5, 8, 10, 20, 25, 40, 50, 100"),
        ({"norm": "group", "groups": 200}, "of at least 2"),
    ],
)
def test_refusals(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as error:
        build("mlp", shape=(4,), classes=2, seed=0, **parameters)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("norm", "message"), [("batch", "without batch norm"), ("bach", "is not known")])
def test_logistic_takes_no_norm(norm: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build("logistic", shape=(4,), classes=2, seed=0, norm=norm)
