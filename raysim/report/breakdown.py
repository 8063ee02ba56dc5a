"""Where a round's time goes: the median seconds of each stage, as a picture and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raysim.common.units import human_seconds
from raysim.report import charts
from raysim.report.curves import Series
from raysim.report.read import Result
from raysim.report.tables import ABSENT, STAGES, Table, TableColumn

Median = float | None


@dataclass(frozen=True)
class Breakdown:
    """A picture of the stages, and the same numbers."""

    svg: str
    table: Table


def breakdown(series: Sequence[Series]) -> Breakdown | None:
    """The stages of every algorithm that measured them; None if none did."""
    medians = [_medians(each.result) for each in series]
    bars = [
        charts.Bar(each.label, each.stroke, found["whole"], _parts(found))
        for each, found in zip(series, medians, strict=True)
        if found
    ]
    if not bars:
        return None
    columns = [
        TableColumn(
            "Beside the rounds" if stage.beside else "In a round", stage.title, _cells(medians, name), stage.colour
        )
        for name, stage in STAGES.items()
    ]
    whole = TableColumn("", "Whole round", _cells(medians, "whole"))
    return Breakdown(charts.stages("stages", bars), Table([whole, *columns]))


def _medians(result: Result) -> dict[str, Median]:
    """Over the rounds that had the stage; empty if no stage of the rounds themselves was measured."""
    columns = {name: result.column(f"seconds_{name}") for name in STAGES} | {"whole": result.column("seconds")}
    known = {name: values[np.isfinite(values)] for name, values in columns.items()}
    if not any(known[name].size for name, stage in STAGES.items() if not stage.beside):
        return {}
    return {name: float(np.median(values)) if values.size else None for name, values in known.items()}


def _parts(medians: dict[str, Median]) -> list[charts.Part]:
    return [
        charts.Part(stage.title, stage.colour, medians[name] or 0.0)
        for name, stage in STAGES.items()
        if not stage.beside
    ]


def _cells(medians: Sequence[dict[str, Median]], name: str) -> list[str]:
    return [ABSENT if (value := found.get(name)) is None else human_seconds(value) for found in medians]
