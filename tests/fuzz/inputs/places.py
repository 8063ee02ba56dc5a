"""A folder of inputs: a small table, a population, a finished run, one's own modules, and what is no file."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.inputs import modules

SPECIAL = (
    "PIPE",
    "PIPE.safetensors",
    "PIPE.csv",
    "PIPE.parquet",
    "pipe.py",
    "FOLDER",
    "LOOP",
    "DEVICE",
    "SOCKET",
    "TEXT",
)


def table(path: Path) -> Path:
    """A table of 80 rows, three features and three classes."""
    rng = np.random.default_rng(0)
    columns = {f"x{i}": rng.normal(size=80) for i in range(3)} | {"label": rng.integers(0, 3, 80)}
    pq.write_table(pa.table(columns), path)
    return path


def furnish(folder: Path) -> None:
    """Make the files that drawn paths name, below a folder."""
    modules.write(folder)
    for name in SPECIAL:
        if name.lower().startswith("pipe"):
            os.mkfifo(folder / name)
    (folder / "FOLDER").mkdir()
    (folder / "LOOP").symlink_to("LOOP")
    (folder / "DEVICE").symlink_to("/dev/zero")
    (folder / "TEXT").write_text("no such table\n")
    (folder / "TEXT.safetensors").write_text("no such tensors\n")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(folder)  # a socket's path is short
        server.bind("SOCKET")
        os.chdir(here)
