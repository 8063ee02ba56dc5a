"""A table larger than memory."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

LIMIT = 350_000_000
ROWS = 275_000
SAMPLE = 4096  # bytes

MAKE = """
import resource, sys
from pathlib import Path

resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[2]),) * 2)
import partitioning
from partitioning.sources import open_source, read_columns

folder = Path(sys.argv[1])
source = open_source(folder / "table.parquet")
try:
    read_columns(source)
except MemoryError:
    pass
except partitioning.InputError as error:
    assert "asks for more memory than there is" in str(error)
else:
    sys.exit("the whole table fits: the limit is none")
made = partitioning.make(source, folder / "p", scheme="dirichlet-qp", clients=200, memory=64 * 2**20, min_size=1)
assert sum(shard.bytes for shard in made.manifest.shards) >= 3 * int(sys.argv[2])
assert partitioning.verify(folder / "p") == []
with open("/proc/self/status") as status:
    print(*(line.strip() for line in status if line.startswith(("VmHWM", "RssAnon", "VmData"))))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux enforces the limit on data")
def test_a_table_of_three_times_the_memory_is_partitioned(tmp_path):
    random = np.random.default_rng(0)
    schema = pa.schema({"image": pa.list_(pa.uint8(), SAMPLE), "label": pa.int64()})
    with pq.ParquetWriter(tmp_path / "table.parquet", schema, compression="zstd") as writer:
        for _ in range(25):
            pixels = np.repeat(random.integers(0, 256, ROWS // 25, dtype=np.uint8), SAMPLE)
            image = pa.FixedSizeListArray.from_arrays(pa.array(pixels), SAMPLE)
            writer.write_table(pa.table([image, random.integers(0, 10, ROWS // 25)], schema=schema))
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "-c", MAKE, str(tmp_path), str(LIMIT)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ | threads)
    assert ended.returncode == 0, ended.stderr
    print(ended.stdout)
