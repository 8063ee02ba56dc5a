"""Each client's part in a run, by exact numbers."""

import numpy as np
import pyarrow as pa
import pytest

from raysim.store.algorithm_folder import OUTCOME, UPDATES
from raysim.store.participation import participation

METRICS = pa.table({"round": [1, 2], "bytes_up": [10, 20], "bytes_down": [0, 4]})
ROWS = {
    "round": [1, 2, 2],
    "client": [3, 8, 3],
    "block": [0, 0, None],
    "samples": [4, 6, 5],
    "machine_block_seconds": [3.0, 3.0, None],
    "outcome": ["counted", "counted", "vanished"],
}
"""Client updates of one block in two rounds, and one that vanished."""


@pytest.mark.parametrize(
    ("staleness", "seconds"), [([0, 1, None], [1.5, 1.5]), ([None] * 3, [3.0, 3.0])], ids=["arrivals", "rounds"]
)
def test_clients_share_the_seconds_of_their_block(staleness: list[int | None], seconds: list[float]) -> None:
    """Arrivals of one block share it across rounds, even if other updates vanished; a round has blocks of its own."""
    schema, columns = UPDATES.append(OUTCOME), {**ROWS, "staleness": staleness}
    rows = pa.table({name: columns.get(name, [None] * 3) for name in schema.names}, schema)
    found = {name: values.tolist() for name, values in participation(rows, METRICS, np.array([3, 8])).items()}
    assert found == {
        "updates": [1, 1],
        "late": [0, 0],
        "vanished": [1, 0],
        "samples": [4, 6],
        "samples_wasted": [5, 0],
        "bytes_up": [20.0, 10.0],
        "bytes_down": [2.0, 2.0],
        "machine_seconds": seconds,
    }
