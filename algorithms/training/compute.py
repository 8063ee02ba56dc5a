"""Computation of client updates: precision of the arithmetic, and stacked or sequential training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from algorithms.core.errors import InputError, require

Precision: TypeAlias = Literal["fp32", "bf16", "fp64"]
Execution: TypeAlias = Literal["auto", "sequential", "vectorised", "fused", "low-rank"]


@dataclass(frozen=True)
class Compute:
    """Computation of client updates. All executions agree up to rounding, but not in bytes.

    Args:
        execution: "sequential" trains one client update after the other. "vectorised" trains a stack of them through
            `torch.func`. "fused" trains a stack of models of linear layers, with gradients by hand that go straight
            into the weights. "low-rank" forms no client's weights while client updates start from one model, and is
            fused otherwise. "auto" chooses by model, device and sizes; see `choose`.
        precision: "fp32"; "bf16", with forward and backward passes in bfloat16 by autocast and the rest in float32;
            or "fp64", with all entries in float64.
        channels_last: whether images lie in memory with their channels last; only sequential. Without a value they do
            on a CPU, if the model has a 2-D convolution and a pass of it works so.
        compile: whether the model goes through `torch.compile`; only sequential, needs a C++ compiler.

    Raises:
        InputError: a value is unknown, or two exclude each other.
    """

    execution: Execution = "auto"
    precision: Precision = "fp32"
    channels_last: bool | None = None
    compile: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("execution", get_args(Execution)), ("precision", get_args(Precision))):
            value = getattr(self, name)
            require(value in allowed, f"local.{name}", value, ", ".join(allowed), f'set local.{name} = "{allowed[0]}"')
        stacked = self.execution in ("vectorised", "fused", "low-rank")
        for name in ("channels_last", "compile"):
            if stacked and getattr(self, name):
                raise InputError(
                    f"local.{name} = true with local.execution = {self.execution!r}: must be false, because stacked "
                    'training has no such option; remove it, or set local.execution = "sequential"'
                )
        if self.execution in ("fused", "low-rank") and self.precision == "bf16":
            raise InputError(
                f'local.precision = "bf16" with local.execution = {self.execution!r}: must be fp32 or fp64, because '
                'gradients by hand have no autocast; set local.execution = "sequential"'
            )
