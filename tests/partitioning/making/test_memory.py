"""A table larger than memory."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

LIMIT = 320_000_000
ROWS = 240_000
SAMPLE = 4096  # bytes

READ = """
import resource, sys
from pathlib import Path

path, limit = Path(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
import partitioning
from partitioning.sources.opening import open_source
from partitioning.sources.source import read_columns
"""
WHOLE = """
read_columns(open_source(path / "table.parquet"))
"""
MAKE = """
source = open_source(path / "table.parquet")
made = partitioning.make(source, path / "p", scheme="iid", clients=200, memory=64 * 2**20)
assert sum(shard.bytes for shard in made.manifest.shards) >= 3 * limit
assert partitioning.verify(path / "p") == []
"""


def run(code, folder):
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    command = [sys.executable, "-W", "error", "-c", READ + code, str(folder), str(LIMIT)]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ | threads)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux enforces the limit on data")
def test_a_table_of_three_times_the_memory_is_partitioned(tmp_path):
    """Linux refuses the process more than LIMIT bytes of its own: heaps, stacks, and what libraries take.

    Seen with pyarrow 26: 245 MB at the peak, of which 80 MB are the imports, 55 MB a run that is read back (half
    of `memory`, and a client) and the rest the pages that malloc keeps. Mapped files are not counted: their
    pages belong to the page cache, which gives them up when memory is short.
    """
    random = np.random.default_rng(0)
    schema = pa.schema({"image": pa.list_(pa.uint8(), SAMPLE), "label": pa.int64()})
    with pq.ParquetWriter(tmp_path / "table.parquet", schema, compression="zstd") as writer:
        for _ in range(25):
            pixels = np.repeat(random.integers(0, 256, ROWS // 25, dtype=np.uint8), SAMPLE)
            image = pa.FixedSizeListArray.from_arrays(pa.array(pixels), SAMPLE)
            writer.write_table(pa.table([image, random.integers(0, 10, ROWS // 25)], schema=schema))
    assert "more memory than there is" in run(WHOLE, tmp_path).stderr  # so the limit is one
    ended = run(MAKE, tmp_path)
    assert ended.returncode == 0, ended.stderr
