"""Provenance of a reproduction: the commit, the machine and a digest of the numbers."""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import torch

import raysim
from partitioning.common.paths import read_bytes, read_parquet
from raysim.common.files import text_sha256
from raysim.reproduction.file import Reproduction
from raysim.store.summary import read_summary

CODE = ("raysim", "algorithms", "partitioning", "pyproject.toml")
"""Paths of a checkout that results depend on."""

TIMED = ("seconds", "machine_")
"""Prefixes of the columns that differ from run to run."""

RECORDED_NAMES = {"aggregated": "merged", "updates": "visits"}
"""Names of columns in the digest. The records in docs/reproductions were made under these."""


def commit() -> str | None:
    """Return the checkout's commit, with a `+` if its code differs from it; None outside a checkout."""
    root = Path(raysim.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        name = _git(root, "rev-parse", "HEAD").strip()
        return name + ("+" if _git(root, "status", "--porcelain", "--untracked-files=normal", "--", *CODE) else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def machine(folder: Path) -> str:
    """Describe the machine of a study: processor, the instruction set that torch uses, cores, GPU, torch's version.

    Args:
        folder: folder of the study, whose trials name their GPU.
    """
    used = torch.backends.cpu.get_cpu_capability()
    summaries = (read_summary(path, ()) for path in folder.glob("trials/*/*/summary.json"))
    gpus = sorted({summary["fingerprint"]["gpu"] for summary in summaries} - {"none"})
    parts = f"{processor()} ({used})", f"{os.cpu_count()} cores", *gpus, f"torch {torch.__version__}"
    return ", ".join(parts)


def setting_of(reproduction: Reproduction, full: bool) -> str:
    """Return the sha256 of the study that a reproduction's file describes."""
    return text_sha256(json.dumps(reproduction.study(full), sort_keys=True))


def digest(folder: Path) -> str:
    """Return the sha256 of a study's models and metrics, trial by trial, without timed columns.

    Args:
        folder: folder of the study.
    """
    found = hashlib.sha256()
    for trial in sorted(read_parquet(folder / "trials.parquet").to_pylist(), key=_identity):
        found.update(_identity(trial).encode())
        # A trial has one algorithm.
        for path in sorted((folder / "trials" / trial["trial"]).glob("*/model.safetensors")):
            found.update(read_bytes(path))
        for path in sorted((folder / "trials" / trial["trial"]).glob("*/metrics.parquet")):
            found.update(b"".join(_metrics(path)))
    return found.hexdigest()


def _identity(trial: Mapping[str, object]) -> str:
    """Return a trial's identity in a study. Its folder does not serve: later settings change the folder's name."""
    keys = ("dataset", "algorithm", "point", "seed", "fold", "validation", "stage", "status")
    return repr([trial[key] for key in keys]).replace("aggregate_every", "merge_every")


def _metrics(path: Path) -> Iterator[bytes]:
    """Yield the columns one by one: values do not depend on the version of the file format."""
    table = read_parquet(path)
    for name in table.column_names:
        if not name.startswith(TIMED):
            column: pa.ChunkedArray = table[name]
            yield f"{RECORDED_NAMES.get(name, name)}:{column.to_pylist()!r}".encode()


def processor() -> str:
    """Return the name of the processor, or its architecture where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout
