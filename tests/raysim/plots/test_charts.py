"""Charts: every form is drawn to the same bytes twice, with gaps in the data and without."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from raysim.plots.charts import Chart, chart, draw, histogram
from raysim.plots.panels import Curve, Panel
from raysim.plots.style import COLOURS, DASHES, as_file, in_page, stroke, strokes_of, strokes_of_runs, themed
from raysim.studies.search import heatmap, ranking

pytestmark = pytest.mark.usefixtures("drawn")

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
    panel = Panel("A", "Accuracy", "share", samples=SAMPLES)
    return draw("x", [panel], strokes_of("abc"), form, x="", is_log=is_log)


CHARTS: dict[str, Callable[[], str]] = {
    "curves": lambda: draw("x", [Panel("A", "Loss", curves=CURVES)] * 2, STROKES),
    "seconds": lambda: draw("x", [Panel("A", "Seconds", "seconds", CURVES)], STROKES),
    "points": lambda: grouped("points"),
    "bars": lambda: grouped("bars"),
    "boxes": lambda: grouped("boxes", is_log=True),
    "heat map": lambda: heatmap("x", "A", ("k", "l"), TICKS, MEANS, [["1", "–"], ["3", "4 ●"]], False),
    "empty heat map": lambda: heatmap("x", "A", ("k", "l"), TICKS, MEANS * np.nan, [["–"] * 2] * 2, True),
    "ranking": lambda: ranking("x", "A", ["p", "q"], np.array([0.2, 0.1]), np.zeros(2), "Accuracy", "share"),
}


def shared() -> Chart:
    other = {"a": Curve(ROUNDS, np.array([0.5, 0.6, 0.7, 0.9]))}
    panels = [Panel("A", "Accuracy", "share", CURVES), Panel("B", "Accuracy", "share", other)]
    return chart("x", "Accuracy", panels, STROKES, is_shared=True)


def counted() -> Chart:
    return histogram("x", {"Training": np.array([1, 2, 2]), "Held out": np.array([90])}, "Samples")


def test_a_chart_of_a_page_lists_its_values_and_follows_the_theme() -> None:
    found = shared()
    assert found == shared() and len(found.panels) == 2
    assert found.values["panels"][0]["lines"] == [
        {"name": "a", "colour": "var(--line0, #0072b2)", "at": [1, 3, 4], "values": [0.1, 0.3, 0.4], "std": [0.05] * 3}
    ]
    assert found.values["panels"][0]["x"] == found.values["panels"][1]["x"]
    for svg in found.panels:
        assert set(re.findall(r"(?:fill|stroke): (?!none)(?!var)[^;\"]*", svg)) == set()
    # A common scale: both panels have the same ticks.
    ticks = [re.findall(r">(\d+) %</text>", svg) for svg in found.panels]
    assert ticks[0] == ticks[1] != []


def test_a_histogram_lists_its_bins() -> None:
    (panel,) = counted().values["panels"]
    assert panel["ticks"][0] == "1 to 3" and panel["places"][0] == 2
    assert [(line["name"], sum(line["values"])) for line in panel["lines"]] == [("Training", 3), ("Held out", 1)]
    assert counted() == counted()


def test_bars_list_the_mean_at_each_tick() -> None:
    found = chart("x", "A", [Panel("A", "Accuracy", "share", samples=SAMPLES)], strokes_of("abc"), "bars", x="")
    (panel,) = found.values["panels"]
    assert panel["ticks"] == ["1", "2"] and panel["lines"][0]["values"] == [0.2, 0.2]
    assert panel["lines"][2]["values"] == [None]


def test_white_numbers_on_dark_cells_stay_white() -> None:
    text = '<text style="fill: #ffffff">5</text><path style="fill: #ffffff; stroke: #24292f"/>'
    assert themed(text) == (
        '<text style="fill: #ffffff">5</text><path style="fill: var(--card, #ffffff); stroke: var(--ink, #24292f)"/>'
    )


def test_runs_share_the_colours_of_algorithms() -> None:
    strokes = strokes_of_runs([{"a/fedavg": "fedavg", "a/radfed": "radfed"}, {"b/radfed": "radfed"}])
    assert strokes["a/radfed"].colour == strokes["b/radfed"].colour == COLOURS[1]
    assert strokes["a/fedavg"].dashes == strokes["a/radfed"].dashes != strokes["b/radfed"].dashes
    assert strokes_of_runs([{"fedavg": "fedavg", "fedavg-2": "fedavg-2"}]) == strokes_of(["fedavg", "fedavg-2"])
    many = strokes_of_runs([{f"{run}/{name}": name for name in "ab"} for run in range(12)])
    assert len(set(many.values())) == len(many)


@pytest.mark.parametrize(("names", "runs"), [(8, 2), (7, 5), (3, 4), (1, 35)])
def test_no_two_algorithms_of_several_runs_are_drawn_alike(names: int, runs: int) -> None:
    strokes = strokes_of_runs([{f"{run}/{name}": f"{name}" for name in range(names)} for run in range(runs)])
    assert len(set(strokes.values())) == names * runs


@pytest.mark.parametrize("kind", CHARTS)
def test_a_chart_is_the_same_bytes_twice_and_stands_alone(kind: str) -> None:
    svg = CHARTS[kind]()
    assert svg == CHARTS[kind]()
    assert svg.startswith("<svg") and "http" not in svg
    assert in_page(as_file(svg)) == svg


def test_no_two_of_many_algorithms_are_drawn_alike() -> None:
    strokes = [stroke(index) for index in range(len(COLOURS) * len(DASHES))]
    assert len(set(strokes)) == len(strokes)
