"""All measurements that need a GPU, in one command; each figure is written to a table as it comes.

    python -m tests.benchmarks.gpu [--parts executions,bytes,...] [--out DIR]
    python -m tests.benchmarks.gpu --device cpu --rounds 1 --small        # tests the script

The parts, in their order:

- rounds: loads A, B and C and networks with batch norm, beside a plain loop
- executions: the perceptron by every execution, on one actor
- bytes: equal files on one actor, on two that share the GPU, and again
- models: one round of every model under deterministic kernels
- stacked: FedBN's digits and ResNet-20, stacked beside one by one
- benchmark: pfl-research's CIFAR-10 benchmark on 1, 2, 4 and 8 actors, then all its rounds on the best number
- peers: the same rounds in pfl-research and Flower, if their packages are there
- auto: `gpus_per_actor = "auto"`, predicted beside measured memory
- memory: a block that does not fit, and the block that the message names
- profile: a round's kernels, synchronisations and copies

Each part runs in a process of its own, so a crash ends its part only. A machine that limits the time of a command takes
them one by one: the table continues.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

# Before CUDA starts: deterministic matrix products need it.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import raysim  # noqa: F401  before ray: it switches off Ray's hook for `uv run`
from tests.benchmarks.gpu import executions, memory, profile, rounds, whole
from tests.benchmarks.gpu.setting import Add, Setting
from tests.benchmarks.gpu.table import Table

PARTS: Mapping[str, Callable[[Setting, Add], None]] = {
    "rounds": rounds.rounds,
    "executions": executions.executions,
    "bytes": whole.equal_bytes,
    "models": executions.models,
    "stacked": executions.stacked,
    "benchmark": whole.benchmark,
    "peers": whole.peers,
    "auto": memory.auto,
    "memory": memory.out_of_memory,
    "profile": profile.profiles,
}


def main() -> None:
    """Run the parts that are asked for."""
    asked = _parser().parse_args()
    names = asked.parts.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        raise SystemExit(f"--parts = {asked.parts}: must name {', '.join(PARTS)}, not {', '.join(unknown)}")
    for name in names:
        if len(names) == 1:
            run_part(name, asked)
        else:
            run_apart(name, asked.out)


def run_part(name: str, asked: argparse.Namespace) -> None:
    """Run a part in this process; an error becomes a row."""
    add = partial(Table(asked.out).add, name)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as work:
        few = min(asked.rounds, 1 if asked.small else 10)
        setting = Setting(asked.device, asked.rounds, few, asked.small, Path(work), asked.data, asked.peers)
        try:
            PARTS[name](setting, add)
        except Exception as error:  # the other parts go on
            traceback.print_exc()
            add("the part", error=f"{type(error).__name__}: {error}")
    add("time", seconds=time.perf_counter() - started)


def run_apart(name: str, out: Path) -> None:
    """Run a part with the same options in a process of its own; a crash becomes a row."""
    command = [sys.executable, "-m", "tests.benchmarks.gpu", *sys.argv[1:], "--parts", name]
    status = subprocess.run(command, check=False).returncode
    if status:
        Table(out).add(name, "the part", error=f"its process ended with exit status {status}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--out", type=Path, default=Path("gpu"), help="folder of gpu.json and gpu.md")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--rounds", type=int, default=1500, help="rounds of pfl-research's benchmark")
    parser.add_argument("--small", action="store_true", help="tiny populations, to test the script")
    parser.add_argument("--data", type=Path, help="folder of CIFAR-10; default: drawn images")
    parser.add_argument("--peers", type=Path, help="folder of the peers' environments")
    return parser


if __name__ == "__main__":
    main()
