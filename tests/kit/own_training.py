"""Losses, metrics, models and client updates as a user writes them."""

MINE = """
from dataclasses import dataclass, replace

import torch

from algorithms import Assign, fedavg
from torch import nn


def loss(outputs, y):
    return (outputs - y).abs().mean(1)


class Lossy(nn.Module):
    def forward(self, outputs, y):
        return (outputs - y).square().mean(1)


def matrix(outputs, y):
    return outputs - y


def weighing(outputs, y):
    return nn.functional.cross_entropy(outputs, y, torch.ones(3), reduction="none")


def raises(outputs, y):
    raise KeyError("no")


def worst(outputs, y):
    return (outputs - y).abs().amax(1)


class Variance:
    def sums(self, outputs, y):
        return torch.stack([outputs[:, 0], outputs[:, 0] ** 2], 1)

    def value(self, sums, samples):
        return sums[1] / samples - (sums[0] / samples) ** 2


class Positions(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.layer = nn.Embedding(20, classes)

    def forward(self, x):
        return self.layer(x.long()).movedim(2, 1)


def train(model, batches, context):
    optimiser = torch.optim.SGD(model.parameters(), lr=context.lr)
    losses = []
    for x, y in batches:
        optimiser.zero_grad()
        loss = context.loss(model(x), y)
        loss.backward()
        optimiser.step()
        losses += [loss.item()] * len(y)
    return {"loss": sum(losses) / len(losses)}


class Counting:
    def personal(self, model):
        return {"visits": torch.zeros((), dtype=torch.int64), "noise.last": torch.full((3,), 7.0)}

    def __call__(self, model, batches, context):
        first = context.state["noise.last"].sum().item()
        context.state["visits"] += 1
        context.state["noise.last"] = torch.randn(3)
        return {**train(model, batches, context), "visits": context.state["visits"], "first": first}


@dataclass(frozen=True)
class ByVisits:
    needs = ("visits",)

    def __call__(self, report):
        return report["visits"]


@dataclass(frozen=True)
class Halve:
    def __call__(self, model, mean, total, memory, layout, updates):
        assert (updates.column("visits") >= 1).all()
        return replace(mean, floats=mean.floats * 0.5), memory


def weighted(participation, local, server=Assign()):
    return replace(fedavg(participation, local, server), weighting=ByVisits())


def silent(model, batches, context):
    return {"accuracy": 1.0}


def taken(model, batches, context):
    return {"loss": 1.0, "samples": 3.0}


def measured(model, batches, context):
    return {"loss": 1.0, "change": 3.0}


class Leaving:
    def personal(self, model):
        return {"kept": torch.zeros(3)}

    def __call__(self, model, batches, context):
        context.state["other"] = torch.zeros(3)
        return {"loss": 1.0}


class Freezing(nn.Module):
    def forward(self, model, batches, context):
        assert not hasattr(model, "seen") and all(p.requires_grad for p in model.parameters())
        next(model.parameters()).requires_grad_(False)
        model.seen = True
        model.register_forward_hook(lambda module, inputs, outputs: outputs * 0)
        return {"loss": 1.0}


class Scaled(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.layer, self.scale = nn.Linear(shape[0], classes), nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return self.scale * self.layer(x)


def positions(outputs, y):
    return nn.functional.cross_entropy(outputs, y, reduction="none").mean(1)


def flat(outputs, y):
    return torch.ones(len(y))


class Rounding:
    def personal(self, model):
        return {"count": torch.tensor(0)}

    def __call__(self, model, batches, context):
        context.state["count"] = context.state["count"] + 0.5
        return {"loss": 1.0}


def few(model):
    return {"loss": 1.0}
"""
