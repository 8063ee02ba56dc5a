"""Charts: every form is drawn to the same bytes twice, with gaps in the data and without."""

from collections.abc import Callable

import numpy as np
import pytest

from raysim.plots.charts import Curve, Panel, draw, histogram, stages
from raysim.plots.search import heatmap, ranking
from raysim.plots.style import COLOURS, DASHES, as_file, in_page, stroke, strokes_of

STROKES = strokes_of(["a", "b"])
ROUNDS = np.arange(1.0, 5.0)
CURVES = {
    "a": Curve(ROUNDS, np.array([0.1, np.nan, 0.3, 0.4]), np.full(4, 0.05), marks=np.array([2.0, 4.0])),
    "b": Curve(ROUNDS, np.full(4, np.nan)),
}
SAMPLES = {"a": {"1": [0.1, 0.3], "2": [0.2]}, "b": {"2": [0.4, 0.1, 0.2]}, "c": {"1": [np.nan]}}
MEANS = np.array([[0.1, np.nan], [0.3, 0.4]])
TICKS = (["1", "2"], ["3", "4"])


def grouped(form: str, is_log: bool = False) -> str:
    panels = [Panel("A", "Accuracy", "share", samples=SAMPLES)] * 2
    return draw("x", panels, strokes_of("abc"), form, x="", is_log=is_log, has_legend=True)


CHARTS: dict[str, Callable[[], str]] = {
    "curves": lambda: draw("x", [Panel("A", "Loss", curves=CURVES)] * 2, STROKES, is_shared=True),
    "seconds": lambda: draw("x", [Panel("A", "Seconds", "seconds", CURVES)], STROKES, is_wide=False),
    "points": lambda: grouped("points"),
    "bars": lambda: grouped("bars"),
    "boxes": lambda: grouped("boxes", is_log=True),
    "heat map": lambda: heatmap("x", "A", ("k", "l"), TICKS, MEANS, [["1", "–"], ["3", "4 ●"]], False),
    "empty heat map": lambda: heatmap("x", "A", ("k", "l"), TICKS, MEANS * np.nan, [["–"] * 2] * 2, True),
    "ranking": lambda: ranking("x", "A", ["p", "q"], np.array([0.2, 0.1]), np.zeros(2), "Accuracy", "share"),
    "stages": lambda: stages("x", {"a": (None, {"Train": 0.0}), "b": (1.0, {"Train": 0.5})}, {"Train": "#7d95a8"}),
    "histogram": lambda: histogram("x", {"Training": np.array([1, 2, 2]), "Held out": np.array([90])}, "Samples"),
}


@pytest.mark.parametrize("kind", CHARTS)
def test_a_chart_is_the_same_bytes_twice_and_stands_alone(kind: str) -> None:
    svg = CHARTS[kind]()
    assert svg == CHARTS[kind]()
    assert svg.startswith("<svg") and "http" not in svg
    assert in_page(as_file(svg)) == svg


def test_no_two_of_many_algorithms_are_drawn_alike() -> None:
    strokes = [stroke(index) for index in range(len(COLOURS) * len(DASHES))]
    assert len(set(strokes)) == len(strokes)
