"""Client updates by a user's own function, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from algorithms.core.batch_norm import train_mode
from algorithms.core.entries import PERSONAL
from algorithms.core.returned import Returned, encodes
from algorithms.training.batches import stacked_batches
from algorithms.training.forked import forked
from algorithms.training.local import Local
from algorithms.training.own_update import Context, OwnUpdate
from algorithms.training.resident import Resident
from algorithms.training.work import Trainer, Work

MOST_TENSORS = 1000
"""Largest number of a client's personal tensors."""


class Own(Trainer):
    """Trainer that calls a user's function with a copy of the module, with the model in lane 0.

    Each client update gets a copy of the module as it was made: hooks, attributes and frozen parameters of an earlier
    update are gone.

    Args:
        resident: model.
        update: the user's client update.
    """

    has_dropout = True  # the works bring a key for the default generators

    def __init__(self, resident: Resident, update: OwnUpdate) -> None:
        super().__init__(resident)
        self.lanes = 1
        self._update, self._returned = update, Returned(f"local.update = {update.name!r}", update.train)
        self._made = deepcopy(resident.module)
        self._reported: Mapping[str, float] = {}
        self._personal = {
            entry.name.removeprefix(PERSONAL).replace(":", "."): stack[0]
            for entry, stack in resident.stacks.items()
            if entry.name.startswith(PERSONAL)
        }

    def train(self, local: Local, works: Sequence[Work], lr: float) -> NDArray[np.float64]:
        """Make one client update; see `Trainer`."""
        (work,), module = works, deepcopy(self._made)
        self._reported = {}
        if not work.batches or work.masks is None:
            return np.array([np.nan])
        with torch.no_grad():
            for stored, tensor in self._pairs(module):
                tensor.copy_(stored)
        module.train()
        train_mode(module, local.statistics)
        batches = [(batch.x[0], batch.y[0]) for batch in stacked_batches(works)]
        state = {name: tensor.clone() for name, tensor in self._personal.items()}
        context = Context(work.client, work.round_number, lr, local.loss.mean, state)
        devices = [] if self._resident.device.type == "cpu" else [self._resident.device]
        remedy = "keep it in context.state, which `personal` begins, or make it in `__init__` if it never changes"
        alone = self._returned.keeping_nothing(remedy)
        with alone, forked(work.masks.initial_seed(), devices), torch.enable_grad():
            reported = self._update.train(module, batches, context)
        with torch.no_grad():
            for stored, tensor in self._pairs(module):
                stored.copy_(tensor)
        self._keep(context.state)
        self._reported = self._numbers(reported)
        return np.array([self._reported["loss"]])

    def _pairs(self, module: nn.Module) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield each entry of the model in the lane, and the module's tensor of its name."""
        tensors = module.state_dict(keep_vars=True)
        for entry, stack in self._resident.stacks.items():
            if entry.name.startswith(PERSONAL):
                continue
            tensor = tensors.get(entry.name)
            if tensor is None or tensor.shape != entry.shape:
                raise self._returned.fault(f"leave the model's tensors and their shapes, and changed {entry.name!r}")
            yield stack[0], tensor

    def reported(self, lane: int) -> Mapping[str, float]:
        """Return the numbers of the latest client update."""
        return self._reported

    def _keep(self, state: Mapping[str, object]) -> None:
        """Copy the personal tensors into the lane."""
        if state.keys() != self._personal.keys():
            wrong = min(state.keys() ^ self._personal.keys(), key=str)
            raise self._returned.fault(
                f"leave context.state with the tensors of its `personal` ({', '.join(self._personal) or 'none'}), and "
                f"{wrong!r} is another or missing",
                "return it from `personal`",
            )
        with torch.no_grad():
            for name, kept in self._personal.items():
                value = state[name]
                if not isinstance(value, torch.Tensor):
                    raise self._returned.fault(
                        f"leave context.state[{name!r}] as a tensor, and left a {type(value).__name__}"
                    )
                if value.shape != kept.shape or not torch.can_cast(value.dtype, kept.dtype):
                    wanted, given = (f"{tuple(each.shape)} of {each.dtype}" for each in (kept, value))
                    raise self._returned.fault(f"leave context.state[{name!r}] as a tensor {wanted}, and left {given}")
                kept.copy_(value)

    def _numbers(self, reported: object) -> dict[str, float]:
        """Return the numbers of a client update, as floats."""
        if not isinstance(reported, Mapping) or "loss" not in reported:
            names = ", ".join(map(repr, reported)) if isinstance(reported, Mapping) else ""
            given = f"only {names:.80}" if names else f"{reported!r:.80}"
            raise self._returned.fault(
                f'return numbers by name with the training loss, such as {{"loss": 0.5}}, and returns {given}'
            )
        numbers = {}
        for name, value in reported.items():
            plain = value.detach() if isinstance(value, torch.Tensor) else value
            numbers[self._returned.name(name)] = self._returned.number(ascii(name), plain)
        return numbers


def with_personal(module: nn.Module, update: OwnUpdate) -> nn.Module:
    """Add a client's first personal tensors to a module, as buffers.

    Raises:
        InputError: the user's function gives no tensors by name, or too many.
    """
    if update.personal is None:
        return module
    given = update.personal(module)
    fits = isinstance(given, Mapping) and len(given) <= MOST_TENSORS
    if not fits or not all(_is_personal(name, each) for name, each in given.items()):
        raise Returned(f"local.update = {update.name!r}", update.personal).fault(
            f"return from `personal` at most {MOST_TENSORS:,} real tensors by names of UTF-8 without a colon, and "
            f"returns a {type(given).__name__}"
        )
    floating = next((p.dtype for p in module.parameters()), torch.float32)
    for name, value in given.items():
        kind = floating if value.is_floating_point() else torch.int64
        module.register_buffer(f"{PERSONAL}{name}".replace(".", ":"), value.detach().to(kind).clone())
    return module


def _is_personal(name: object, value: object) -> bool:
    return encodes(name) and ":" not in str(name) and isinstance(value, torch.Tensor) and not value.is_complex()
