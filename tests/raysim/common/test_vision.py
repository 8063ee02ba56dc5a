"""torchvision without PyTorch's compiler, each time in a process of its own."""

import subprocess
import sys

import pytest

ON_THE_WAY = """
import sys
from raysim.common import vision

torchvision = vision.torchvision
torchvision.models.resnet18(), torchvision.datasets.MNIST
assert not [name for name in sys.modules if name.startswith(vision.COMPILER)]
"""
USED = """
import sys

import torch
from raysim.common import vision

torchvision = vision.torchvision

kept = torchvision.ops.nms(torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]]), torch.tensor([1.0, 2, 3]), 0.5)
assert kept.tolist() == [2, 1]
assert torchvision.ops.roi_align.__globals__["is_compile_supported"]("cpu")
assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item() == 2
assert type(sys.modules[vision.COMPILER]) is type(sys)
"""
FALLING_BACK = """
import sys
from raysim.common.vision import COMPILER, UTILITIES, _StandIn

sys.modules.update({name: _StandIn(name) for name in (COMPILER, UTILITIES)})
from torch._dynamo import reset
from torch._dynamo.config import cache_size_limit

assert callable(reset) and type(sys.modules[COMPILER]) is type(sys)
"""
BEFOREHAND = """
import sys

import torch._dynamo
import raysim.common.vision

assert sys.modules["torch._dynamo"] is torch._dynamo
"""


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(ON_THE_WAY, id="a process has the compiler only if something asks for it"),
        pytest.param(USED, id="operations of detection and compiled functions have it", marks=pytest.mark.slow),
        pytest.param(FALLING_BACK, id="the compiler answers what its stand-in cannot", marks=pytest.mark.slow),
        pytest.param(BEFOREHAND, id="a compiler that is there already stays", marks=pytest.mark.slow),
    ],
)
def test_stand_in_of_the_compiler(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
