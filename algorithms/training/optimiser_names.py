"""Optimisers of a client update by name."""

from __future__ import annotations

from collections.abc import Mapping

OPTIMISERS: Mapping[str, str] = {
    "sgd": "SGD",
    "adam": "Adam",
    "adamw": "AdamW",
    "adamax": "Adamax",
    "nadam": "NAdam",
    "radam": "RAdam",
    "rmsprop": "RMSprop",
    "rprop": "Rprop",
    "adagrad": "Adagrad",
    "adadelta": "Adadelta",
    "asgd": "ASGD",
}
"""Class of `torch.optim` by the name in the experiment file: those that work number by number."""

OWN = ("sgd", "adam")
"""Optimisers with arithmetic of our own, whose parameters are keys of `[local]`."""
