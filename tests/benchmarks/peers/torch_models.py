"""The loads' models in PyTorch, for the peers that train with it."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from loads import HIDDEN, Load
from torch import nn


class LanguageModel(nn.Module):
    """A GPT-2 from tokens int64 [n, length] to logits [n, tokens, length]; with adapters, the rest is frozen."""

    def __init__(self, load: Load) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        super().__init__()
        config = GPT2Config(**load.network, use_cache=False, attn_implementation="eager")
        network: nn.Module = GPT2LMHeadModel(config)
        if load.adapters:
            from peft import LoraConfig, get_peft_model

            lora = LoraConfig(r=8, lora_alpha=16, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)
            network = get_peft_model(network, lora)
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.network(input_ids=x).logits
        return logits.movedim(-1, 1)


def trained(module: nn.Module) -> dict[str, torch.Tensor]:
    """The values that clients send: parameters that train, and buffers."""
    frozen = {name for name, value in module.named_parameters(remove_duplicate=False) if not value.requires_grad}
    return {name: value for name, value in module.state_dict().items() if name not in frozen}


def build(load: Load) -> nn.Module:
    """A module from float32 [n, *shape] to logits [n, classes]; a language model from tokens."""
    if load.model == "gpt2":
        return LanguageModel(load)
    if load.model == "mlp":
        widths = (math.prod(load.shape), *HIDDEN)
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], load.classes))
    # The network of pfl-research's CIFAR-10 benchmark (its `simple_cnn`): the convolutions are not padded, so that
    # 32 pixels become 30, 28 and, pooled, 14: 64 * 14 * 14 = 12,544 numbers enter the first dense layer.
    channels, height, width = load.shape
    flat = 64 * ((height - 4) // 2) * ((width - 4) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(flat, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, load.classes),
    )
