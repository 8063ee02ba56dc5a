"""Memory: the number of actors that "auto" chooses, and a block that does not fit."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from tests.benchmarks.command import experiment_of
from tests.benchmarks.gpu.setting import MIB, Add, Setting, attempt, gpu_memory, steady
from tests.benchmarks.peers.loads import CIFAR, MNIST, Load

CHOICE = re.compile(r'"auto": an actor takes (\d+) of (\d+) MiB, so a GPU holds (\d+) actors; (\d+) of ([\d.]+) GPU')
NAMED = re.compile(r"set fleet\.block = (\d+)")

BALLAST = """
import sys, torch
free, _ = torch.cuda.mem_get_info()
held = torch.empty(max(1, free - int(sys.argv[1])), dtype=torch.uint8, device="cuda")
print("held", flush=True)
sys.stdin.read()
"""
"""Program that takes all of the GPU's memory except some bytes, until its input ends."""


def auto(setting: Setting, add: Add) -> None:
    """Compare the memory that "auto" predicts for its actors with the memory that they take."""
    attempt(add, "context of a process", partial(_context, setting.device))
    for name, load in {"small: mlp": setting.load("B"), "large: ResNet-20": _resnet(setting)}.items():
        attempt(add, name, partial(_chosen, setting, name, load))


def out_of_memory(setting: Setting, add: Add) -> None:
    """Run a block that does not fit the memory that is left, then the block that the message names."""
    # Most memory of a block is its activations: a size that fits exists.
    large = Load("mlp", MNIST, clients=12, samples=8_000, cohort=12, batch=8_000, hidden=(2_000,))
    load, left = (large, 2_500 * MIB) if setting.small else (_resnet(setting), 6_000 * MIB)
    experiment = experiment_of(load, {"population": str(setting.population(f"large-{load.model}", load))}, 1)
    experiment["fleet"] = {"block": load.cohort}
    experiment["local"]["execution"] = "vectorised"
    with _little_memory(setting.device, left):
        named = attempt(add, f"block of {load.cohort}", partial(_refused, setting, experiment))
        if named is None or named["block named"] is None:
            return
        smaller = {**experiment, "fleet": {"block": named["block named"]}}
        attempt(add, f"block of {named['block named']}", partial(_fits, setting, smaller))


def _resnet(setting: Setting) -> Load:
    clients, samples, cohort = (12, 100, 12) if setting.small else (100, 500, 50)
    return Load("resnet20", CIFAR, clients, samples, cohort, batch=50)


def _context(device: str) -> Mapping[str, Any]:
    """Return the memory of this process beside torch's tensors; nothing else may use the GPU."""
    if device != "cuda":
        raise RuntimeError("left out: needs a GPU")
    torch.ones(1024, 1024, device="cuda").matmul(torch.ones(1024, 1024, device="cuda")).sum().item()
    free, total = torch.cuda.mem_get_info()
    return {"measured, MiB": (total - free - torch.cuda.memory_reserved()) // MIB}


def _chosen(setting: Setting, name: str, load: Load) -> Mapping[str, Any]:
    path = setting.population("B" if load.model == "mlp" else f"large-{load.model}", load)
    experiment = experiment_of(load, {"population": str(path)}, setting.few)
    with gpu_memory(setting.device) as memory:
        done = setting.run(experiment, f"auto-{load.model}", 1, gpus="auto")
    found = CHOICE.search((done.folder / "run.log").read_text(encoding="utf-8"))
    if found is None:
        raise RuntimeError("run.log names no choice")
    each, total, held, actors = (int(number) for number in found.groups()[:4])
    figures = {"actors": actors, "a GPU holds": held, "of an actor, MiB": each, "GPU, MiB": total}
    return {**figures, "predicted, MiB": actors * each, "measured, MiB": memory.peak, "seconds a round": steady(done)}


def _refused(setting: Setting, experiment: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        setting.run(experiment, "memory-refused", 1)
    except SystemExit as refusal:
        named = NAMED.search(str(refusal))
        return {"message": str(refusal).partition(": ")[2], "block named": int(named[1]) if named else None}
    raise RuntimeError("the block fits: nothing was refused")


def _fits(setting: Setting, experiment: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"seconds a round": steady(setting.run(experiment, "memory-fits", 1))}


@contextmanager
def _little_memory(device: str, left: int) -> Iterator[None]:
    """Leave little memory to the commands that run in the context.

    On a GPU another process holds the rest. On the CPU commands inherit this process's limit of addresses: what a
    command without work takes, and `left` bytes.

    Args:
        device: "cuda" or "cpu".
        left: bytes to leave.
    """
    if device == "cuda":
        with subprocess.Popen(
            [sys.executable, "-c", BALLAST, str(left)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder:
            if not holder.stdout or not holder.stdout.readline():
                raise RuntimeError("the GPU's memory cannot be held")
            yield
            holder.communicate()
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_addresses() + left, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _addresses() -> int:
    """Return the bytes of addresses that a process takes for imports, one backward pass and threads."""
    program = (
        "import torch, raysim, re, raysim.simulation.api\n"
        "torch.set_num_threads(1)\n"
        "torch.nn.Conv2d(3, 3, 3)(torch.zeros(1, 3, 8, 8)).sum().backward()\n"
        "print(re.search(r'VmPeak:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return int(done.stdout) * 1024
