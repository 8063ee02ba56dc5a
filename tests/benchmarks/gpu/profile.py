"""Profile of a round by `torch.profiler`: shares of kernels, synchronisations and copies."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from torch.profiler import ProfilerActivity, profile

from algorithms import begin, next_round
from tests.benchmarks.gpu.harness import fleet_of, model_of, plan_of, synchronise
from tests.benchmarks.gpu.setting import Add, Setting, attempt
from tests.benchmarks.plain import WARM

TOP = 12
"""Kernels and operators that the table names."""

WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "aten::item", "aten::nonzero")
"""Calls after which the host has waited for the device."""


def profiles(setting: Setting, add: Add) -> None:
    """Profile a round of the loads A, B and C."""
    for name in "B" if setting.small else "ABC":
        attempt(add, f"load {name}", partial(_round, setting, add, name))


def _round(setting: Setting, add: Add, name: str) -> dict[str, Any]:
    load, device = setting.load(name), setting.device
    plan = plan_of(setting.population(name, load), load, device, _model(load))
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with fleet_of(plan) as fleet:
        state = begin(plan.module(), fleet, seed=0)
        for _ in range(WARM):
            state = next_round(state, plan.algorithm, fleet)
        synchronise(device)
        plain = time.perf_counter()
        state = next_round(state, plan.algorithm, fleet)
        synchronise(device)
        plain = time.perf_counter() - plain
        with profile(activities=activities) as profiler:
            started = time.perf_counter()
            next_round(state, plan.algorithm, fleet)
            synchronise(device)
            seconds = time.perf_counter() - started
    averages = profiler.key_averages()
    on_device = [each for each in averages if str(each.device_type).endswith("CUDA")]
    kernels = [each for each in on_device if not each.key.startswith(("Memcpy", "Memset"))]
    for number, each in enumerate(sorted(kernels, key=_device_time, reverse=True)[:TOP], 1):
        add(f"load {name}, kernel {number}", kernel=each.key[:90], calls=each.count, ms=_device_time(each) / 1e3)
    operators = sorted((each for each in averages if each not in on_device), key=_host_time, reverse=True)
    for number, each in enumerate(operators[:TOP], 1):
        add(f"load {name}, host {number}", operator=each.key[:90], calls=each.count, ms=_host_time(each) / 1e3)
    copies = [each for each in on_device if each.key.startswith("Memcpy")]
    return {
        "execution": plan.algorithm.local.compute.execution,
        "seconds a round": plain,
        "seconds profiled": seconds,
        "kernels' share": sum(map(_device_time, kernels)) / 1e6 / seconds,
        "kernels": sum(each.count for each in kernels),
        "copies": sum(each.count for each in copies),
        "copies, ms": sum(map(_device_time, copies)) / 1e3,
        **{wait: sum(each.count for each in averages if each.key == wait) for wait in WAITS},
    }


def _model(load: Any) -> Any:
    return model_of("cnn_dropout", load) if load.model == "cnn" else model_of("mlp", load, hidden=load.hidden)


def _device_time(event: Any) -> float:
    return float(event.self_device_time_total)


def _host_time(event: Any) -> float:
    return float(event.self_cpu_time_total)
