"""How a visit is computed: the precision of its arithmetic, and whether visits are stacked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from algorithms.engine.errors import InputError, require

Precision: TypeAlias = Literal["fp32", "bf16", "fp64"]
Execution: TypeAlias = Literal["auto", "sequential", "vectorised", "fused"]


@dataclass(frozen=True)
class Compute:
    """How visits are computed. All executions compute the same to rounding; each its own bytes.

    Args:
        execution: "sequential" trains one visit after the other; "vectorised" trains a stack of them at once through
            `torch.func`; "fused" is for stacks of linear layers, with gradients by hand that go straight into the
            weights; "auto" chooses by the model, the device and the sizes: see `choose`.
        precision: "fp32"; "bf16", where forward and backward passes run in bfloat16 by autocast and everything else
            in float32; "fp64", where all entries are float64.
        channels_last: whether images stand in memory with their channels last; only sequential.
        compile: whether the model goes through `torch.compile`; only sequential, and needs a C++ compiler.

    Raises:
        InputError: a value that is not known, or two that exclude each other.
    """

    execution: Execution = "auto"
    precision: Precision = "fp32"
    channels_last: bool = False
    compile: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("execution", get_args(Execution)), ("precision", get_args(Precision))):
            value = getattr(self, name)
            require(value in allowed, f"local.{name}", value, ", ".join(allowed), f'set local.{name} = "{allowed[0]}"')
        stacked = self.execution in ("vectorised", "fused")
        for name in ("channels_last", "compile"):
            if stacked and getattr(self, name):
                raise InputError(
                    f"local.{name} = true with local.execution = {self.execution!r}: must be false, for stacked visits "
                    'have no such option; remove it, or set local.execution = "sequential"'
                )
        if self.execution == "fused" and self.precision == "bf16":
            raise InputError(
                'local.precision = "bf16" with local.execution = "fused": must be fp32 or fp64, for gradients by hand '
                'know no autocast; set local.execution = "sequential"'
            )
