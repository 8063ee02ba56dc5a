"""Rows of trained client updates: reports and weights, updates that are not finite, and stored personal entries."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite, nan

from algorithms.core.errors import DivergedError, InputError
from algorithms.core.personal import Location
from algorithms.core.rows import Report, UpdateRows
from algorithms.core.sums import Sum
from algorithms.parts.trained import Trained
from algorithms.parts.weighting import weight_of
from algorithms.training.loss import labelled
from algorithms.training.reports import REPORTS

BATCHES = "batches/updates"
"""Personal entry that counts a client's updates, if it continues after its last batch."""


def rows_of(trained: Trained) -> UpdateRows:
    """Return the rows of client updates; a model that is not finite gives way to the received one.

    Raises:
        DivergedError: something is not finite, and `Local.nonfinite` is "stop".
    """
    wrong, clients, reports, weights = trained.nonfinite(), trained.clients, [], []
    for i, (client, given) in enumerate(zip(clients, trained.inputs, strict=True)):
        with trained.keyed(i):
            reports.append(report := _report(trained, i, finite=wrong[i] is None))
            # An update without a step has the weight of its received model.
            weights.append(weight_of(trained.updates.weighting, report, client) if report["steps"] else given.weight)
    rows = UpdateRows.of(clients, reports, weights, [each.personal for each in trained.inputs], wrong)
    numbers = zip(rows.report["loss"].tolist(), weights, trained.works, strict=True)
    if any(wrong) or any(work.batches and not (isfinite(loss) and isfinite(w)) for loss, w, work in numbers):
        return _settled(trained, rows)
    return rows


def _report(trained: Trained, place: int, finite: bool) -> dict[str, float]:
    work = trained.works[place]
    report = {
        "samples": float(work.y.shape[0]),
        "steps": float(len(work.batches)),
        "used": float(sum(map(len, work.batches))),
        "labelled": float(labelled(work.y)),
        "loss": float(trained.losses[place]),
    }
    if work.batches and (trained.updates.needs or trained.updates.local.update):
        return _measured(trained, place, report, finite)
    return report


def _measured(trained: Trained, place: int, report: Report, finite: bool) -> dict[str, float]:
    """Return a report with the numbers of a user's client update, and the measurements that the algorithm needs."""
    finished, needs, own = trained.finished(place), trained.updates.needs, {}
    if trained.updates.local.update is not None:
        given = trained.trainer.reported(finished.lane)
        own = {name: value for name, value in given.items() if name != "loss"}
    if taken := [name for name in own if name in report or name in REPORTS]:
        raise InputError(f"local.update returns {taken[0]!r}, which every report has: must be another name; rename it")
    measured = {name: REPORTS[name](finished) if finite else nan for name in needs if name in REPORTS}
    whole = {**report, **own, **measured}
    if lacking := [name for name in needs if name not in whole]:
        raise InputError(
            f"the algorithm needs {lacking[0]!r} of each client update: must be one of {', '.join(REPORTS)}, "
            "or a number that local.update returns; return it"
        )
    return whole


def _settled(trained: Trained, rows: UpdateRows) -> UpdateRows:
    """Return rows in which updates that are not finite do not count; see `Local.nonfinite`."""
    policy, wrong = trained.updates.local.nonfinite, list(rows.nonfinite)
    steps, weights = rows.report["steps"].copy(), rows.weights.copy()
    for i, (loss, weight) in enumerate(zip(rows.report["loss"].tolist(), weights.tolist(), strict=True)):
        if trained.works[i].batches and not (isfinite(loss) and isfinite(weight)):
            wrong[i] = wrong[i] or ("the weight" if isfinite(loss) else "the training loss")
        if wrong[i] is None:
            continue
        if policy == "stop":
            raise DivergedError(
                f"client {trained.clients[i]} in round {trained.updates.round_number}: {wrong[i]} is not finite after "
                "the client update; lower local.lr, set local.clip, or leave such updates out by "
                'local.nonfinite = "leave-out"'
            )
        trained.restore(i)
        if policy == "leave-out" or not isfinite(weight):
            # Report it like a client without samples.
            steps[i], weights[i] = 0.0, trained.inputs[i].weight
    return replace(rows, report={**rows.report, "steps": steps}, weights=weights, nonfinite=tuple(wrong))


def kept(trained: Trained, rows: UpdateRows, personal: Sum) -> UpdateRows:
    """Return rows with the locations of the clients' personal entries, and add these to their sum.

    Args:
        trained: client updates.
        rows: their rows.
        personal: sum of the personal entries of the clients that took a step.
    """
    locations = [_stored(trained, rows, i) for i in range(len(rows))]
    for i, lane in enumerate(trained.lanes):
        personal.add(trained.trainer.personal(lane), float(rows.report["steps"][i] > 0))
    return replace(rows, personal=tuple(locations))


def _stored(trained: Trained, rows: UpdateRows, place: int) -> Location | None:
    """Store a client's personal entries after a finite update; return their location."""
    counts = bool(trained.updates.local.batches and rows.report["samples"][place])
    if rows.nonfinite[place] is not None or not (counts or rows.report["steps"][place]):
        return rows.personal[place]  # nothing was trained that counts
    if counts:
        # Count the update even if batch norm refused its only sample: the next batches are others.
        trained.trainer.count(BATCHES, trained.lanes[place])
    return trained.worker.personal.append(trained.trainer.personal(trained.lanes[place]))
