"""Optimisers of PyTorch by name, for one client update or a stack of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from algorithms.core.errors import InputError
from algorithms.training.compiler import take_step
from algorithms.training.steps import LocalSteps, Tensors

Stored = tuple[torch.Tensor, bool]
"""State of a parameter, [lanes, ...], and whether it has the parameter's shape; else it is a number a lane."""


@dataclass(frozen=True)
class TorchOptimiser:
    """An optimiser of `torch.optim` that works number by number, so that a stack of weights is as good as one model's.

    Its state starts anew in each client update.

    Args:
        name: class of `torch.optim`.
        options: its arguments, apart from `lr`.

    Raises:
        InputError: PyTorch refuses the arguments.
    """

    name: str
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        try:
            self._make([torch.zeros(1)], 0.1)
        except (TypeError, ValueError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            given = {name: value for name, value in self.options.items() if name != "weight_decay"}
            raise InputError(
                f"local.optimizer_options = {given} for torch.optim.{self.name}: must be its arguments "
                f"({reason}); correct them"
            ) from None

    def __call__(self, steps: LocalSteps, g: Tensors, lanes: slice) -> None:
        """Change the weights of some lanes, which have all taken equally many steps."""
        weights = steps.view(None, lanes)
        optimiser = self._make(weights, steps.lr)
        for weight, gradient in zip(weights, g, strict=True):
            weight.grad = gradient
        memory = steps.memory
        if steps.turn:
            for weight, stacks in zip(weights, memory, strict=True):
                # Shaped state is a view and changes in place; numbers are the same for all lanes of the step.
                optimiser.state[weight] = {
                    name: stack[lanes] if is_shaped else stack[lanes.start].clone()
                    for name, (stack, is_shaped) in stacks.items()
                }
        take_step(optimiser)
        if not memory:
            memory += [{} for _ in weights]
        for weight, stacks in zip(weights, memory, strict=True):
            weight.grad = None
            _store(stacks, optimiser.state[weight], weight, lanes, len(next(iter(steps.weights.values()))))

    def _make(self, weights: Tensors, lr: float) -> torch.optim.Optimizer:
        made: torch.optim.Optimizer = getattr(torch.optim, self.name)(weights, lr=lr, **self.options)
        return made


def _store(stacks: dict[str, Stored], state: Mapping[str, Any], weight: torch.Tensor, lanes: slice, count: int) -> None:
    """Store the state of some lanes of a parameter in its stacks, unless it is a view on them."""
    for name, value in state.items():
        if value is None:
            continue
        number = torch.as_tensor(value)
        is_shaped = number.shape == weight.shape
        if name not in stacks:
            stacks[name] = number.new_zeros((count, *(number.shape[1:] if is_shaped else ()))), is_shaped
        stack, _ = stacks[name]
        if not is_shaped or number.data_ptr() != stack[lanes].data_ptr():
            stack[lanes] = number
