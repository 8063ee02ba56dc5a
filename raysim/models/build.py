"""Models by name, built and initialised from a key."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from raysim.models import plain, residual, sequences
from raysim.models.options import OPTION_NAMES, ModelOptions

if TYPE_CHECKING:
    from torch import nn

    from algorithms.training.loss import LabelKind

BUILDER_ARGUMENTS = ("shape", "classes", "norm", "labels")
"""Parameters of a builder that raysim sets; they are not keys of `[model]`."""


@dataclass(frozen=True)
class ModelBuilder:
    """The builder of a model, raysim's or a user's own.

    Args:
        build: function or class that returns the module. It is called with its own parameters and those of `shape`,
            `classes`, `norm` ("none" or "batch") and `labels` (kind of the labels) that its signature has.
    """

    build: Callable[..., nn.Module]

    @property
    def description(self) -> str:
        """Return the first line of the builder's docstring, without its verb."""
        line = re.sub("^Build (an? |the )?", "", (inspect.getdoc(self.build) or "").partition("\n")[0])
        return line[:1].upper() + line[1:]

    @cached_property
    def signature(self) -> Mapping[str, inspect.Parameter]:
        """Return the builder's parameters without `*args` and `**keys`."""
        loose = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return {n: p for n, p in inspect.signature(self.build).parameters.items() if p.kind not in loose}

    @property
    def parameters(self) -> dict[str, object]:
        """Return the parameters that a user may set, and their defaults."""
        return {name: p.default for name, p in self.signature.items() if name not in BUILDER_ARGUMENTS}

    @property
    def norm(self) -> Any:
        """Return the default normaliser; None if the builder has no such parameter."""
        default = self.signature["norm"].default if "norm" in self.signature else None
        return None if default is inspect.Parameter.empty else default

    def make(
        self, shape: tuple[int, ...], classes: int, norm: str, parameters: Mapping[str, object], labels: str = "class"
    ) -> nn.Module:
        """Call the builder."""
        given = {"shape": shape, "classes": classes, "norm": norm, "labels": labels}
        return self.build(**{key: given[key] for key in BUILDER_ARGUMENTS if key in self.signature}, **parameters)


MODELS: Mapping[str, ModelBuilder] = {
    function.__name__: ModelBuilder(function)
    for function in (
        *(plain.logistic, plain.mlp, plain.cnn, plain.cnn_dropout, plain.lenet, plain.cnn3, plain.cnn4),
        *(plain.fedbs_mnist, plain.fedbs_cifar, plain.digit_cnn, plain.alexnet_bn, plain.vgg16),
        *(residual.resnet20, residual.resnet18, residual.mobilenet_v2, residual.deeplab_v3plus),
        *(sequences.lstm, sequences.transformer),
    )
}


def build(
    name: str,
    *,
    shape: tuple[int, ...],
    classes: int,
    seed: int,
    labels: LabelKind = "class",
    own: Callable[..., nn.Module] | None = None,
    tell: Callable[[str], object] | None = None,
    **parameters: Any,
) -> nn.Module:
    """Build a model and initialise it.

    The result is a pure function of the arguments and of the file of loaded weights.

    Args:
        name: one of `MODELS`; `raysim.config.model` has checked it, and all parameters.
        shape: shape of one sample; the model takes float32 x [n, *shape].
        classes: number of outputs; the model returns the logits [n, classes].
        seed: key of the initial weights. The global random state is neither used nor changed.
        labels: kind of the labels.
        own: a user's own class or function, called `name`.
        tell: receives a line about loaded weights, for the user.
        parameters: the model's own, listed in `MODELS[name].parameters`, and those of `ModelOptions`.

    Raises:
        InputError: the shape, the parameters or loaded weights do not fit the model.
    """
    from algorithms.training.forked import forked
    from raysim.models.initialisation import begin
    from raysim.models.module_checks import check_size, make_own_module
    from raysim.models.norm import converted

    builder = MODELS[name] if own is None else ModelBuilder(own)
    common = {key: value for key, value in parameters.items() if key in OPTION_NAMES}
    options = ModelOptions(**{"norm": builder.norm, **common})
    keys = {key: value for key, value in parameters.items() if key not in OPTION_NAMES}
    built_norm = "none" if options.norm == "none" else "batch"
    make = partial(builder.make, shape, classes, built_norm, keys, labels)
    if own is None:
        check_size(name, make)
    with forked(seed):
        module = make() if own is None else make_own_module(name, make, shape, classes)
        module = converted(module, options, shape, seed)
    anew = begin(module, options, name, classes, labels, seed)
    if tell is not None and options.weights is not None:
        made = f"; made anew for {classes} classes: {', '.join(anew)}" if anew else ""
        tell(f"model {name} starts from {options.weights}{made}")
    return module
