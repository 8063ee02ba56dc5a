"""The plan of a bench: all that another process needs to set one up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import nn

from algorithms import (
    Algorithm,
    Augment,
    Census,
    Layout,
    Layouts,
    PersonalStore,
    Resident,
    Worker,
    choose,
    lanes_of,
    trainer,
)
from partitioning import Population
from raysim.common.errors import InputError, unknown
from raysim.data.shards import Shards
from raysim.data.sites import Sites
from raysim.data.standardise import Standardise
from raysim.fleet.memory import models_fit
from raysim.models.build import build
from raysim.models.own import check_own


@dataclass(frozen=True)
class ModelPlan:
    """A model by name: the same arguments and the same seed make the same bytes.

    Args:
        name: one of `raysim list models`, or "module:Class".
        parameters: what the named model takes, and what all take.
        shape: of one sample in training.
        classes: number of classes.
        seed: keys the initial entries.
        own: what the name stands for where it is a user's own.
        whole: shape of one sample in evaluation; None where it is the same.
        per_pixel: whether each pixel of a sample has a class.
    """

    name: str
    parameters: dict[str, Any]
    shape: tuple[int, ...]
    classes: int
    seed: int
    own: Callable[..., nn.Module] | None = None
    whole: tuple[int, ...] | None = None
    per_pixel: bool = False

    def logits(self, samples: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the logits of so many samples of a shape."""
        return (samples, self.classes, *(shape[1:] if self.per_pixel else ()))

    def build(self, tell: Callable[[str], object] | None = None) -> nn.Module:
        """Make the module; `tell` is told of the weights that it starts from."""
        return build(
            self.name,
            shape=self.shape,
            classes=self.classes,
            seed=self.seed,
            own=self.own,
            tell=tell,
            **self.parameters,
        )


def joining(population: Population, joins: Mapping[str, int]) -> NDArray[np.int64] | None:
    """The first round in which each training client may be drawn; None where all are there from the first.

    Args:
        population: the clients.
        joins: first rounds, by the name of a domain, or a client's name or number.

    Raises:
        InputError: there is no such domain or training client, or nobody is there from the first.
    """
    if not joins:
        return None
    clients = population.train_clients
    known = {str(client): [place] for place, client in enumerate(clients)}
    for column in (population.names, population.domains):
        names = [] if column is None else column.take(pa.array(clients)).to_pylist()
        for place, name in enumerate(names):
            known.setdefault(str(name), []).append(place)
    rounds = np.ones(len(clients), np.int64)
    for name, first in joins.items():
        if name not in known:
            raise unknown(f"algorithm.joins = {name!r}", name, list(known))
        rounds[known[name]] = first
    if rounds.min() > 1:
        raise InputError("algorithm.joins: must leave a client that is there from the first round; leave one out")
    return rounds


def _trained(module: nn.Module, model: ModelPlan) -> nn.Parameter:
    """A parameter that trains; InputError where there is none."""
    for parameter in module.parameters():
        if parameter.requires_grad:
            return parameter
    raise InputError(
        f"model.name = {model.name!r}: must have a parameter that trains, and has none; choose another model, or part"
    )


@torch.no_grad()
def _check_logits(module: nn.Module, sample: torch.Tensor, model: ModelPlan) -> None:
    """Refuse a model that does not give one logit a class: each sample or, where labels are images, each pixel."""
    training = module.training
    with torch.random.fork_rng(devices=[]):
        shape = tuple(module.eval()(torch.stack([sample, sample])).shape)
        fits = model.whole in (None, model.shape) or _takes_whole(module, sample, model)
    module.train(training)
    if shape != model.logits(2, model.shape):
        each = "pixel, for labels are images" if model.per_pixel else "sample, for labels are no images"
        raise InputError(
            f"model.name = {model.name!r}: must return {model.classes} logits a {each}, and returns {shape} of two "
            f"samples {model.shape}; choose another model"
        )
    if not fits:
        raise InputError(
            f"model.name = {model.name!r} with data.crop_size: must take samples {model.whole} in evaluation, beside "
            f"{model.shape} in training; choose another model, or leave it out"
        )


def _takes_whole(module: nn.Module, sample: torch.Tensor, model: ModelPlan) -> bool:
    """Whether a model, in evaluation, takes samples of which it is trained on crops."""
    shape = model.whole or model.shape
    try:
        return tuple(module(sample.new_zeros(1, *shape)).shape) == model.logits(1, shape)
    except RuntimeError:  # as layers raise it where shapes do not fit
        return False


FUSED_BLOCK = 5
"""Clients of a block whose visits are fused, at least: the time of a visit hardly falls from there on."""


@dataclass(frozen=True)
class Origin:
    """Where a node finds a population that does not see the driver's folder of it.

    Args:
        digest: the sha256 of its manifest.json.
        uri: that each node fetches it from by itself; None: from the driver's node.
        copies: whether a node may have a copy at all.
    """

    digest: str
    uri: str | None = None
    copies: bool = True


