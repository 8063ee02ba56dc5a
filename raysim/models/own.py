"""What a user's own module must do beside taking samples: tried on two of them before anything trains."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn

from algorithms.training.forked import forked
from raysim.common.errors import InputError

SEED = 1


def check_own(module: nn.Module, sample: torch.Tensor, name: str) -> None:
    """Refuse a module whose training would not be a function of its entries, the samples and a key.

    Args:
        module: it is left as it is.
        sample: one sample, [*shape], of the module's type; its values do not matter.
        name: of the model.

    Raises:
        InputError: its logits are no tensor, do not depend on its parameters, or are others in a second pass.
    """
    tried, x = deepcopy(module).cpu(), torch.ones_like(torch.stack([sample, sample]))
    try:
        wrong = _wrong_in_training(tried, x) or _wrong_in_evaluation(tried, x)
    except Exception as error:  # whatever the user's module does
        wrong = f"train on samples of shape {tuple(sample.shape)} ({type(error).__name__}: {error})"
    if wrong:
        raise InputError(f"model.name = {name!r}: must {wrong}; correct it")


def _wrong_in_training(module: nn.Module, x: torch.Tensor) -> str:
    entries, found = deepcopy(module.state_dict()), []
    for _ in range(2):
        module.load_state_dict(entries)
        with forked(SEED):
            found.append(module.train()(x))
    if not isinstance(found[0], torch.Tensor):
        return f"return logits alone in training, and returns a {type(found[0]).__name__}"
    if not found[0].requires_grad:
        return "return logits that depend on its parameters, and these are detached from them"
    if not torch.equal(*found):
        return (
            "return the same logits for the same samples, entries and seed, and does not in training: draw from the "
            "default generator of torch, NumPy or Python, and keep what lasts in parameters and buffers"
        )
    return ""


@torch.no_grad()
def _wrong_in_evaluation(module: nn.Module, x: torch.Tensor) -> str:
    first, second = (module.eval()(x) for _ in range(2))
    return "" if torch.equal(first, second) else "return the same logits in evaluation, and draws random numbers there"
