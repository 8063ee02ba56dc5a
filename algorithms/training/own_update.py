"""A client update of the user's own, as a plain function on an ordinary module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:  # The experiment file is checked before torch is imported.
    import torch
    from torch import nn

Batches: TypeAlias = "Sequence[tuple[torch.Tensor, torch.Tensor]]"
"""Inputs and labels of each batch of a client update, all passes end to end."""


@dataclass
class Context:
    """Everything that a client update knows beside its model and its batches.

    Args:
        client: id of the client.
        round: round, starting at 1.
        lr: learning rate of the round.
        loss: mean loss of a batch, `local.loss`, from (outputs, y).
        state: the client's personal tensors by name; what stands here after the update is kept.
    """

    client: int
    round: int
    lr: float
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    state: dict[str, torch.Tensor]


@dataclass(frozen=True)
class OwnUpdate:
    """A user's client update: train(model, batches, context) changes the model in place and returns numbers.

    The model is a new copy for each client update. torch's, NumPy's and Python's default generators are seeded by the
    client update's key.

    Args:
        name: name in the experiment file.
        train: the function. Its numbers, by name, must have "loss"; all of them reach the weighting and the server.
        personal: function of the model that returns a client's first personal tensors; None without personal state.
    """

    name: str
    train: Callable[[nn.Module, Batches, Context], Mapping[str, Any]] = field(repr=False)
    personal: Callable[[nn.Module], Mapping[str, torch.Tensor]] | None = field(default=None, repr=False)
