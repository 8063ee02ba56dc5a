"""Run the tests elsewhere: on other processors, beside other work, with other versions.

    uv run python -m tests.environments NAME [arguments of pytest]

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


def python_of(name: str) -> str:
    """Return the Python of an environment, which is set up first; this process's own if versions are the same."""
    if name not in (*PYTHONS, *VERSIONS):
        return sys.executable
    uv = shutil.which("uv") or sys.exit("needs uv; pip install uv")
    there = FOLDER / name
    if name in PYTHONS:
        synced = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(there)}
        subprocess.run([uv, "sync", "--quiet", "--python", name], cwd=ROOT, env=synced, check=True)
    else:
        if not there.exists():
            subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, there], check=True)
        # Without uv's settings, which pin the tested versions.
        pip = [uv, "pip", "install", "--quiet", "--no-config", "--python", there / "bin" / "python"]
        subprocess.run([*pip, *VERSIONS[name], "--editable", ".", "--group", "dev"], cwd=ROOT, check=True)
    return str(there / "bin" / "python")


def main(arguments: list[str]) -> int:
    """Run pytest in an environment; return its exit status."""
    name, *rest = arguments or [""]
    if name not in NAMES:
        sys.exit(f"environment {name!r}: must be one of {', '.join(NAMES)}")
    own = ["-o", "filterwarnings=ignore"] if name in VERSIONS or name in PYTHONS else []
    command = [python_of(name), "-m", "pytest", "-n", "auto", *own, *rest]
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY if name == "busy" else 0)]
    try:
        return subprocess.run(command, cwd=ROOT, env={**os.environ, **VARIABLES.get(name, {})}, check=False).returncode
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
