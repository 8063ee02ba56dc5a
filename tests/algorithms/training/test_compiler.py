"""Processes that compile nothing do without PyTorch's compiler, and those that ask for it have it."""

import subprocess
import sys

import pytest

WITHOUT = """
import sys
import torch
from torch.func import grad_and_value, vmap
from algorithms.training.compiler import left_out, take_step
from raysim.models.build import build

build("resnet20", shape=(3, 8, 8), classes=2, seed=0)
weight = torch.ones(3)
optimiser = torch.optim.AdamW([weight], lr=0.5)
with left_out():
    gradients, _ = vmap(grad_and_value(lambda w: w.square().sum()))(torch.ones(2, 3))
weight.grad = gradients[0]
take_step(optimiser)
assert gradients.tolist() == [[2.0] * 3] * 2 and weight[0] < 0.51
assert "torch._dynamo" not in sys.modules and "_dynamo" not in vars(torch)
"""

WITH = """
def loss(w):
    {asks}
    assert torch._dynamo.config.suppress_errors is False and torch._dynamo is sys.modules["torch._dynamo"]
    return w.square().sum()

with left_out():
    again, _ = vmap(grad_and_value(loss))(torch.ones(2, 3))
assert torch.equal(again, gradients)
assert vars(torch)["_dynamo"] is sys.modules["torch._dynamo"]
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(WITHOUT, id="nothing"),
        pytest.param(WITHOUT + WITH.format(asks="import torch._dynamo"), id="import", marks=pytest.mark.slow),
        pytest.param(WITHOUT + WITH.format(asks="pass"), id="attribute", marks=pytest.mark.slow),
    ],
)
def test_the_compiler_is_there_only_if_something_asks_for_it(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
