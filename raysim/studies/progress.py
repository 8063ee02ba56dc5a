"""Progress of a study."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from raysim.studies.grid import Point


@dataclass(frozen=True)
class StudyProgress:
    """State of a study; `raysim.study` returns the last one.

    Args:
        folder: folder of the study.
        trials: trials that have ended, as in `trials.parquet`.
        planned: number of trials of each data set and algorithm, as far as known.
        winners: chosen hyper-parameters by data set and algorithm.
        select_by: column that the search compares.
        metric: column that the study reports.
    """

    folder: Path
    trials: pa.Table
    planned: Mapping[tuple[str, str], int]
    winners: Mapping[tuple[str, str], Point]
    select_by: str
    metric: str
