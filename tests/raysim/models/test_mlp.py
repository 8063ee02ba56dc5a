"""The multilayer perceptron and logistic regression: their layers, and what they refuse."""

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
