"""The table of models, and how one is built from its name."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn

from raysim.common.errors import InputError, unknown
from raysim.models.alexnet_bn import alexnet_bn
from raysim.models.checks import check_size, positive, positives
from raysim.models.cnn import cnn
from raysim.models.cnn3 import cnn3
from raysim.models.cnn4 import cnn4
from raysim.models.cnn_dropout import cnn_dropout
from raysim.models.common import Common
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

GIVEN = ("shape", "classes", "norm")
"""Parameters of a builder that are no keys of its own: those that it has of these, it is given."""


@dataclass(frozen=True)
class Model:
    """A model by name, or a user's own.

    Args:
        build: called with `shape`, `classes`, `norm` ("none" or "batch"), as far as its signature has them, and its own
            parameters; returns the module.
    """

    build: Callable[..., nn.Module]

    @property
    def description(self) -> str:
        """One line that says what the model is: the first of the builder's docstring."""
        return (inspect.getdoc(self.build) or "").partition("\n")[0]

    @property
    def signature(self) -> Mapping[str, inspect.Parameter]:
        """The builder's parameters, `*args` and `**keys` apart."""
        loose = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return {n: p for n, p in inspect.signature(self.build).parameters.items() if p.kind not in loose}

    @property
    def parameters(self) -> dict[str, object]:
        """The parameters that a user may set, and their defaults."""
        return {name: p.default for name, p in self.signature.items() if name not in GIVEN}

    @property
    def norm(self) -> Any:
        """The normaliser where the user names none; None: what the builder makes."""
        default = self.signature["norm"].default if "norm" in self.signature else None
        return None if default is inspect.Parameter.empty else default

    def make(self, shape: tuple[int, ...], classes: int, norm: str, parameters: Mapping[str, object]) -> nn.Module:
        """Call the builder."""
        given = {"shape": shape, "classes": classes, "norm": norm}
        return self.build(**{key: given[key] for key in GIVEN if key in self.signature}, **parameters)


MODELS: Mapping[str, Model] = {
    function.__name__: Model(function)
    for function in (
        *(logistic, mlp, cnn, cnn_dropout, lenet, cnn3, cnn4),
        *(fedbs_mnist, fedbs_cifar, digit_cnn, alexnet_bn, vgg16),
        *(resnet20, resnet18, mobilenet_v2, deeplab_v3plus, lstm),
    )
}


def build(
    name: str,
    *,
    shape: tuple[int, ...],
    classes: int,
    seed: int,
    own: Callable[..., nn.Module] | None = None,
    tell: Callable[[str], object] | None = None,
    **parameters: Any,
) -> nn.Module:
    """Build a model and initialise it, as a pure function of the arguments, and of the file where weights are loaded.

    Args:
        name: one of `MODELS`.
        shape: one sample's shape; the model takes float32 x [n, *shape].
        classes: outputs; the model returns the logits [n, classes].
        seed: key of the initial weights. The global random state is neither used nor changed.
        own: a user's own class or function instead; `name` is what it is called.
        tell: is told, in a line, what a person should know of the weights.
        parameters: the model's own, as `MODELS[name].parameters` lists them, and those of `Common`.

    Raises:
        InputError: an unknown model or parameter, a value that is not allowed, or a shape that does not fit.
    """
    if own is None and name not in MODELS:
        raise unknown(f"model {name!r}", name, MODELS)
    model = MODELS[name] if own is None else Model(own)
    everywhere = [field.name for field in fields(Common)]
    for parameter in parameters:
        if parameter not in model.parameters and parameter not in everywhere:
            raise unknown(f"parameter {parameter!r} of model {name}", parameter, [*model.parameters, *everywhere])
    common = Common(**{key: value for key, value in parameters.items() if key in everywhere})
    its = {key: value for key, value in parameters.items() if key not in everywhere}
    shape, classes = positives("shape", shape), positive("classes", classes)
    norm = model.norm if common.norm is None else common.norm
    if own is None:
        check_size(name, lambda: model.make(shape, classes, "none" if norm == "none" else "batch", its))
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed: it would also reseed the GPUs' generators, which nobody restores.
        torch.default_generator.manual_seed(seed)
        make = model.make if own is None else _checked(model, name)
        module = common.normalised(make(shape, classes, "none" if norm == "none" else "batch", its), norm, shape, seed)
    anew = common.begun(module, name, classes, seed)
    if tell is not None and common.weights is not None:
        made = f"; made anew for {classes} classes: {', '.join(anew)}" if anew else ""
        tell(f"model {name} starts from {common.weights}{made}")
    return module


def _checked(model: Model, name: str) -> Callable[..., nn.Module]:
    """What makes a user's own model, whose errors, and whose outputs, are told in one line."""

    def make(shape: tuple[int, ...], classes: int, norm: str, parameters: Mapping[str, object]) -> nn.Module:
        doing = "made"
        try:
            module = model.make(shape, classes, norm, parameters)
            if not isinstance(module, nn.Module):
                raise TypeError(f"it is a {type(module).__name__}, no torch.nn.Module")
            doing = f"one that takes samples of shape {shape} and returns {classes} logits each"
            with torch.no_grad():
                logits = module.eval()(torch.zeros(2, *shape))
            module.train()
            if not isinstance(logits, torch.Tensor):
                raise TypeError(f"it returns a {type(logits).__name__}")
            outputs = tuple(logits.shape)
            if outputs[:2] != (2, classes):
                raise TypeError(f"of two samples it returns {outputs}")
        except InputError:
            raise
        except Exception as error:  # whatever the user's module does
            why = str(error).partition("\n")[0]
            raise InputError(
                f"model.name = {name!r}: must be {doing} ({type(error).__name__}: {why}); correct it"
            ) from error
        return module

    return make
