"""Tables of a study for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table


def standings(trials: pa.Table, planned: Mapping[tuple[str, str], int]) -> Table:
    """How many trials of each data set and algorithm have ended, of how many, and the chosen point."""
    table = Table("data set", "algorithm", "trials", "chosen")
    for (dataset, algorithm), count in planned.items():
        there = trials.filter((pc.field("dataset") == dataset) & (pc.field("algorithm") == algorithm))
        chosen = there.filter(pc.field("chosen"))["point"].to_pylist()
        table.add_row(dataset, algorithm, f"{there.num_rows} of {count}", chosen[0] if chosen else "")
    return table
