"""Plan of a model: everything that makes its module again, and checks of the module against the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from algorithms import InputError as AlgorithmInputError
from algorithms import Local
from algorithms.training.loss import LabelKind
from raysim.common.errors import InputError
from raysim.data.labels import LabelReader
from raysim.models.build import build

EACH_OUTPUT: Mapping[LabelKind, str] = {
    "class": "{} logits a sample",
    "pixels": "{} logits a pixel",
    "sequence": "{} logits a position (labels are lists of whole numbers, so classes; floats are numbers)",
    "numbers": "{} numbers a sample",
}
"""Outputs of a model by the kind of labels."""


@dataclass(frozen=True)
class ModelPlan:
    """Model by name. Equal arguments and seeds make equal bytes.

    Args:
        name: one of `raysim list models`, or "module:Class".
        parameters: parameters of the named model, and those of all models.
        shape: shape of one sample in training.
        classes: number of outputs: classes, or numbers.
        seed: key of the initial entries.
        own: user's class or function behind the name; None for a named model.
        whole: shape of one sample in evaluation; None for `shape`.
        labels: reader of the labels; None if each sample has one class.
    """

    name: str
    parameters: dict[str, Any]
    shape: tuple[int, ...]
    classes: int
    seed: int
    own: Callable[..., nn.Module] | None = None
    whole: tuple[int, ...] | None = None
    labels: LabelReader | None = None

    @property
    def kind(self) -> LabelKind:
        """Kind of the labels."""
        return "class" if self.labels is None else self.labels.kind

    def outputs(self, samples: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the outputs for samples of a shape."""
        return (samples, self.classes) if self.labels is None else self.labels.shape_of_outputs(samples, shape)

    @property
    def example(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs and labels of two samples in training, with any values."""
        label = torch.zeros((), dtype=torch.int64) if self.labels is None else self.labels.label(self.shape)
        return torch.zeros(self.outputs(2, self.shape)), torch.stack([label, label])

    def build(self, tell: Callable[[str], object] | None = None) -> nn.Module:
        """Make the module; call `tell` with the source of its initial weights."""
        return build(
            self.name,
            shape=self.shape,
            classes=self.classes,
            seed=self.seed,
            labels=self.kind,
            own=self.own,
            tell=tell,
            **self.parameters,
        )

    def sample(self, module: nn.Module) -> torch.Tensor:
        """Return a sample of zeros for training, of the type of the module's parameters.

        Raises:
            InputError: no parameter trains.
        """
        for parameter in module.parameters():
            if parameter.requires_grad:
                return torch.zeros(self.shape, dtype=parameter.dtype)
        raise InputError(
            f"model.name = {self.name!r}: must have a parameter that trains, and has none; choose another model"
        )

    @torch.no_grad()
    def check_outputs(self, module: nn.Module, sample: torch.Tensor) -> None:
        """Refuse a module without one output a class, or a number, for each sample, pixel or position."""
        training = module.training
        with torch.random.fork_rng(devices=[]):
            shape = tuple(module.eval()(torch.stack([sample, sample])).shape)
            fits = self._takes_whole(module, sample)
        module.train(training)
        if shape != self.outputs(2, self.shape):
            raise InputError(
                f"model.name = {self.name!r}: must return {self.outputs(2, self.shape)} for two samples {self.shape}, "
                f"because it must have {EACH_OUTPUT[self.kind].format(self.classes)}, and returns {shape}; choose "
                "another model"
            )
        if not fits:
            raise InputError(
                f"model.name = {self.name!r} with data.crop_size: must take samples {self.whole} in evaluation and "
                f"{self.shape} in training; choose another model, or leave data.crop_size out"
            )

    def _takes_whole(self, module: nn.Module, sample: torch.Tensor) -> bool:
        """Return whether a module that trains on crops takes whole samples in evaluation."""
        if self.whole in (None, self.shape):
            return True
        try:
            return tuple(module(sample.new_zeros(1, *self.whole)).shape) == self.outputs(1, self.whole)
        except RuntimeError:  # layers raise it if shapes do not fit
            return False

    def check_loss(self, local: Local) -> None:
        """Refuse a loss that does not fit the labels, or fails on a batch of them."""
        local.loss.check(self.kind, self.classes)
        duty, remedy = "take a batch of labels", "correct it"
        try:
            outputs, labels = self.example
            loss = local.loss.mean(outputs.requires_grad_(), labels)
            if not loss.requires_grad:
                raise TypeError("it has no gradient by the outputs")
            torch.autograd.backward(loss)
            duty = "take outputs of float64, which an evaluation gives it"
            remedy = "convert its other tensors to the type of the outputs, as W.to(outputs)"
            with torch.no_grad():
                local.loss.sums(outputs.detach().double(), labels)
        except AlgorithmInputError:
            raise
        except Exception as error:  # A user's own loss may raise anything.
            text = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise InputError(f"local.loss = {local.loss.title!r}: must {duty}, and raised {text}; {remedy}") from error
