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

NAME = "_dynamo"

# PyTorch wraps these methods to keep its compiler away, and imports it for that in their first call. With this mark the
# wrapper calls the method as it is.
for _method in (torch.optim.Optimizer.__init__, torch.optim.Optimizer.add_param_group):
    setattr(unwrap(_method), "__dynamo_disable", unwrap(_method))


class _StandIn(ModuleType):
    """Stand-in for the compiler: while nothing is compiled, there is nothing to switch off.

    Everything else that is asked of it is the compiler's own, which it imports for that.
    """

    compiled_autograd = SimpleNamespace(_disable=nullcontext)

    def __getattr__(self, name: str) -> Any:
        if vars(torch).get(NAME) is self:
            delattr(torch, NAME)
        return getattr(import_module(f"torch.{NAME}"), name)


_STAND_IN = _StandIn(f"torch.{NAME}")


def take_step(optimiser: torch.optim.Optimizer) -> None:
    """Take a step of an optimiser of PyTorch; its own method `step` is wrapped, too."""
    with torch.no_grad():
        unwrap(type(optimiser).step)(optimiser)


@contextmanager
def left_out() -> Iterator[None]:
    """Take gradients of `torch.func` in the context without the compiler, unless the process has it already.

    PyTorch would import it to switch its own autograd off meanwhile.
    """
    if NAME in vars(torch) or f"torch.{NAME}" in sys.modules:
        yield
        return
    setattr(torch, NAME, _STAND_IN)
    try:
        yield
    finally:
        if vars(torch).get(NAME) is _STAND_IN:
            delattr(torch, NAME)
