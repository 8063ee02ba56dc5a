"""Runs of the command on actors that share the GPU: pfl-research's benchmark, peers, equal bytes."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tests.benchmarks.command import Command, experiment_of
from tests.benchmarks.gpu.setting import Add, Setting, attempt, gpu_memory, images, steady
from tests.benchmarks.plain import WARM
from tests.benchmarks.rounds import PEERS

TEST_EVERY, TEST_SAMPLES, PROBED = 10, 10_000, 60
"""Rounds between tests of pfl-research's benchmark, its test samples, and rounds that compare numbers of actors."""


def benchmark(setting: Setting, add: Add) -> None:
    """Run pfl-research's CIFAR-10 benchmark: first a few rounds on each number of actors, then all on the best."""
    found: dict[int, float] = {}
    for actors in setting.sharers:
        rounds = min(PROBED, setting.rounds)
        figures = attempt(add, f"{actors} actors, {rounds} rounds", partial(_cifar, setting, actors, rounds))
        if figures is not None:
            found[actors] = figures["seconds a round"]
    for actors in sorted({1, min(found, key=found.__getitem__)}) if found else ():
        title = f"{actors} actors, {setting.rounds} rounds"
        attempt(add, f"{title}, whole", partial(_cifar, setting, actors, setting.rounds))


def _cifar(setting: Setting, actors: int, rounds: int) -> dict[str, Any]:
    load = replace(setting.load("C"), test_every=min(TEST_EVERY, rounds))
    if setting.data is None:
        path = setting.population("cifar", replace(load, test_samples=load.test_samples or TEST_SAMPLES))
        experiment = experiment_of(load, {"population": str(path)}, rounds)
    else:
        experiment = experiment_of(load, {"dataset": "cifar10", "root": str(setting.data)}, rounds)
        experiment["partition"] = {"clients": load.clients}
    experiment["evaluate"] |= {"on": ["test"], "metrics": ["accuracy", "loss"]}
    with gpu_memory(setting.device) as memory:
        done = setting.run(experiment, f"cifar-{actors}-{rounds}-{len(list(setting.work.iterdir()))}", actors)
    accuracy = pq.read_table(done.folder / "fedavg" / "metrics.parquet")["test_accuracy"].to_pylist()[-1]
    figures = {"minutes": done.seconds / 60, "seconds a round": steady(done), "accuracy": accuracy}
    return {**figures, "images": "CIFAR-10" if setting.data else "drawn", "GPU, MiB": memory.peak}


def peers(setting: Setting, add: Add) -> None:
    """Time the same rounds in pfl-research and Flower, if their packages are here."""
    load, data = setting.load("C"), setting.work / "C.npz"
    if setting.small:
        add("all", error="left out: the peers' scripts take whole loads only")
        return
    np.savez(data, **images(load))
    # Each further process of pfl needs a GPU of its own.
    attempt(add, "pfl, 1 process", partial(_peer, setting, "pfl", "pfl", "pfl_.py", data, ["--processes", "1"]))
    for workers in setting.sharers:
        more = ["--workers", str(workers)]
        attempt(add, f"Flower, {workers} workers", partial(_peer, setting, "flower", "flwr", "flower.py", data, more))


def _peer(
    setting: Setting, environment: str, package: str, script: str, data: Path, more: list[str]
) -> Mapping[str, Any]:
    python = setting.peers / environment / "bin" / "python" if setting.peers else Path(sys.executable)
    if not python.exists() or (setting.peers is None and importlib.util.find_spec(package) is None):
        raise FileNotFoundError(f"left out: {package} is not installed for {python}; give --peers")
    options = ["--data", str(data), "--load", "C", "--rounds", str(setting.few), "--warm", str(WARM)]
    environ = {**os.environ, "BENCHMARK_DEVICE": setting.device}
    with gpu_memory(setting.device) as memory:
        done = subprocess.run(
            [python, PEERS / script, *options, *more], capture_output=True, text=True, check=False, env=environ
        )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    seconds = statistics.median(json.loads(done.stdout.strip().splitlines()[-1])["seconds"])
    minutes = seconds * setting.rounds / 60
    return {"seconds a round": seconds, "minutes without tests": minutes, "GPU, MiB": memory.peak}


def equal_bytes(setting: Setting, add: Add) -> None:
    """Compare the files of a run on one actor, on two that share the GPU, and once more."""
    load = setting.load("B")
    path = setting.population("B", load)
    radfed = {"name": "radfed", "cohort": load.cohort, "aggregate_every": 2}
    algorithms = {"fedavg": {"name": "fedavg", "cohort": load.cohort}, "radfed": radfed}
    norms = {"none": "auto", "batch": "vectorised"}
    for name, table in algorithms.items():
        for norm, execution in norms.items():
            experiment = experiment_of(load, {"population": str(path)}, 2 if setting.small else 4)
            experiment |= {"algorithm": table, "model": {**experiment["model"], "norm": norm}}
            experiment["local"]["execution"] = execution
            title = f"{name}, mlp with norm {norm}, {execution}"
            attempt(add, title, partial(_digests, setting, experiment, name, title.replace(" ", "")))
        if setting.small:  # a run on two actors starts Ray, and one is enough to test the script
            return


def _digests(setting: Setting, experiment: Mapping[str, Any], name: str, title: str) -> Mapping[str, Any]:
    digests = {}
    for case, actors in {"1 actor": 1, "2 actors": 2, "2 actors again": 2}.items():
        if not (setting.small and case.endswith("again")):
            done = setting.run(experiment, f"{title}-{case.replace(' ', '-')}", actors)
            digests[case] = _digest(done, name)
    return {"equal": len(set(digests.values())) == 1, **digests}


def _digest(done: Command, name: str) -> str:
    """Return the start of the SHA-256 of the model, and of the metrics that do not depend on the machine."""
    table = pq.read_table(done.folder / name / "metrics.parquet")
    same = [column for column in table.column_names if not column.startswith(("seconds", "machine_"))]
    metrics = json.dumps(table.select(same).to_pylist()).encode()
    model = (done.folder / name / "model.safetensors").read_bytes()
    return " ".join(hashlib.sha256(content).hexdigest()[:12] for content in (model, metrics))
