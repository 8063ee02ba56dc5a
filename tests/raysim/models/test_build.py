"""Every model: its parameter count, its output, and that its initial weights are a function of the seed."""

from typing import Any

import pytest
import torch

from partitioning import InputError
from raysim.config.model import model_of
from raysim.models.build import MODELS, build
from tests.kit.counts import COUNTS

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
    first, again, other = (
        _bytes(build(name, shape=SHAPES.get(name, (1, 8, 8)), classes=10, seed=seed)) for seed in (1, 1, 2)
    )
    assert first == again != other


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


def test_every_model_has_a_description() -> None:
    assert all(model.description.endswith(".") for model in MODELS.values())


HEADS = r"unknown model.head = .* must be one of .*, linear, output"

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("mpl", {}, "'mlp'"),
    ("resnet", {}, "logistic, mlp, cnn"),
    ("mlp", {"hiden": [3]}, "'hidden'"),
    ("logistic", {"hidden": [3]}, "hidden"),
    ("mlp", {"classes_": 3}, "classes_"),
    ("mlp", {"hidden": []}, r"^model.hidden = \[\]: should have at least one item"),
    ("cnn", {"channels": []}, r"^model.channels = \[\]: should have at least one item"),
    ("mlp", {"hidden": 200}, "hidden = 200"),
    ("mlp", {"hidden": "200"}, "hidden = '200'"),
    ("mlp", {"hidden": [200, 0]}, "hidden = 0"),
    ("mlp", {"hidden": [-1]}, "hidden = -1"),
    ("mlp", {"hidden": [2.5]}, "hidden = 2.5"),
    ("mlp", {"hidden": [True]}, "hidden = True"),
    (
        "mlp",
        {"norm": "layers"},
        r"'none', 'batch', 'group', 'layer', 'instance', 'group\+ws', 'batch-renorm' or 'fixup'",
    ),
    ("mlp", {"norm": "group", "groups": 0}, "^model.groups = 0"),
    ("mlp", {"norm": "group", "groups": 7}, "choose one of 1, 2, 4, 5, 8, 10, 20, 25, 40, 50, 100"),
    ("mlp", {"norm": "group", "groups": 200}, "of at least 2"),
    ("cnn", {"norm": "group", "groups": 3}, "^model.groups = 3: must divide"),
    ("cnn", {"norm": "group", "groups": 64}, "^model.groups = 64: must divide"),
    ("cnn", {"norm": "batch", "norm_momentum": 1.5}, "^model.norm_momentum = 1.5: should be less than or equal to 1"),
    (
        "cnn",
        {"norm": "group", "norm_momentum": 0.1},
        "^model.norm_momentum = 0.1 with model.norm = 'group', which has groups and norm_e",
    ),
    (
        "cnn",
        {"norm": "batch", "renorm_start": 3},
        '^model.renorm_start = 3 with .* is only for model.norm = "batch-renorm"',
    ),
    ("cnn", {"norm": "batch-renorm", "renorm_r_max": 0.5}, "^model.renorm_r_max = 0.5: .* greater than or equal to 1"),
    ("cnn", {"norm": "batch-renorm", "renorm_d_max": -1}, "^model.renorm_d_max = -1"),
    ("cnn", {"norm": "batch-renorm", "renorm_r_end": 3}, "^model.renorm_r_end = 3: .*set model.renorm_r_end = 500"),
    ("cnn", {"norm": "fixup", "groups": 2}, "^model.groups = 2 with model.norm = 'fixup', which has no keys"),
    ("cnn", {"groups": 2}, "^model.groups = 2 with model.norm = 'none'"),
    ("cnn", {"renorm_start": 3}, "^model.renorm_start = 3 with model.norm = 'none'"),
    ("lstm", {"groups": 2}, '^model.groups without model.norm: needs one; set model.norm = "group"'),
    ("lstm", {"norm_momentum": 0.1}, '^model.norm_momentum without model.norm: needs one; set model.norm = "batch"'),
    ("logistic", {"norm": "batch"}, "without batch norm"),
    ("logistic", {"norm": "bach"}, "^model.norm = 'bach'"),
    ("mobilenet_v2", {"dropout": -0.1}, r"^model\.dropout = -0.1: .*0\.2"),
    ("mobilenet_v2", {"dropout": 1.0}, r"^model\.dropout = 1.0: .*0\.2"),
    ("resnet18", {"stem": "smal"}, "stem = 'smal'.*'small'"),
    ("deeplab_v3plus", {"backbone": "resnet18"}, "backbone = 'resnet18'.* 'mobilenet_v2' or 'resnet50'"),
    *(("lstm", {key: 0}, f"{key} = 0") for key in ("vocabulary", "embedding", "hidden", "layers")),
    ("cnn", {"init": "uniform"}, "model.init = 'uniform'"),
    ("cnn", {"init": "normal"}, "^model.init_std = None with model.init"),
    ("cnn", {"init": "normal", "init_std": -1.0}, "^model.init_std = -1.0"),
    ("cnn", {"init_std": 1.0}, "^model.init_std with .* is only for model.init"),
    ("cnn", {"init": "glorot", "weights": "a.safetensors"}, "remove one of the two"),
    ("cnn", {"init": "glorot", "norm": "fixup"}, "remove one of the two"),
    ("cnn", {"weights": "IMAGENET1K_V1"}, "not torchvision's: must be the path"),
    ("cnn", {"weights": "nowhere.safetensors"}, "readable .safetensors file"),
    ("cnn", {"train": "conv3"}, "unknown model.train = 'conv3'.* did you mean"),
    ("cnn", {"train": "output.wait"}, "unknown model.train"),
    *(("cnn", {"head": head}, HEADS) for head in ("fc", "output.weight", "", [], ["output", "fc"])),
]


@pytest.mark.parametrize(("name", "keys", "message"), REFUSED)
def test_wrong_keys_are_refused_in_one_line(name: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        build(name, shape=(3, 16, 16), classes=4, seed=0, **model_of({"name": name, **keys}).keys)
    assert "\n" not in str(error.value)
