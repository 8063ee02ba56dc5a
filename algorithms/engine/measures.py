"""Measures of a round that need more than its visits' reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from algorithms.engine.client_update import UpdateRow
from algorithms.engine.layout import Layout, Packed
from algorithms.engine.sums import Directions
from algorithms.engine.windows import Windows, entered, variances
from algorithms.training.after import statistics

WINDOW = 200
"""Visits of a client over which the variance of its statistics is taken, as in FixBN's Figure 3 (b)."""


def divergence(directions: Directions | None) -> Mapping[str, float]:
    """The measure "dl": `dl` and `dl_updates`; see `Directions`."""
    return {} if directions is None else directions.divergence


def batch_statistics(
    rows: Sequence[UpdateRow], before: Packed, after: Packed, layout: Layout, windows: Windows
) -> tuple[dict[str, float], Windows]:
    """The measure "bn", and the windows of what it remembers.

        bn_change = mean |S(t+1) - S(t)|,  bn_deviation = mean_k mean |S_k(t+1) - S(t)|,
        bn_variance = mean_k Var of client k's latest deviations

    over all running means and variances S of the model.

    Args:
        rows: the round's visits.
        before: the global model before the round.
        after: after it; the same where the round did not merge.
        layout: of the travelling entries.
        windows: what was remembered.

    Paper: FixBN, Figure 3 (a) and (b).

    Deviations: the figure's norm is a sum, and S_k its mini-batch's; here it is the mean, and S_k is what the visit
    left.
    """
    shifts = {row.client: row.report["bn_shift"] for row in rows if row.trained}
    windows = entered(windows, shifts, WINDOW)
    change = np.abs(statistics(layout, after) - statistics(layout, before))
    spread = variances(windows, least=2)
    measures = {"bn_change": float(change.mean()) if change.size else 0.0}
    if shifts:
        measures["bn_deviation"] = float(np.mean(list(shifts.values())))
    if not np.isnan(spread).all():
        measures["bn_variance"] = float(np.nanmean(spread))
    return measures, windows