@dataclass(frozen=True)
class WorkerPlan:
    """What to set up where blocks run.

    Args:
        population: folder of shards whose images are decoded.
        model: the model to keep resident.
        algorithm: says which entries travel and how visits are computed; resolved, before a bench is built.
        kept: folder of the kept entries.
        block: clients a block, or "auto".
        device: "cpu" or "cuda".
        lanes: how many visits are trained at once; None before it is resolved.
        fold: of the population, that is tested; None for the splits as they are stored.
        validation: the fold for validation; None for the one after that.
        joins: the first rounds of clients that are not there from the first; see `joining`.
        standardise: what is done to all inputs; None where they stay.
        augment: what changes inputs in training; None where they stay.
        origin: where nodes find the population that do not see its folder; None where all see it.
        here: the sites whose samples are where the plan is; None for all.
    """

    population: Path
    model: ModelPlan
    algorithm: Algorithm
    personal: Path
    block: int | str = "auto"
    device: str = "cpu"
    lanes: int | None = None
    fold: int | None = None
    validation: int | None = None
    joins: Mapping[str, int] = field(default_factory=dict)
    standardise: Standardise | None = None
    augment: Augment | None = None
    origin: Origin | None = None
    here: tuple[str, ...] | None = None

    def build(self, share: float = 1.0) -> Worker:
        """Set up a bench in this process.

        Args:
            share: the process's part of the device, in (0, 1].

        Raises:
            OutOfMemoryError: the models do not fit the device.
        """
        if self.lanes is None:
            raise ValueError("the plan is not resolved")
        module = self.module()
        layouts = self.algorithm.divide(Layout.of(module))
        with models_fit(self.lanes):
            resident = Resident(module, layouts, torch.zeros(self.model.shape), self.device, self.lanes)
        shards = Shards(self.population, self.device, share, self.standardise, self.here)
        personal = PersonalStore(self.personal, layouts.personal)
        return Worker(resident, shards, personal, trainer(resident, self.algorithm.local.compute), self.augment)

    def module(self) -> nn.Module:
        """Make the model, in the algorithm's precision."""
        module = self.model.build()
        return module.double() if self.algorithm.local.compute.precision == "fp64" else module

    def resolved(self) -> WorkerPlan:
        """The plan with `local.execution = "auto"` resolved, and the lanes that follow.

        Raises:
            InputError: the algorithm does not fit the model, or the population.
        """
        module = self.module()
        sample = torch.zeros(self.model.shape, dtype=_trained(module, self.model).dtype)
        _check_logits(module, sample, self.model)
        if self.model.own is not None:
            check_own(module, sample, self.model.name)
        self.algorithm.check_model(module, sample)
        block = self.block_size(self.cohort)
        ways = [choose(phase.local, module, sample, self.device, block) for phase in self.algorithm.phases]
        # One way for all phases: fused visits do less than others, so one that cannot be fused decides.
        compute = next((way for way in ways if way.execution != "fused"), ways[0])
        plan = replace(self, algorithm=self.algorithm.computed(compute))
        block = plan.block_size(plan.cohort)
        return replace(plan, lanes=lanes_of(compute, plan.layouts.whole, self.device, block))

    @cached_property
    def layouts(self) -> Layouts:
        """How the model's entries are divided.

        Raises:
            InputError: the algorithm makes no sense for the model.
        """
        return self.algorithm.divide(Layout.of(self.module()))

    @cached_property
    def census(self) -> Census:
        """The population's training clients.

        Raises:
            InputError: `joins` names somebody who is none of them.
        """
        population = Population.open(self.population, self.fold, self.validation, sites=self.here)
        samples = population.sizes - population.test_sizes
        clients = population.train_clients
        sites = self.sites
        numbers = None if sites is None else sites.numbers[clients]
        return Census(clients, samples[clients], joining(population, self.joins), numbers)

    @cached_property
    def sites(self) -> Sites | None:
        """The sites of all clients, training or not; None where there are none."""
        return Sites.of(Population.open(self.population, sites=self.here))

    @property
    def cohort(self) -> int:
        """Clients a round."""
        return self.algorithm.schedule.size(len(self.census.clients))

    def block_size(self, cohort: int) -> int:
        """Clients a block.

        "auto" is ceil(sqrt(cohort / 10)): a block's work grows, and so does their number. Where visits are fused it is
        at least 5, for they gain by neighbours, but at most half the cohort.
        """
        if isinstance(self.block, int):
            return self.block
        size = 1
        while 10 * size * size < cohort:
            size += 1
        fused = self.algorithm.local.compute.execution == "fused"
        return max(size, min(FUSED_BLOCK, -(-cohort // 2))) if fused else size

    def __getstate__(self) -> dict[str, object]:
        # What is worked out from the fields is worked out again at the other end: a census may be long.
        return {field.name: getattr(self, field.name) for field in fields(self)}
