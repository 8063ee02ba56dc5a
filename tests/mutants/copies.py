"""Private copies of a tree, in which tests run and files are mutated."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PROGRAM = Path(__file__).parent


def copied(tree: Path, copy: Path) -> Path:
    """Copy the files of a tree that git knows or would add, with this program, into a folder without others.

    Byte code of an earlier copy stays, because Python compares it with the files' times and sizes.
    """
    command = ["git", "-C", str(tree), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    wanted = {copy / name: tree / name for name in names if name and (tree / name).is_file()}
    own = [path for path in PROGRAM.glob("*.py") if not path.name.startswith("test_")]
    wanted |= {copy / "tests" / "mutants" / path.name: path for path in own}
    for path in [path for path in copy.rglob("*") if path.is_file() and "__pycache__" not in path.parts]:
        if path not in wanted:
            path.unlink()
    for path, source in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, path)
    return copy


def environment(copy: Path) -> dict[str, str]:
    """Return the environment of a process that imports the packages from a copy, as its children do."""
    # Ray would upload the folder under `uv run`, and reads the variable when it is imported.
    own = {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    return {**{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}, **own}
