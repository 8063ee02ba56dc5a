"""Run the tests elsewhere: on other processors, beside other work, with other versions.

    uv run python -m tests.environments NAME[+NAME...] [arguments of pytest]

Names joined by "+" hold at once: `3.13+newest+avx2`. Three such runs cover every value.

| name | environment |
|---|---|
| `plain`, `avx2` | PyTorch's kernels without vector instructions, and with AVX2 |
| `blas-avx2` | MKL and oneDNN restricted to AVX2 |
| `busy` | four processes that hold the cores |
| `3.11`, `3.12`, `3.13` | another Python with the tested versions; uv finds or downloads it |
| `lowest`, `newest` | the lowest versions that `pyproject.toml` allows of each dependency, and the newest |

The environments of other versions lie in `.environments/` and are kept. Warnings there are ignored.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".environments"

VARIABLES = {
    "plain": {"ATEN_CPU_CAPABILITY": "default"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "blas-avx2": {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
}
VERSIONS = {"lowest": ["--resolution", "lowest-direct"], "newest": ["--upgrade"]}
PYTHONS = ("3.11", "3.12", "3.13")
NAMES = (*VARIABLES, "busy", *PYTHONS, *VERSIONS)

BUSY = 4
"""Processes that hold the cores in `busy`."""


def python_of(names: list[str]) -> str:
    """Return the Python of an environment, which is set up first; this process's own if versions are the same."""
    python = next((name for name in names if name in PYTHONS), None)
    versions = next((name for name in names if name in VERSIONS), None)
    if python is None and versions is None:
        return sys.executable
    uv = shutil.which("uv") or sys.exit("needs uv; pip install uv")
    there = FOLDER / "-".join(filter(None, (python, versions)))
    if versions is None:
        synced = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(there)}
        subprocess.run([uv, "sync", "--quiet", "--python", str(python)], cwd=ROOT, env=synced, check=True)
    else:
        if not there.exists():
            subprocess.run([uv, "venv", "--quiet", "--python", python or sys.executable, there], check=True)
        # Without uv's settings, which pin the tested versions.
        pip = [uv, "pip", "install", "--quiet", "--no-config", "--python", there / "bin" / "python"]
        subprocess.run([*pip, *VERSIONS[versions], "--editable", ".", "--group", "dev"], cwd=ROOT, check=True)
    return str(there / "bin" / "python")


def names_of(text: str) -> list[str]:
    """Return the environments that hold at once; end the process where a name is unknown or two exclude each other."""
    names = text.split("+")
    if wrong := [name for name in names if name not in NAMES]:
        sys.exit(f"environment {wrong[0]!r}: must be one of {', '.join(NAMES)}, or several joined by '+'")
    for group in (PYTHONS, VERSIONS):
        if len(both := [name for name in names if name in group]) > 1:
            sys.exit(f"environment {text!r}: {both[0]} and {both[1]} exclude each other; run them in turn")
    return names


def main(arguments: list[str]) -> int:
    """Run pytest in an environment; return its exit status."""
    text, *rest = arguments or [""]
    names = names_of(text)
    python = python_of(names)
    workers = [] if any(argument.startswith("-n") for argument in rest) else ["-n", "auto"]
    own = [] if python == sys.executable else ["-o", "filterwarnings=ignore"]
    variables = {key: value for name in names for key, value in VARIABLES.get(name, {}).items()}
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY * ("busy" in names))]
    try:
        command = [python, "-m", "pytest", *workers, *own, *rest]
        return subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=False).returncode
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
