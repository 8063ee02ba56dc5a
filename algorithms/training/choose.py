"""Choice of the execution, a function of the configuration alone, so one configuration always gives the same bytes."""

from __future__ import annotations

import shutil
from copy import deepcopy
from dataclasses import replace
from math import inf

import numpy as np
import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from algorithms.core.errors import InputError
from algorithms.core.layout import BESIDE, Layout, divided
from algorithms.training.dropout import draws, keyed
from algorithms.training.folding import channels_last
from algorithms.training.forked import drawn, forked
from algorithms.training.fused import Fused, layers_of
from algorithms.training.local import Compute, Local
from algorithms.training.low_rank import LowRank, keeps_low_rank
from algorithms.training.own import Own
from algorithms.training.own_update import OwnUpdate
from algorithms.training.resident import Resident
from algorithms.training.sequential import Sequential
from algorithms.training.vectorised import Vectorised
from algorithms.training.work import Trainer, Work

CACHE_BYTES = 4 * 2**20
"""Cache on a CPU for stacked fused models. Larger stacks are bound by memory."""

MOST_LANES = 64
"""Largest number of client updates stacked on a CPU; more would not lower the overhead of a step."""

LEAST_LANES = 8
"""Smallest number of client updates for which `torch.func` pays off on a CPU."""

MOST_RANK = 0.75
"""Largest rank of a client's change, as a share of `_least_width`, for which the form of low rank pays off."""

SMALL_MODEL = 2**18
"""Largest number of a model's values for which `torch.func` pays off on a CPU."""


def choose(
    local: Local,
    module: nn.Module,
    sample: torch.Tensor,
    device: str,
    block: int,
    samples: float = inf,
    forms_models: str = "",
    label: torch.Tensor | None = None,
) -> Compute:
    """Resolve `execution = "auto"` by a static rule, and refuse an execution that cannot train the model.

    - `compile`, `channels_last`, a client update of the user's own, or bf16 on a CPU: sequential.
    - A stack of linear layers with ReLU, tanh or sigmoid, plain cross-entropy, a constant learning rate, and SGD
      without `clip` and `nesterov`, not in bf16: low-rank if a client update uses at most
      0.75 sum(in out) / sum(in + out) samples, over the layers, and no client's model must be formed; else fused.
      Arithmetic with terms that read slots, such as SCAFFOLD's, is fused only if `execution = "fused"` asks for it.
    - Otherwise on a GPU: vectorised.
    - Otherwise on a CPU: vectorised if the model has no convolution and at most 2^18 values, and blocks have at
      least 8 clients; else sequential.
    - Sequential in place of vectorised with an `lr_schedule`, or if a step of two lanes fails, the model draws random
      numbers itself, or a hook sees the gradient of a parameter.

    Args:
        local: content of a client update.
        module: model.
        sample: one sample, [*shape], of the model's type; its values do not matter.
        device: "cpu" or "cuda".
        block: clients a block.
        samples: samples that a client update uses; see `Local.used`.
        forms_models: reason why each client's model must be formed; see `Algorithm.forms_models`.
        label: a sample's label, of any value; None for a class.

    Raises:
        InputError: the given execution cannot train this model.
    """
    compute = local.compute
    if local.update is not None:
        return replace(compute, execution="sequential")
    linear = layers_of(module) is not None
    if compute.compile and shutil.which("c++") is None and shutil.which("g++") is None:
        raise InputError("local.compile = true: must be false without a C++ compiler; install g++, or remove it")
    arithmetic = local.arithmetic
    if why := _stops_folding(local, linear, forms_models):
        raise InputError(
            f'local.execution = "{compute.execution}": must be sequential or vectorised, because {why}; '
            'set local.execution = "auto"'
        )
    if compute.execution == "vectorised" and (why := _stops_stacking(local, module, sample, label)):
        raise InputError(
            f'local.execution = "vectorised": must be sequential, because {why}; set local.execution = "sequential"'
        )
    if compute.execution != "auto":
        return compute
    if compute.compile or compute.channels_last or (compute.precision == "bf16" and device == "cpu"):
        return replace(compute, execution="sequential")
    by_hand = linear and local.has_gradient_by_hand and arithmetic.is_foldable
    if by_hand and not arithmetic.reads_slots and compute.precision != "bf16":
        low = keeps_low_rank(local) and not forms_models and samples <= MOST_RANK * _least_width(module)
        return replace(compute, execution="low-rank" if low else "fused")
    small = Layout.of(module).floats <= SMALL_MODEL and not any(
        isinstance(layer, _ConvNd) for layer in module.modules()
    )
    stacks = device != "cpu" or (small and block >= LEAST_LANES)
    stacks = stacks and not _stops_stacking(local, module, sample, label)
    return replace(compute, execution="vectorised" if stacks else "sequential")


