"""The table of models, and how one is built from its name."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from raysim.errors import unknown
from raysim.models.alexnet_bn import alexnet_bn
from raysim.models.checks import positive, positives
from raysim.models.cnn import cnn
from raysim.models.cnn3 import cnn3
from raysim.models.cnn4 import cnn4
from raysim.models.cnn_dropout import cnn_dropout
from raysim.models.deeplab_v3plus import deeplab_v3plus
from raysim.models.digit_cnn import digit_cnn
from raysim.models.fedbs_cifar import fedbs_cifar
from raysim.models.fedbs_mnist import fedbs_mnist
from raysim.models.lenet import lenet
from raysim.models.logistic import logistic
from raysim.models.lstm import lstm
from raysim.models.mlp import mlp
from raysim.models.mobilenet_v2 import mobilenet_v2
from raysim.models.resnet18 import resnet18
from raysim.models.resnet20 import resnet20
from raysim.models.vgg16 import vgg16


@dataclass(frozen=True)
class Model:
    """A model by name.

    Args:
        build: called with (shape, classes, **parameters), returns the module.
    """

    build: Callable[..., nn.Module]

    @property
    def description(self) -> str:
        """One line that says what the model is: the first of the builder's docstring."""
        return (inspect.getdoc(self.build) or "").partition("\n")[0]

    @property
    def parameters(self) -> dict[str, object]:
        """The parameters that a user may set, and their defaults."""
        signature = inspect.signature(self.build).parameters.values()
        return {p.name: p.default for p in signature if p.kind is p.KEYWORD_ONLY}


MODELS: Mapping[str, Model] = {
    function.__name__: Model(function)
    for function in (
        *(logistic, mlp, cnn, cnn_dropout, lenet, cnn3, cnn4),
        *(fedbs_mnist, fedbs_cifar, digit_cnn, alexnet_bn, vgg16),
        *(resnet20, resnet18, mobilenet_v2, deeplab_v3plus, lstm),
    )
}


def build(name: str, *, shape: tuple[int, ...], classes: int, seed: int, **parameters: object) -> nn.Module:
    """Build a model and initialise it, torch's default way, as a pure function of the arguments.

    Args:
        name: one of `MODELS`.
        shape: one sample's shape; the model takes float32 x [n, *shape].
        classes: outputs; the model returns the logits [n, classes].
        seed: key of the initial weights. The global random state is neither used nor changed.
        parameters: the model's own, as `MODELS[name].parameters` lists them.

    Raises:
        InputError: an unknown model or parameter, a value that is not allowed, or a shape that does not fit.
    """
    if name not in MODELS:
        raise unknown(f"model {name!r}", name, MODELS)
    model = MODELS[name]
    for parameter in parameters:
        if parameter not in model.parameters:
            raise unknown(f"parameter {parameter!r} of model {name}", parameter, model.parameters)
    shape, classes = positives("shape", shape), positive("classes", classes)
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed: it would also reseed the GPUs' generators, which nobody restores.
        torch.default_generator.manual_seed(seed)
        return model.build(shape, classes, **parameters)
