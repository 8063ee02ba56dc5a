"""Checks of the numbers that describe a model."""

import os
from collections.abc import Callable, Sequence

import torch
from torch import nn

from raysim.common.errors import InputError

COPIES = 4
"""Models that a process holds at the least while it trains one: its own, what it received, gradients, a sum."""


def positive(name: str, value: object) -> int:
    """Return `value` if it is a positive whole number.

    Raises:
        InputError: it is not, `name` says of which parameter.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} is {value!r}, but must be a positive whole number: set {name} to 1 or more")
    return value


def positives(name: str, values: object) -> tuple[int, ...]:
    """Return `values` as a tuple if it is a list of at least one positive whole number.

    Raises:
        InputError: it is not, `name` says of which parameter.
    """
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise InputError(f"{name} is {values!r}, but must be a list of positive whole numbers, like [200, 200]")
    return tuple(positive(f"{name}[{i}]", value) for i, value in enumerate(values))


def check_size(name: str, make: Callable[[], nn.Module]) -> None:
    """Refuse a model that no visit could train in this machine's memory, before anything of it is allocated.

    Args:
        name: of the model, for the message.
        make: builds it; called where tensors have shapes and no memory.

    Raises:
        InputError: it is too large.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with torch.device("meta"):
            numbers = sum(each.numel() for each in make().state_dict().values())
    except RuntimeError as error:  # not even the number of bytes is a number
        raise InputError(
            f"model {name} is too large ({str(error).partition(chr(10))[0]}): must fit the memory; set fewer, or "
            "narrower, layers"
        ) from None
    needed = COPIES * torch.finfo(torch.float32).bits // 8 * numbers
    if needed > memory:
        raise InputError(
            f"model {name} has {numbers:,} numbers, of which a visit holds {COPIES} copies, {needed / 1e9:,.1f} GB: "
            f"must fit the memory, {memory / 1e9:,.1f} GB here; set fewer, or narrower, layers"
        )
