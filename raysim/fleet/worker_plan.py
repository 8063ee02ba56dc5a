"""Plan of a worker: everything that another process needs to set it up, a user's own modules included."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import isqrt
from pathlib import Path

import torch
from torch import nn

from algorithms import (
    Algorithm,
    Augment,
    Census,
    Devices,
    Layout,
    Layouts,
    Purpose,
    Resident,
    Worker,
    choose,
    lanes_of,
    low_rank_trainer,
    torch_seed,
    trainer,
    with_format,
)
from algorithms.core.chunks import outputs_of
from algorithms.training.forked import forked
from algorithms.training.own import with_personal
from partitioning import Population
from raysim.data.shards import Shards, Sites
from raysim.data.standardise import Standardisation
from raysim.fleet.census import client_facts_of, joining
from raysim.fleet.model_plan import ModelPlan
from raysim.fleet.out_of_memory import models_fit
from raysim.fleet.personal_disk import PersonalDisk
from raysim.models.module_checks import check_own_module

GPU_LANES, GPU_MODEL_BYTES, GPU_OUTPUT_BYTES = 64, 2**29, 2**30
"""Most clients of a block by default on a GPU, and most bytes of their models and of all layers' outputs.

Training takes many times as much: ten clients of ResNet-20, whose outputs have 0.4 GiB, took 3.4 GiB on an H200.
"""

_KEPT = ("census", "sites", "_gpu_lanes")
"""Cached properties that do not depend on the lanes."""

_LEAST_BLOCKS = {"fused": (5, 2), "low-rank": (25, 4)}
"""Least number of clients in a block by execution, and of blocks in a cohort; larger blocks hardly save time."""

_SPECIAL = {"low-rank": 0, "fused": 1}
"""Executions for some models and methods only, from the fastest."""


@dataclass(frozen=True)
class WorkerPlan:
    """Plan of the worker that runs blocks.

    Args:
        population: folder of the population, with decoded images.
        model: resident model.
        algorithm: algorithm; its execution must be resolved before a worker is built.
        personal: folder of personal state.
        block: clients a block, or "auto".
        device: "cpu" or "cuda".
        lanes: client updates that train at once; None before the plan is resolved.
        fold: test fold of the population; None for the stored splits.
        validation: validation fold; None for the fold after `fold`.
        joins: first rounds of clients that join after round 1; see `joining`.
        standardise: standardisation of all inputs; None to leave them.
        augment: augmentation of inputs in training; None to leave them.
        digest: SHA-256 of the population's manifest.json, by which nodes recognise it; None if all see its folder.
        uri: URI from which other nodes fetch the population; None to copy it from the driver's node.
        copies: whether nodes that do not see the folder may have a copy.
        here: sites whose samples the worker has; None for all.
        devices: devices of the clients in virtual time; None if that is not simulated, and in actors.
        own: seed for the draws of a user's own code; None without such code.
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
    standardise: Standardisation | None = None
    augment: Augment | None = None
    digest: str | None = None
    uri: str | None = None
    copies: bool = True
    here: tuple[str, ...] | None = None
    devices: Devices | None = None
    own: int | None = None

    def keyed(self, purpose: Purpose, counter: int = 0) -> AbstractContextManager[None]:
        """Seed the default generators for a user's own code by a key, and restore them; do nothing without it."""
        return nullcontext() if self.own is None else forked(torch_seed(self.own, purpose, counter))

    def build(self, share: float = 1.0) -> Worker:
        """Set up a worker in this process, which has a `share` of the device.

        Raises:
            OutOfMemoryError: the models do not fit the device.
        """
        if self.lanes is None:
            raise ValueError("the plan is not resolved")
        module = self.module()
        layouts = self.algorithm.divide(Layout.of(module))
        with models_fit(self.lanes):
            resident = Resident(module, layouts, torch.zeros(self.model.shape), self.device, self.lanes)
        local = self.algorithm.local
        shards = Shards(self.population, self.device, share, self.standardise, self.here, local.loss.limits)
        personal = PersonalDisk(self.personal, layouts.personal)
        low_rank = low_rank_trainer(resident, local.compute)
        trained_by = trainer(resident, local.compute, local.update)
        return Worker(resident, shards, personal, trained_by, low_rank, self.augment, own=self.own)

    def module(self) -> nn.Module:
        """Make the module in the algorithm's precision."""
        module, local = self.model.build(), self.algorithm.local
        module = module.double() if local.compute.precision == "fp64" else module
        if local.update is None:
            return module
        with self.keyed(Purpose.OWN_TRIAL):
            return with_personal(module, local.update)

    def resolved(self) -> WorkerPlan:
        """Return the plan with `local.execution = "auto"` and the lanes resolved.

        Raises:
            InputError: the algorithm does not fit the model or the population.
        """
        with self.keyed(Purpose.OWN_TRIAL):
            return self._resolved()

    def _resolved(self) -> WorkerPlan:
        module = self.module()
        sample = self.model.sample(module)
        self.model.check_outputs(module, sample)
        if self.model.own is not None:
            check_own_module(module, sample, self.model.name)
        self.algorithm.check_model(module, sample)
        # On a GPU the choice does not depend on the block, and the block depends on the choice.
        block = self.block_size(self.cohort) if self.device == "cpu" else 1
        layout, samples = Layout.of(module), self.census.samples
        ways = []
        for phase in self.algorithm.phases:
            used, forms = phase.local.fitted(self.census).used(samples), phase.forms_models(layout)
            self.model.check_loss(phase.local)
            ways.append(choose(phase.local, module, sample, self.device, block, used, forms, self.model.example[1][0]))
        # All phases share one execution. A phase that cannot have the fastest one decides.
        compute = max(ways, key=lambda way: _SPECIAL.get(way.execution, len(_SPECIAL)))
        if self.algorithm.local.update is None:
            compute = with_format(compute, module, sample, self.device)
        plan = replace(self, algorithm=self.algorithm.computed(compute))
        # They do not depend on the execution, and a large model or population takes long.
        vars(plan).update(census=self.census, sites=self.sites)
        layouts, block = plan.algorithm.divide(layout), plan.block_size(self.cohort)
        resolved = replace(plan, lanes=lanes_of(compute, layouts.whole, self.device, block))
        vars(resolved).update({name: vars(plan)[name] for name in _KEPT if name in vars(plan)}, layouts=layouts)
        return resolved

    @cached_property
    def layouts(self) -> Layouts:
        """Shared, personal and frozen entries of the model.

        Raises:
            InputError: the algorithm makes no sense for the model.
        """
        return self.algorithm.divide(Layout.of(self.module()))

    @cached_property
    def census(self) -> Census:
        """Training clients of the population.

        Raises:
            InputError: `joins` names no training client.
        """
        population = Population.open(self.population, self.fold, self.validation, sites=self.here)
        samples = population.sizes - population.test_sizes
        clients = population.train_clients
        sites = self.sites
        numbers = None if sites is None else sites.numbers[clients]
        facts = client_facts_of(population, {name for option in self.algorithm.folded for name in option.reads})
        return Census(clients, samples[clients], joining(population, self.joins), numbers, self.devices, facts)

    @cached_property
    def sites(self) -> Sites | None:
        """Sites of all clients, held-out ones included; None for a population without sites."""
        return Sites.of(Population.open(self.population, sites=self.here))

    @property
    def cohort(self) -> int:
        """Clients a round."""
        return self.algorithm.schedule.size(len(self.census.clients))

    @property
    def blocks(self) -> int:
        """Blocks of a whole cohort."""
        return -(-self.cohort // self.block_size(self.cohort))

    @cached_property
    def _gpu_lanes(self) -> int:
        """Most clients of a block by default on a GPU, by the bytes of their models and of all layers' outputs."""
        module, largest = self.module(), int(Population.open(self.population).sizes.max(initial=1))
        sizes = [phase.local.batch_size for phase in self.algorithm.phases]
        batch = max(largest if size == "full" else min(size, largest) for size in sizes)
        sample = self.model.sample(module)
        outputs = batch * sum(outputs_of(module, sample, leaves=True)) * sample.element_size()
        models = Layout.of(module).nbytes
        return min(GPU_LANES, GPU_MODEL_BYTES // max(1, models), GPU_OUTPUT_BYTES // max(1, outputs))

    def block_size(self, cohort: int) -> int:
        """Return the clients a block.

        "auto" is ceil(sqrt(cohort / 10)): both the size and the number of blocks grow with the cohort. If client
        updates are fused it is at least 5, because neighbours train together, and at most half the cohort. If they are
        of low rank it is at least 25, because all of a block share each product, and at most a quarter of the cohort.

        On a GPU it is half the cohort instead, or as many as `_gpu_lanes` allows, if client updates train at once.
        """
        if isinstance(self.block, int):
            return self.block
        if self.device != "cpu" and self.algorithm.local.compute.execution != "sequential":
            return max(1, min(-(-cohort // 2), self._gpu_lanes))
        least, blocks = _LEAST_BLOCKS.get(self.algorithm.local.compute.execution, (1, 1))
        return max(isqrt(max(0, cohort - 1) // 10) + 1, min(least, -(-cohort // blocks)))

    def __getstate__(self) -> dict[str, object]:
        # Cached properties stay behind and are computed again at the other end: a census may be long.
        # Devices are the driver's: only its virtual time asks for them.
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "devices"}
