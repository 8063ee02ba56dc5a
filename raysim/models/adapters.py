"""Low-rank adapters by the library `peft`: small matrices that train beside frozen weights."""

import warnings
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from algorithms import Layout, Purpose, freeze, torch_seed
from algorithms.core.head import head_layers, is_within, mark_head
from raysim.common.distribution import require
from raysim.common.errors import InputError, unknown

MOST_LISTED = 40
"""Layers of a model that an error lists."""


def add_lora(
    module: nn.Module, *, rank: int, alpha: float, dropout: float, targets: Sequence[str], trains_head: bool, seed: int
) -> None:
    """Add adapters to linear layers and convolutions, and freeze all other entries, except perhaps the head.

        y <- W x + alpha / rank B A x,   A drawn, [rank, inputs],   B = 0, [outputs, rank]

    Args:
        module: model to change.
        rank: rows of A.
        alpha: scale.
        dropout: share of inputs of A that are dropped in training.
        targets: names of layers, or their ends, such as "c_attn"; empty for all layers but the head.
        trains_head: whether the head trains as a whole.
        seed: seed of the model. A has a key of its own, because the frozen W may be drawn from the seed itself.

    Raises:
        InputError: the extra is missing, or a target does not exist or cannot have an adapter.

    Paper: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, section 4.1.
    """
    require("peft", 'model.train = "lora"')
    from peft import LoraConfig, inject_adapter_in_model  # late, because it takes seconds

    head, layers = head_layers(module), _layers(module)
    names = _chosen(layers, targets) if targets else [name for name in layers if not is_within(name, head)]
    if not names:
        raise InputError(
            'model.train = "lora": must have a linear layer or a convolution before the head, and has none; set '
            'model.train = "all"'
        )
    mark_head(module, head)
    config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=names)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells of the transposed weights of GPT-2, which it handles
        torch.default_generator.manual_seed(torch_seed(seed, Purpose.ADAPTERS))
        inject_adapter_in_model(config, module)
    module.requires_grad_(True)  # peft froze the head too
    entries = Layout.of(module).entries
    freeze(module, {each.name for each in entries if ".lora_" not in each.name and not (trains_head and each.head)})


def _layers(module: nn.Module) -> list[str]:
    """Return the names of layers that can have an adapter, without those whose weight is another layer's."""
    entries = {entry.name for entry in Layout.of(module).entries}
    kinds = (nn.Linear, _ConvNd)
    found = []
    for name, layer in module.named_modules():
        # Of the library `transformers`: a linear layer with transposed weights.
        transposed = type(layer).__name__ == "Conv1D" and type(layer).__module__ == "transformers.pytorch_utils"
        if name and (isinstance(layer, kinds) or transposed) and f"{name}.weight" in entries:
            found.append(name)
    return found


def _chosen(layers: Sequence[str], targets: Sequence[str]) -> list[str]:
    chosen: dict[str, None] = {}
    for target in targets:
        found = [name for name in layers if f".{name}".endswith(f".{target}")]
        if not found:
            known = dict.fromkeys(name.rpartition(".")[2] for name in layers)
            raise unknown(f"model.lora_targets = {target!r}", target, [*known], most=MOST_LISTED)
        chosen |= dict.fromkeys(found)
    return list(chosen)
