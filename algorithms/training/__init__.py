"""How visits are trained: one after the other, stacked by `torch.func`, or stacked with gradients by hand."""

from algorithms.training.augment import Augment, Augmented
from algorithms.training.choose import choose, lanes_of, trainer
from algorithms.training.forked import forked
from algorithms.training.steps import Trainer, Work

__all__ = ["Augment", "Augmented", "Trainer", "Work", "choose", "forked", "lanes_of", "trainer"]
