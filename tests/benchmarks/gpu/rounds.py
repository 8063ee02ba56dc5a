"""Rounds of a worker beside a plain PyTorch loop on the same GPU, with blocks of the default size and of the cohort."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from algorithms import Participation, fedavg, fedbn
from raysim.fleet.machine import keep_memory
from raysim.fleet.model_plan import ModelPlan
from tests.benchmarks.gpu.executions import networks
from tests.benchmarks.gpu.harness import local_of, measured, model_of, plan_of, synchronise
from tests.benchmarks.gpu.setting import Add, Setting, attempt
from tests.benchmarks.peers.loads import Load


def rounds(setting: Setting, add: Add) -> None:
    """Time the loads A, B and C, and networks with batch norm under FedBN."""
    keep_memory()
    loads = {name: setting.load(name) for name in ("A", "B", "C")}
    for name, load in {**loads, **networks(setting)}.items():
        model = _model(load)
        attempt(add, f"{name}, plain loop", partial(_plain, setting, load, model))
        for title, block in {"default block": "auto", "one block": load.cohort}.items():
            attempt(add, f"{name}, {title}", partial(_blocks, setting, name, load, model, block))


def _plain(setting: Setting, load: Load, model: ModelPlan) -> Mapping[str, Any]:
    """Time the training of a round's client updates alone, one after the other, on data that lie on the device."""
    device = setting.device
    module = model.build().to(device).train()
    x = torch.rand(load.cohort, load.samples, *load.shape, device=device)
    y = torch.randint(0, load.classes, (load.cohort, load.samples), device=device)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.01)
    seconds = []
    for _ in range(1 + min(3, setting.few)):
        synchronise(device)
        started = time.perf_counter()
        for client in range(load.cohort):
            for first in range(0, load.samples, load.batch):
                rows = slice(first, first + load.batch)
                optimiser.zero_grad()
                cross_entropy(module(x[client, rows]), y[client, rows]).backward()
                optimiser.step()
        synchronise(device)
        seconds.append(time.perf_counter() - started)
    return {"seconds a round": statistics.median(seconds[1:])}


def _blocks(setting: Setting, name: str, load: Load, model: ModelPlan, block: int | str) -> Mapping[str, Any]:
    make = fedbn if name in networks(setting) else fedavg
    algorithm = make(Participation(cohort=load.cohort), local_of(load))
    plan = plan_of(setting.population(name, load), load, setting.device, model, algorithm, block)
    found = measured(plan, setting.few)
    clients = plan.block_size(load.cohort)
    return {
        "seconds a round": found.seconds,
        "MiB": found.mib,
        "execution": found.execution,
        "clients a block": clients,
    }


def _model(load: Load) -> ModelPlan:
    if load.model == "mlp":
        return model_of("mlp", load, hidden=load.hidden)
    return model_of("cnn_dropout" if load.model == "cnn" else load.model, load)
