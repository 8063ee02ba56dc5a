"""Curves of a study: what its trials have by round, and the mean and the deviation over them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raysim.report.charts import Stroke
from raysim.studies.charts import Band
from raysim.studies.read import Findings, Values


def runs_of(study: Findings, dataset: str, algorithm: str, columns: Sequence[str]) -> list[dict[str, Values]]:
    """Some columns by round, of each trial that counts and has ended well; a trial without its run is left out."""
    return [run for each in study.counting(dataset, algorithm) if (run := study.curves(each, columns))]


def band_of(runs: Sequence[dict[str, Values]], column: str, own: Stroke) -> Band:
    """Mean and deviation by round, over the trials that were evaluated then."""
    values: dict[float, list[float]] = {}
    for run in runs:
        for number, value in zip(run["round"], run[column], strict=True):
            if np.isfinite(value):
                values.setdefault(float(number), []).append(float(value))
    rounds = sorted(values)
    mean = np.array([np.mean(values[number]) for number in rounds])
    std = np.array([np.std(every, ddof=1) if len(every := values[number]) > 1 else 0.0 for number in rounds])
    return Band(np.array(rounds), mean, std, own)
