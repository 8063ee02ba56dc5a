"""The page in a real browser: `uv run --group browser pytest tests/raysim/report/test_browser.py`.

Needs a Chromium of the system, which Playwright drives.
"""

import csv
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import partitioning
from raysim.report.page import write_report
from tests.kit.folders import write_run

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
pytestmark = [
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this system"),
    pytest.mark.slow,
    pytest.mark.usefixtures("drawn"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: the second lacks an algorithm and the pooled target."""
    folder = tmp_path_factory.mktemp("browser")
    runs = [write_run(folder / "first"), write_run(folder / "second", ["fedavg"], targets=["held_out"])]
    labels = np.repeat(np.arange(4), 30)
    partitioning.make(
        pa.table({"x": labels * 0.5, "label": labels}),
        runs[0] / "population",
        scheme="dirichlet-qp",
        clients=6,
        seed=1,
        test_clients=2,
    )
    return write_report(runs, folder / "report.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(browser: Any, report: Path) -> Iterator[Callable[..., Any]]:
    """Opens the page; an error of its script, or a request, fails the test."""
    wrong: list[str] = []
    pages = []

    def open_page(width: int = 1280, theme: str = "light") -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        pages.append(page)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: wrong.append(request.url) if request.url.startswith("http") else None)
        page.goto(report.as_uri())
        return page

    yield open_page
    for page in pages:
        page.close()
    assert wrong == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_exceeds_the_page_and_panels_stack(opened: Callable[..., Any], width: int, theme: str) -> None:
    page = opened(width, theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = [each.bounding_box() for each in page.query_selector_all("figure[data-name=Accuracy] svg")]
    assert len(boxes) == 2
    assert (len({box["x"] for box in boxes}) == 1) == (width == 390)
    # Texts of a chart are large enough to be read.
    text = page.query_selector("figure[data-name=Accuracy] svg text").bounding_box()
    assert text["height"] > 9


def luminance(colour: str) -> float:
    parts = [int(each) / 255 for each in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_and_lines_stand_out_in_both_themes(opened: Callable[..., Any], theme: str) -> None:
    page = opened(theme=theme)
    card = luminance(page.evaluate("getComputedStyle(document.querySelector('figure.card')).backgroundColor"))
    assert (card < 0.1) == (theme == "dark")

    def contrast(selector: str, style: str) -> list[float]:
        script = f"all => [...new Set(all.map(each => getComputedStyle(each).{style}))].filter(each => each !== 'none')"
        found = [luminance(each) for each in page.eval_on_selector_all(selector, script)]
        return [(max(each, card) + 0.05) / (min(each, card) + 0.05) for each in found]

    assert min(contrast("figure[data-name=Accuracy] svg text", "fill")) > 4.5
    lines = contrast("figure[data-name=Accuracy] svg path[style*='stroke-width: 1.8']", "stroke")
    assert len(lines) == 2 and min(lines) > 3


def test_values_show_on_hover(opened: Callable[..., Any]) -> None:
    page = opened()
    svg = page.query_selector("figure[data-name=Accuracy] svg")
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    page.mouse.move(box["x"] + 0.97 * box["width"], box["y"] + box["height"] / 2)
    assert page.inner_text(".tip b") == "Round 12"
    rows = page.eval_on_selector_all(".tip tr", "rows => rows.map(row => row.textContent)")
    # Accuracy after round 12: 0.95 (1 - 0.97^12), and for the second algorithm twice as fast.
    assert rows == ["first/fedavg29.09 %", "first/radfed49.27 %", "second/fedavg29.09 %"]
    page.mouse.move(5, 5)
    assert not page.is_visible(".tip")


def saved(page: Any, selector: str, folder: Path) -> list[list[str]]:
    with page.expect_download() as download:
        page.click(selector)
    assert download.value.suggested_filename.endswith(".csv")
    download.value.save_as(folder / "saved.csv")
    with (folder / "saved.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_charts_and_tables_are_saved_as_csv(opened: Callable[..., Any], tmp_path: Path) -> None:
    page = opened()
    rows = saved(page, "figure[data-name=Accuracy] .csv", tmp_path)
    assert rows[0] == ["panel", "name", "Round", "value", "std"]
    assert ["Held-out clients, pooled", "first/radfed", "12", f"{0.95 * (1 - 0.97**24):.6g}", ""] in rows
    # Four evaluations: three curves in the first panel, two in the second.
    assert len(rows) == 1 + 4 * 5
    head, *cells = saved(page, ".tools:has(button[title$='results']) .csv", tmp_path)
    assert head[0] == "Algorithm" and "Accuracy held out" in head
    assert [row[0] for row in cells] == ["first/fedavg", "first/radfed", "second/fedavg"]
    assert float(cells[1][head.index("Accuracy held out")]) == pytest.approx(0.95 * (1 - 0.97**24))
    head, *cells = saved(page, ".tools:has(button[title$='metrics']) .csv", tmp_path)
    assert head[:2] == ["part", "Algorithm"] and {row[0] for row in cells} == {
        "Held-out clients, pooled",
        "Held-out clients, mean",
    }
