"""Contrastive term of the loss: features near those of one model, and away from those of another."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cosine_similarity, softplus

from algorithms.core.errors import InputError
from algorithms.core.head import head_layers
from algorithms.training.steps import LocalSteps
from algorithms.training.terms import RECEIVED

Entries = Mapping[str, torch.Tensor]
Anchors = tuple[Entries, Entries, torch.Tensor]
"""Parameters of the received and of the previous model, and whether there is a previous one, as 0 or 1."""


@torch.no_grad()
def check_head(module: nn.Module, sample: torch.Tensor) -> None:
    """Raise InputError unless a model calls its head as a layer.

    Args:
        module: model; left unchanged.
        sample: one sample, [*shape]; its values do not matter.
    """
    tried, called = deepcopy(module).eval(), list[nn.Module]()
    for name in head_layers(tried)[:1]:
        tried.get_submodule(name).register_forward_pre_hook(lambda layer, _: called.append(layer))
    tried(torch.stack([sample, sample]))  # batch norm without statistics needs two
    if not called:
        raise InputError(
            "moon with a model that does not call its head as a layer: must call it, because its input are the "
            "features; set model.head to a layer that is called"
        )


class Contrast:
    """Contrastive term mu l_con of a stack of client updates; features are the input of the module's head.

        l_con = -log(exp(sim(z, z_r) / T) / (exp(sim(z, z_r) / T) + exp(sim(z, z_p) / T)))

    z, z_r and z_p are the features of the trained, the received and a previous model. A client without a previous
    model, whose slot is 0, has no such term.

    Args:
        mu: factor of the term.
        temperature: T.
        slot: slot of the previous model.
        module: model; it is watched until `close`.
        steps: weights and slots of the client updates.
    """

    def __init__(self, mu: float, temperature: float, slot: str, module: nn.Module, steps: LocalSteps) -> None:
        self._mu, self._temperature, self._module = mu, temperature, module
        self._received, self._previous = steps.stacks(RECEIVED), steps.stacks(slot)
        self._known = torch.stack([stack.reshape(len(stack), -1).any(1) for stack in self._previous.values()]).any(0)
        self._features = torch.empty(0)
        layer = module.get_submodule(head_layers(module)[0])
        self.close = layer.register_forward_pre_hook(self._take, with_kwargs=True).remove

    def anchors(self, lanes: slice | int) -> Anchors:
        """Return the anchors of some lanes, with a leading dimension, or of one lane."""
        received, previous = ({n: each[lanes] for n, each in s.items()} for s in (self._received, self._previous))
        return received, previous, self._known[lanes].to(next(iter(previous.values())).dtype)

    def __call__(self, anchors: Anchors, constant: Entries, x: torch.Tensor) -> torch.Tensor:
        """Return the term of the batch that passed the module last.

        Args:
            anchors: anchors of its lane.
            constant: all entries beside the parameters; they stay unchanged.
            x: inputs, [n, *shape].
        """
        z, (received, previous, known) = self._features, anchors
        with torch.no_grad():
            near, far = (self._under(weights, constant, x) for weights in (received, previous))
            far = torch.where(known > 0, far, near)  # a weight of norm 0 may have features that are NaN
        nearer = cosine_similarity(z, far, dim=1) - cosine_similarity(z, near, dim=1)
        return self._mu * known * softplus(nearer / self._temperature).mean()

    def _under(self, weights: Entries, constant: Entries, x: torch.Tensor) -> torch.Tensor:
        """Return the features of a batch under other weights."""
        # Batch norm tracks its statistics in place.
        copies = {name: each.clone() for name, each in constant.items()}
        functional_call(self._module, {**copies, **weights}, (x,))
        return self._features

    def _take(self, layer: nn.Module, inputs: tuple[torch.Tensor, ...], named: dict[str, torch.Tensor]) -> None:
        self._features = next(iter((*inputs, *named.values()))).flatten(1)