@torch.no_grad()
def with_format(compute: Compute, module: nn.Module, sample: torch.Tensor, device: str) -> Compute:
    """Resolve `channels_last = None` by a static rule: on a CPU, for a model with 2-D convolutions that trains so.

    Args:
        compute: computation with a resolved execution.
        module: model; left unchanged.
        sample: one sample, [*shape]; its values do not matter.
        device: "cpu" or "cuda".
    """
    if compute.channels_last is not None or compute.execution != "sequential":
        return compute
    images = device == "cpu" and sample.dim() == 3 and any(isinstance(layer, nn.Conv2d) for layer in module.modules())
    return replace(compute, channels_last=images and _takes_channels_last(module, sample))


def _takes_channels_last(module: nn.Module, sample: torch.Tensor) -> bool:
    """Return whether a training pass works with the channels last; `view`, for one, needs contiguous values."""
    tried = deepcopy(module).train()
    tried.register_forward_pre_hook(channels_last)
    try:
        with forked(0):
            tried(torch.stack([sample, sample]))
    except RuntimeError:
        return False
    return True


def _stops_folding(local: Local, linear: bool, forms_models: str) -> str:
    """Return the reason why the given execution with gradients by hand cannot train the model, else ""."""
    execution, arithmetic = local.compute.execution, local.arithmetic
    if execution not in ("fused", "low-rank"):
        return ""
    if not linear:
        return "the model is no stack of linear layers without norm"
    if not local.has_gradient_by_hand:
        return "local.loss and local.lr_schedule need autograd, unless they are plain cross-entropy and constant"
    if not arithmetic.is_foldable:
        return "local.clip, local.nesterov, Adam and terms that are not affine need the whole gradient"
    if execution == "low-rank" and not keeps_low_rank(local):
        return "the local steps read the client's own values or end with a change of them, such as SCAFFOLD's"
    return forms_models if execution == "low-rank" else ""


def _least_width(module: nn.Module) -> float:
    """Return sum(in out) / sum(in + out) over linear layers: fewer samples change less than the weights hold."""
    shapes = [layer.weight.shape for layer in module.modules() if isinstance(layer, nn.Linear)]
    return float(sum(rows * columns for rows, columns in shapes) / sum(rows + columns for rows, columns in shapes))


def _stops_stacking(local: Local, module: nn.Module, sample: torch.Tensor, label: torch.Tensor | None) -> str:
    """Try one step of two lanes, on zeros; return the reason if a stack cannot be trained, else ""."""
    if local.lr_schedule != "constant":
        return "client updates of different lengths have different learning rates at a step of local.lr_schedule"
    if any(parameter._backward_hooks for parameter in module.parameters()):
        return "the model has hooks on its parameters, and a stack does not call them"
    tried = keyed(deepcopy(module))
    if draws(tried, sample):
        return "the model draws random numbers of its own"
    layouts = divided(Layout.of(tried), local.slots, lambda entry: entry.kind in BESIDE)
    resident = Resident(tried, layouts, sample, lanes=2)
    work = Work(
        torch.zeros(2, *sample.shape, dtype=sample.dtype),
        torch.zeros(2, dtype=torch.int64) if label is None else torch.stack([label, label]),
        [np.arange(2)],
        torch.Generator(),
    )
    with forked(0):
        unused = drawn()
        try:
            local.method.train(local, Vectorised(resident, local.compute), [work, work], 0.0)
        except (RuntimeError, ValueError) as error:
            return f"torch.func cannot map it ({str(error).strip().partition(chr(10))[0]})"
        return "" if unused == drawn() else "the client update draws random numbers of its own"


def lanes_of(compute: Compute, layout: Layout, device: str, block: int) -> int:
    """Return the number of a block's client updates trained at once: a function of the configuration alone.

    Args:
        compute: computation with a resolved execution.
        layout: all entries of the model.
        device: "cpu" or "cuda"; a GPU takes the whole block.
        block: clients a block.
    """
    if compute.execution == "sequential":
        return 1
    if device != "cpu":
        return block
    fitting = MOST_LANES if compute.execution == "vectorised" else CACHE_BYTES // max(1, layout.nbytes)
    return max(1, min(block, MOST_LANES, fitting))


def low_rank_trainer(resident: Resident, compute: Compute) -> LowRank | None:
    """Return the trainer of client updates that start from one model; None if they are trained like all others."""
    return LowRank(resident) if compute.execution == "low-rank" else None


def trainer(resident: Resident, compute: Compute, update: OwnUpdate | None = None) -> Trainer:
    """Return the trainer of a worker's models; the module's dropout layers become keyed ones.

    With `channels_last` all passes of the module, those of an evaluation too, lay out their images so.

    Args:
        resident: models of the worker.
        compute: computation with a resolved execution.
        update: a user's own client update; None for `Local`'s. It sees the module as it was made.

    Raises:
        ValueError: the execution is still "auto".
    """
    if compute.execution == "auto":
        raise ValueError("the execution is auto: resolve it by `choose`")
    if update is not None:
        return Own(resident, update)
    keyed(resident.module)
    if compute.channels_last and resident.sample.dim() == 3:
        resident.module.register_forward_pre_hook(channels_last)
    if compute.execution in ("fused", "low-rank"):
        return Fused(resident)
    if compute.execution == "vectorised":
        return Vectorised(resident, compute)
    return Sequential(resident, compute)
