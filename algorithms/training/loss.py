"""The part of `local` that a client update minimises: a loss for each label."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from algorithms.core.errors import InputError, require
from algorithms.core.returned import Returned

if TYPE_CHECKING:  # The experiment file is checked before torch is imported.
    import torch

LabelKind: TypeAlias = Literal["class", "pixels", "sequence", "numbers"]
"""Labels of a sample: one class, a class for each pixel, a class for each position of a sequence, or numbers."""

NO_PIXEL, NO_POSITION = 255, -100
"""Label of a pixel, and of a position, without a class."""


def ignored(y: torch.Tensor) -> int:
    """Return the label of these pixels or positions that stands for no class."""
    return NO_PIXEL if y.element_size() == 1 else NO_POSITION


def known(y: torch.Tensor) -> torch.Tensor:
    """Return whether each class of pixels or positions, [n, ...], is known."""
    return y != ignored(y)


def labelled(y: torch.Tensor) -> int:
    """Return the number of labels: all samples, or the pixels or positions with a class."""
    return y.shape[0] if y.dim() == 1 or y.is_floating_point() else int(known(y).sum())


class Loss(ABC):
    """Loss of a batch: F = 1/|P| sum_{p in P} l(outputs_p, y_p), P the labels."""

    labels: ClassVar[tuple[LabelKind, ...]]
    """Kinds of labels that the loss takes."""
    limits: ClassVar[tuple[float, float] | None] = None
    """Least and largest label that is a number; None for any."""
    one_logit: ClassVar[bool] = False
    """Whether a model has one logit for a label of two classes."""

    @abstractmethod
    def __call__(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the loss of each label, [n], or [n places] with 0 for pixels and positions without a class.

        Args:
            outputs: [n, outputs], or [n, classes, *places]; [n, 1] for two classes with `one_logit`.
            y: class indices, int64 [n]; those of pixels, uint8 [n, height, width], 255 for none; those of positions,
                int64 [n, length], -100 for none; or numbers, float [n, outputs].
        """

    def mean(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of a batch's labels; 0 without any label."""
        losses = self(outputs, y)
        if y.dim() == 1 or y.is_floating_point():
            return losses.mean()
        return losses.sum() / known(y).sum().clamp(min=1)

    def sums(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the sum of the losses of each sample's labels, [n]."""
        return self(outputs, y).reshape(len(y), -1).sum(1)

    def logits(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return a logit for each class: the outputs, or [0, o] for one logit o, since softmax([0, o])_1 = s(o)."""
        if not self.one_logit:
            return outputs
        from torch.nn.functional import pad

        return pad(outputs, (1, 0))

    def is_of_batches(self, outputs: torch.Tensor, y: torch.Tensor) -> bool:
        """Return whether a batch has one loss that is no mean over its labels; the arguments are a batch."""
        return False

    @property
    def title(self) -> str:
        """Name in the experiment file."""
        return next(name for name, each in LOSSES.items() if isinstance(self, each))

    def check(self, labels: LabelKind, outputs: int) -> None:
        """Refuse labels that the loss does not take.

        Args:
            labels: kind of the labels.
            outputs: number of classes, or of numbers.

        Raises:
            InputError: they are of another kind.
        """
        if labels not in self.labels:
            wanted, remedy = "classes", 'set local.loss = "mse"'
            if "numbers" in self.labels:
                wanted, remedy = "numbers", 'list the column, as in data.label = ["NAME"], to read it as numbers'
            raise InputError(
                f"local.loss = {self.title!r}: must be for labels that are {wanted}, and these are not; {remedy}"
            )


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Cross-entropy of a class: l = -sum_j c_j q_j log softmax(outputs)_j, q_j = (1 - s) [j = y] + s / classes.

    Args:
        label_smoothing: share s of the label that all classes divide, in [0, 1].
        class_weights: weight c of each class, > 0; empty for 1. A batch's loss is the mean over its labels, not
            divided by the sum of their weights.
    """

    label_smoothing: float = 0.0
    class_weights: tuple[float, ...] = ()

    labels: ClassVar[tuple[LabelKind, ...]] = ("class", "pixels", "sequence")

    def __post_init__(self) -> None:
        smoothing = self.label_smoothing
        require(0 <= smoothing <= 1, "local.label_smoothing", smoothing, "in [0, 1]", "set local.label_smoothing = 0.1")
        holds = all(0 < weight < inf for weight in self.class_weights)
        require(holds, "local.class_weights", self.class_weights, "numbers > 0", "leave it out")

    def __call__(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        from torch.nn.functional import cross_entropy

        weight, smoothing = outputs.new_tensor(self.class_weights) if self.class_weights else None, self.label_smoothing
        if y.dim() == 1:
            return cross_entropy(outputs, y, weight, reduction="none", label_smoothing=smoothing)
        # One row a place: on a GPU the kernels for whole images add up in no fixed order.
        rows, each = outputs.movedim(1, -1).reshape(-1, outputs.shape[1]), y.reshape(-1).long()
        return cross_entropy(rows, each, weight, reduction="none", ignore_index=ignored(y), label_smoothing=smoothing)

    def mean(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        from torch.nn.functional import cross_entropy

        if y.dim() == 1 and not self.class_weights:  # one kernel
            return cross_entropy(outputs, y, label_smoothing=self.label_smoothing)
        return super().mean(outputs, y)

    def check(self, labels: LabelKind, outputs: int) -> None:
        super().check(labels, outputs)
        fits = len(self.class_weights) in (0, outputs)
        require(fits, "local.class_weights", self.class_weights, f"a number for each of {outputs} classes", "add them")


class _NumberLoss(Loss):
    """Loss of numbers: the mean over a sample's numbers."""

    labels: ClassVar[tuple[LabelKind, ...]] = ("numbers",)

    def __call__(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        numbers = y.to(outputs.dtype).reshape(outputs.shape)  # those of two classes are [n]
        return self._each(outputs, numbers).flatten(1).mean(1)

    @abstractmethod
    def _each(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the loss of each number, [n, outputs]."""


@dataclass(frozen=True)
class BinaryCrossEntropy(_NumberLoss):
    """Binary cross-entropy of targets in [0, 1], one logit each: l = -p y log s(o) - (1 - y) log(1 - s(o)).

    The second of two classes has the target 1, the first 0.

    Args:
        positive_weight: weight p of positive targets, > 0.
    """

    positive_weight: float = 1.0

    labels: ClassVar[tuple[LabelKind, ...]] = ("class", "numbers")
    one_logit: ClassVar[bool] = True
    limits: ClassVar[tuple[float, float] | None] = (0.0, 1.0)

    def __post_init__(self) -> None:
        weight = self.positive_weight
        require(0 < weight < inf, "local.positive_weight", weight, "> 0", "set local.positive_weight = 1")

    def check(self, labels: LabelKind, outputs: int) -> None:
        super().check(labels, outputs)
        if labels == "class" and outputs != 1:
            raise InputError(
                f"local.loss = 'binary' with a label of {outputs} classes: must be a label of two classes; set "
                'local.loss = "cross-entropy", or keep two by data.classes'
            )

    def _each(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        from torch.nn import functional

        weight = None if self.positive_weight == 1 else outputs.new_full((), self.positive_weight)
        return functional.binary_cross_entropy_with_logits(outputs, y, reduction="none", pos_weight=weight)


@dataclass(frozen=True)
class MeanSquaredError(_NumberLoss):
    """Squared error: l = (outputs - y)^2."""

    def _each(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (outputs - y).square()


@dataclass(frozen=True)
class Huber(_NumberLoss):
    """Huber's loss: l = e^2 / 2 if |e| <= delta, else delta (|e| - delta / 2), e = outputs - y.

    Args:
        delta: error from which the loss is linear, > 0.
    """

    delta: float = 1.0

    def __post_init__(self) -> None:
        require(0 < self.delta < inf, "local.delta", self.delta, "> 0", "set local.delta = 1")

    def _each(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        from torch.nn import functional

        return functional.huber_loss(outputs, y, reduction="none", delta=self.delta)


@dataclass(frozen=True)
class OwnLoss(Loss):
    """A user's own loss, of each sample or of a whole batch.

    A loss of a batch is that of each of its samples, wherever a loss of samples is asked for: a mean over samples is
    then a mean over batches by their samples.

    Args:
        name: name in the experiment file.
        function: function of (outputs, y) that gives a loss for each sample, [n], or one for the batch, [].
    """

    name: str
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = field(repr=False)

    labels: ClassVar[tuple[LabelKind, ...]] = ("class", "pixels", "sequence", "numbers")

    def __call__(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        losses = self._given(outputs, y)
        return losses.expand(len(y)) if losses.dim() == 0 else losses

    def mean(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self._given(outputs, y).mean()

    def is_of_batches(self, outputs: torch.Tensor, y: torch.Tensor) -> bool:
        with self._returned.keeping_nothing("compute it anew for each batch"):
            return self._given(outputs[:2], y[:2]).dim() == 0

    @property
    def _returned(self) -> Returned:
        return Returned(f"local.loss = {self.name!r}", self.function)

    def _given(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the function's losses, [n] or []; raise InputError if it gives anything else."""
        losses = self.function(outputs.clone(), y.clone())  # It may change them in place, and others read them, too.
        shape = getattr(losses, "shape", None)
        fits = shape == y.shape[:1] or shape == y.shape[:0]
        if not fits or not hasattr(losses, "is_floating_point") or not losses.is_floating_point():
            given = type(losses).__name__ if shape is None else f"{tuple(shape)} of {losses.dtype}"
            raise self._returned.fault(
                f"give a loss for each sample, {tuple(y.shape[:1])}, or one for the whole batch, (), and gives {given}"
            )
        return losses

    def sums(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Count the loss of a sample once for each of its labels, because a metric divides by their number."""
        each = self(outputs, y)
        return each if y.dim() == 1 or y.is_floating_point() else each * known(y).flatten(1).sum(1)

    @property
    def title(self) -> str:
        return self.name


LOSSES: Mapping[str, type[Loss]] = {
    "cross-entropy": CrossEntropy,
    "binary": BinaryCrossEntropy,
    "mse": MeanSquaredError,
    "huber": Huber,
}
"""Losses by name."""
