"""Contrastive term of the loss: features near those of one model, and away from those of another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cosine_similarity, softplus

from algorithms.engine.head import head_layers
from algorithms.training.chain import RECEIVED, LocalSteps

Entries = dict[str, torch.Tensor]
Anchors = tuple[Entries, Entries, torch.Tensor]
"""Parameters of the received and of the previous model, and whether there is a previous one, as 0 or 1."""


@dataclass(frozen=True)
class Contrast:
    """Contrastive term mu l_con of a batch, with the features z of w, z_r of the received and z_p of a previous model.

        l_con = -log(exp(sim(z, z_r) / T) / (exp(sim(z, z_r) / T) + exp(sim(z, z_p) / T)))

    A client without a previous model, whose slot is 0, has no such term.

    Args:
        mu: factor of the term.
        temperature: T.
        slot: slot of the previous model.
    """

    mu: float
    temperature: float
    slot: str

    def __call__(self, z: torch.Tensor, received: torch.Tensor, previous: torch.Tensor) -> torch.Tensor:
        """Return the term from the features of a batch, [n, features] each."""
        nearer = cosine_similarity(z, previous, dim=1) - cosine_similarity(z, received, dim=1)
        return self.mu * softplus(nearer / self.temperature).mean()


def contrasting(contrast: Contrast | None, module: nn.Module, steps: LocalSteps) -> Contrasting | None:
    """Return the contrastive term of a stack of client updates, if there is one."""
    return None if contrast is None else Contrasting(contrast, module, steps)


class Contrasting:
    """Contrastive term of a stack of client updates. Features are the input of the module's head, [n, features].

    Args:
        contrast: the term.
        module: model; it is watched until `close`.
        steps: weights and slots of the client updates.
    """

    def __init__(self, contrast: Contrast, module: nn.Module, steps: LocalSteps) -> None:
        self._contrast, self._module = contrast, module
        self._received, self._previous = steps.stacks(RECEIVED), steps.stacks(contrast.slot)
        self._known = torch.stack([stack.flatten(1).any(1) for stack in self._previous.values()]).any(0)
        self._features = torch.empty(0)
        layer = module.get_submodule(head_layers(module)[0])
        self.close = layer.register_forward_pre_hook(self._take).remove

    def anchors(self, lanes: slice | int) -> Anchors:
        """Return the anchors of some lanes, with a leading dimension, or of one lane."""
        received, previous = ({n: each[lanes] for n, each in s.items()} for s in (self._received, self._previous))
        return received, previous, self._known[lanes].to(next(iter(previous.values())).dtype)

    def __call__(self, anchors: Anchors, constant: Mapping[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        """Return the term of the batch that passed the module last.

        Args:
            anchors: anchors of its lane.
            constant: all entries beside the parameters; they stay unchanged.
            x: inputs, [n, *shape].
        """
        z = self._features
        received, previous, known = anchors
        with torch.no_grad():
            others = [self._under(weights, constant, x) for weights in (received, previous)]
        return known * self._contrast(z, *others)

    def _under(self, weights: Entries, constant: Mapping[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        """Return the features of a batch under other weights."""
        # Batch norm tracks its statistics in place.
        copies = {name: each.clone() for name, each in constant.items()}
        functional_call(self._module, {**copies, **weights}, (x,))
        return self._features

    def _take(self, layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        self._features = inputs[0].flatten(1)
