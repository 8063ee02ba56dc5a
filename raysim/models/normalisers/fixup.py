"""Fixup: Zhang, Dauphin and Ma, "Fixup Initialization: Residual Learning Without Normalization", 2019."""

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from algorithms.core.batch_norm import is_batch_norm
from raysim.common.errors import InputError
from raysim.models.normalisers.modified_convolutions import convolve, pass_observed, remake


class ScalarAffine(nn.Module):
    """A shift by one number, and a scale by another if `scaled`: x scale + bias."""

    scale: nn.Parameter | None

    def __init__(self, *, scaled: bool) -> None:
        super().__init__()
        self.register_parameter("scale", nn.Parameter(torch.ones(1)) if scaled else None)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x if self.scale is None else x * self.scale) + self.bias


class ShiftedConv2d(nn.Conv2d):
    """A convolution of x + shift, one number for all values."""

    shift: nn.Parameter

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return convolve(self, x + self.shift, self.weight)


class ShiftedLinear(nn.Linear):
    """A linear layer of x + shift, one number for all values."""

    shift: nn.Parameter

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x + self.shift, self.weight, self.bias)


@torch.no_grad()
def fixup(module: nn.Module, shape: tuple[int, ...], seed: int) -> None:
    """Turn a residual network with batch norm into one without, by Fixup.

        block(x) = relu(shortcut(x) + scale f(x) + bias),   f = conv_m (... relu(conv_1(x + shift_1) + bias_1) ...)

    In each of the L branches the first m - 1 convolutions start at He's normal weights times L^(-1/(2m-2)), and the
    last one at zero. The network's last linear layer starts at zero too. All other convolutions start at He's weights.
    A scalar shift, initially 0, precedes each convolution, linear layer and activation. Each branch has a scalar
    scale, initially 1.

    A residual block is a module with `conv1`, `bn1`, ..., `convM`, `bnM` (two or more) that adds the last output to a
    shortcut, such as torchvision's `BasicBlock` and `Bottleneck`. Other batch-norm layers in a block belong to its
    shortcut and are removed. Batch-norm layers outside of blocks precede an activation and become its shift.

    Args:
        module: network to change; entries keep their names, and `bnI.bias` and `bnM.scale` become scalars.
        shape: shape of one sample.
        seed: key of the initial weights.

    Raises:
        InputError: there are no residual blocks, or a block has no shortcut.

    Paper: section 3.

    Deviations:
        The convolution of a shortcut has its own shift instead of the branch's. He's normal weights use the number of
        outputs (fan out), like the paper's own code.
    """
    blocks = {block: depth for block in module.modules() if (depth := _depth(block)) > 1}
    if not blocks:
        raise _refusal("has none")
    _replace(module, blocks)
    _initialise(module, blocks, seed)
    _check_shortcuts(module, blocks, shape, seed)


def _depth(block: nn.Module) -> int:
    """Return the number of convolutions that batch norm follows in a block's branch."""
    depth = 0
    while isinstance(getattr(block, f"conv{depth + 1}", None), _ConvNd):
        behind = getattr(block, f"bn{depth + 1}", None)
        if not isinstance(behind, nn.Module) or not is_batch_norm(behind):
            break
        depth += 1
    return depth


def _replace(module: nn.Module, blocks: dict[nn.Module, int]) -> None:
    within = {id(layer) for block in blocks for layer in block.modules() if is_batch_norm(layer)}
    for block, depth in blocks.items():
        for number in range(1, depth + 1):
            setattr(block, f"bn{number}", ScalarAffine(scaled=number == depth))
    for parent in list(module.modules()):
        for name, layer in list(parent._modules.items()):
            if layer is not None and is_batch_norm(layer):
                parent._modules[name] = nn.Identity() if id(layer) in within else ScalarAffine(scaled=False)
            elif isinstance(layer, _ConvNd):
                parent._modules[name] = _shifted(
                    remake(layer, [ShiftedConv2d], f"model.norm = 'fixup' over model layer {name}")
                )
            elif type(layer) is nn.Linear:
                linear = ShiftedLinear(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
                linear.weight, linear.bias = layer.weight, layer.bias
                parent._modules[name] = _shifted(linear)


def _shifted(layer: nn.Module) -> nn.Module:
    layer.register_parameter("shift", nn.Parameter(torch.zeros(1)))
    return layer


def _initialise(module: nn.Module, blocks: dict[nn.Module, int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    linear = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    for layer in module.modules():
        if isinstance(layer, _ConvNd):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu", generator=generator)
            if layer.bias is not None:
                layer.bias.zero_()
    for block, depth in blocks.items():
        for number in range(1, depth):
            block.get_submodule(f"conv{number}").get_parameter("weight").mul_(len(blocks) ** (-1 / (2 * depth - 2)))
        block.get_submodule(f"conv{depth}").get_parameter("weight").zero_()
    for parameter in linear[-1].parameters() if linear else ():
        parameter.zero_()


def _check_shortcuts(module: nn.Module, blocks: dict[nn.Module, int], shape: tuple[int, ...], seed: int) -> None:
    """Refuse a block without a shortcut: its output vanishes with its branch, which is zero now."""
    outputs: list[torch.Tensor] = []
    hooks = [block.register_forward_hook(lambda *seen: outputs.append(seen[2])) for block in blocks]
    pass_observed(module, torch.rand(2, *shape, generator=torch.Generator().manual_seed(seed)), hooks)
    if not all(bool(output.any()) for output in outputs):
        raise _refusal("has layers of these names without a shortcut")


def _refusal(why: str) -> InputError:
    return InputError(
        f"model.norm = 'fixup' on a model that {why}: must be one of residual blocks (conv1, bn1, conv2, bn2, ... and "
        'a shortcut), such as resnet20; choose one, or set model.norm = "none"'
    )
