"""Checks of a model as a module: its size, and the duties of a user's own."""

import os
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from algorithms.training.forked import forked
from raysim.common.errors import InputError

MODEL_COPIES = 4
"""Models that a process holds at least during training: its own, the received one, gradients, a sum."""

TRIAL_SEED = 1

UNCHANGED = "leave its samples unchanged, because later passes read them again, and changes them in place"
"""Duty of a module that writes into its samples."""


class WithoutDraws(TorchFunctionMode):
    """Context that draws no initial weights: for tensors without memory, `normal_` imports PyTorch's compiler."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keys = kwargs or {}
        if function.__name__.endswith("normal_"):
            return args[0] if args else keys["tensor"]
        return function(*args, **keys)


def check_size(name: str, make: Callable[[], nn.Module]) -> None:
    """Refuse a model that this machine's memory cannot train, before any of it is allocated.

    Args:
        name: name of the model, for the error message.
        make: builder; it is called in a context that gives tensors shapes but no memory.

    Raises:
        InputError: the model is too large.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with torch.device("meta"), WithoutDraws():
            numbers = sum(each.numel() for each in make().state_dict().values())
    except RuntimeError as error:  # the number of bytes overflows
        raise InputError(
            f"model {name} is too large ({str(error).partition(chr(10))[0]}): must fit the memory; set fewer, or "
            "narrower, layers"
        ) from None
    needed = MODEL_COPIES * torch.finfo(torch.float32).bits // 8 * numbers
    if needed > memory:
        raise InputError(
            f"model {name} has {numbers:,} values; a client update holds {MODEL_COPIES} copies, {needed / 1e9:,.1f} "
            f"GB: must fit the memory, {memory / 1e9:,.1f} GB here; set fewer, or narrower, layers"
        )


def make_own_module(name: str, make: Callable[[], nn.Module], shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build a user's module; report its errors and wrong outputs in one line.

    Args:
        name: name of the model.
        make: builder.
        shape: shape of one sample.
        classes: number of outputs.

    Raises:
        InputError: the builder fails, or the module does not return the logits [n, classes, ...] alone.
    """
    duty = "made"
    try:
        module = make()
        if not isinstance(module, nn.Module):
            raise TypeError(f"it is a {type(module).__name__}, not a torch.nn.Module")
        duty = f"one that takes samples of shape {shape} and returns {classes} logits each"
        with torch.no_grad():
            logits = module.eval()(torch.zeros(2, *shape))
        module.train()
        if not isinstance(logits, torch.Tensor):
            raise TypeError(f"it returns a {type(logits).__name__}")
        outputs = tuple(logits.shape)
        if outputs[:2] != (2, classes):
            raise TypeError(f"of two samples it returns {outputs}")
    except (InputError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a user's module may raise anything
        why = str(error).partition("\n")[0]
        raise InputError(
            f"model.name = {name!r}: must be {duty} ({type(error).__name__}: {why}); correct it"
        ) from error
    return module


def check_own_module(module: nn.Module, sample: torch.Tensor, name: str) -> None:
    """Refuse a user's module unless its training is a function of its entries, the samples and a key.

    The check passes two samples through a copy of the module, in training and in evaluation.

    Args:
        module: the user's module; it stays unchanged.
        sample: one sample, [*shape], of the module's type; its values do not matter.
        name: name of the model.

    Raises:
        InputError: it changes its samples, or its logits are not a tensor, do not depend on its parameters, or change
            in a second pass.
    """
    tried, x = deepcopy(module).cpu(), torch.ones_like(torch.stack([sample, sample]))
    try:
        duty = _broken_duty_in_training(tried, x) or _broken_duty_in_evaluation(tried, x)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's module may raise anything
        duty = f"train on samples of shape {tuple(sample.shape)} ({type(error).__name__}: {error})"
    if duty:
        raise InputError(f"model.name = {name!r}: must {duty}; correct it")


def _broken_duty_in_training(module: nn.Module, x: torch.Tensor) -> str:
    entries, found = deepcopy(module.state_dict()), []
    for _ in range(2):
        module.load_state_dict(entries)
        with forked(TRIAL_SEED):
            found.append(module.train()(given := x.clone()))
        if _is_changed(given, x):
            return UNCHANGED
    if not isinstance(found[0], torch.Tensor):
        return f"return logits alone in training, and returns a {type(found[0]).__name__}"
    if not found[0].requires_grad:
        return "return logits that depend on its parameters, and these are detached from them"
    if not torch.equal(*found):
        return (
            "return the same logits for the same samples, entries and seed, and does not in training: draw from the "
            "default generator of torch, NumPy or Python, and keep lasting values in parameters and buffers"
        )
    return ""


@torch.no_grad()
def _broken_duty_in_evaluation(module: nn.Module, x: torch.Tensor) -> str:
    first, second = (module.eval()(given := x.clone()) for _ in range(2))
    if _is_changed(given, x):
        return UNCHANGED
    return "" if torch.equal(first, second) else "return the same logits in evaluation, and draws random numbers there"


def _is_changed(given: torch.Tensor, x: torch.Tensor) -> bool:
    """Return whether a fresh copy of x was written to; torch counts writes, even those that leave the values equal."""
    return given._version > 0 or not torch.equal(given, x)
