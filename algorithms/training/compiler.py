"""PyTorch's compiler, left out of processes that compile nothing: to import it takes a second or more, and 100 MB."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from inspect import unwrap
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

COMPILER = "_dynamo"
"""Name of the compiler in `torch`."""

# PyTorch wraps this method, which its optimisers call when they are made, to keep the compiler away, and imports the
# compiler for that. With this mark the wrapper calls the method as it is.
_made = unwrap(torch.optim.Optimizer.add_param_group)
setattr(_made, "__dynamo_disable", _made)


class _StandIn(ModuleType):
    """Stand-in for the compiler: while nothing is compiled, there is nothing to switch off.

    Everything else that is asked of it is the compiler's own, which it imports for that.
    """

    compiled_autograd = SimpleNamespace(_disable=nullcontext)

    def __getattr__(self, name: str) -> Any:
        if vars(torch).get(COMPILER) is self:
            delattr(torch, COMPILER)
        return getattr(import_module(f"torch.{COMPILER}"), name)


_STAND_IN = _StandIn(f"torch.{COMPILER}")


def take_step(optimiser: torch.optim.Optimizer) -> None:
    """Take a step of an optimiser of PyTorch; its own method `step` is wrapped, too."""
    with torch.no_grad():
        unwrap(type(optimiser).step)(optimiser)


@contextmanager
def left_out() -> Iterator[None]:
    """Take gradients of `torch.func` in the context without the compiler, unless the process has it already.

    PyTorch would import it to switch its own autograd off meanwhile.
    """
    if COMPILER in vars(torch) or f"torch.{COMPILER}" in sys.modules:
        yield
        return
    setattr(torch, COMPILER, _STAND_IN)
    try:
        yield
    finally:
        if vars(torch).get(COMPILER) is _STAND_IN:
            delattr(torch, COMPILER)
