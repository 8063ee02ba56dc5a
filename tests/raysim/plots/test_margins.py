"""Texts of a page's charts: none is cut off, and none lies on another one."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import text_to_path
from matplotlib.transforms import Affine2D

from raysim.plots.charts import chart, histogram
from raysim.plots.panels import Curve, Panel
from raysim.plots.style import as_file, strokes_of
from raysim.studies.search import heatmap, ranking

pytestmark = pytest.mark.usefixtures("drawn")

STROKES = strokes_of("a")
ANCHORS = ("start", "middle", "end")
NAMES = {"few": ["0.1", "0.2 ●"], "aslant": [f"a long name of number {index}" for index in range(8)]}
LONG = ["mypackage.models:wide_resnet_group_norm", "mypackage.models:wide_resnet_batch_norm"]


def curves(kind: str, values: Sequence[float], last: float = 20.0, panels: int = 1, x: str = "Round") -> Sequence[str]:
    curve = Curve(np.linspace(1.0, last, len(values)), np.array(values))
    panel = Panel("Validation clients, pooled", "Sum since the start", kind, {"a": curve})
    return chart("x", "A", [panel] * panels, STROKES, x=x).panels


def named(form: str, names: Sequence[str], kind: str = "share") -> Sequence[str]:
    samples = {"a": {name: [0.1 * index, 0.3] for index, name in enumerate(names)}}
    return chart("x", "A", [Panel("Accuracy", "Accuracy", kind, samples=samples)], STROKES, form, x="lr").panels


CHARTS: dict[str, Callable[[], Sequence[str]]] = {
    "shares": lambda: curves("share", [0.1, 0.375, 0.4]),
    "three panels": lambda: curves("share", [0.995, 0.999, 1.0], panels=3),
    "bytes": lambda: curves("bytes", [0.0, 2.5e9, 9.99e11], panels=3),
    "few seconds": lambda: curves("seconds", [1e-5, 2e-5, 3e-5]),
    "seconds on a log scale": lambda: curves("seconds", [300.0, 0.1, 0.01, 0.02, 0.01]),
    "seconds on a short log scale": lambda: curves("seconds", [0.5, 0.021, 0.02, 0.022]),
    "long numbers": lambda: curves("number", [123456.0, 999999.0, -999999.0]),
    "a power of ten": lambda: curves("number", [1e9, 2e9, 7e9]),
    "powers of ten on both axes": lambda: curves("number", [1e-9, 2e-9], last=3e8, x="Virtual seconds"),
    "many rounds": lambda: curves("number", [1.0, 2.0], last=120_000.0, panels=3),
    "a million rounds": lambda: curves("number", [1.0, 2.0], last=990_000.0, panels=3),
    "a long label": lambda: curves("share", [0.1], panels=3, x="Bytes that edges sent to the cloud"),
    "no value": lambda: curves("number", [np.nan]),
    "points": lambda: named("points", NAMES["few"]),
    "bars": lambda: named("bars", NAMES["few"], "bytes"),
    "boxes": lambda: named("boxes", NAMES["few"]),
    "names aslant": lambda: named("points", NAMES["aslant"]),
    "histogram": lambda: histogram("x", {"Training": np.array([1, 2, 90_000])}, "Samples of a client").panels,
    "stacked histogram": lambda: (
        histogram(
            "x", {each: np.array([7, 8]) for each in ("Training", "Validation", "Held out")}, "Samples of a client"
        ).panels
    ),
    "heat map": lambda: [
        heatmap("x", "A", ("k", "l"), (["1", "a longer value"], ["3", "4"]), np.eye(2), [["1", "2"]] * 2, True)
    ],
    "heat map with long names": lambda: [
        heatmap("x", "A", ("model.function", "lr"), (LONG, ["1", "2"]), np.eye(2), [["0.91"] * 2] * 2, True)
    ],
    "whole numbers of four digits": lambda: histogram("x", {"Training": np.arange(1000, 1012)}, "Samples").panels,
    "ranking": lambda: [
        ranking("x", "A", [f"local.lr = 0.1, round {each}" for each in "pq"], np.eye(2)[0], np.ones(2), "Loss", "share")
    ],
}


def texts(svg: str) -> Iterator[tuple[str, Path]]:
    """Yield the texts of a chart, and the rectangles that they take by matplotlib's measure."""
    for each in ElementTree.fromstring(as_file(svg)).iter("{http://www.w3.org/2000/svg}text"):
        style, words = each.attrib["style"], each.text or ""
        size, anchor = re.search(r"font-size: ([\d.]+)px", style), re.findall("text-anchor: ([a-z]+)", style)[0]
        font = FontProperties(weight=700 if "font-weight: 700" in style else 400, size=float(size[1]) if size else 9.5)
        width, height, descent = text_to_path.get_text_width_height_descent(words, font, False)
        x, y = float(each.attrib["x"]), float(each.attrib["y"])
        place = Affine2D().scale(width, -height).translate(-width * ANCHORS.index(anchor) / 2, descent)
        if turned := re.match(r"rotate\((\S+)", each.attrib.get("transform", "")):
            place.rotate_deg(float(turned[1]))
        yield words, Path.unit_rectangle().transformed(place.translate(x, y))


@pytest.mark.parametrize("kind", CHARTS)
def test_no_text_is_cut_off_or_lies_on_another_one(kind: str) -> None:
    for svg in CHARTS[kind]():
        width, height = map(float, re.findall(r'viewBox="0 0 (\S+) (\S+)"', svg)[0])
        found = list(texts(svg))
        assert len(found) > 4
        for words, place in found:
            corners = place.get_extents()
            assert corners.min.min() >= 0 and corners.x1 <= width and corners.y1 <= height, words
        for (one, place), (other, beside) in combinations(found, 2):
            assert not place.intersects_path(beside), (one, other)
