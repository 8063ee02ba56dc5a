"""The pages' own pictures are those that the commands draw, and they follow light and dark."""

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from docs.pictures.curves import draw, experiment_of
from docs.pictures.inline import ASSETS, on_page_content, on_page_markdown
from docs.pictures.rounds import rounds
from docs.pictures.schemes import counts_of, schemes
from partitioning import SCHEMES
from tests.kit.pages import DOCS, ROOT, anchors, links, text_of


@pytest.mark.parametrize("draws", [rounds, schemes], ids=["rounds", "schemes"])
def test_the_pictures_are_those_drawn(draws: Callable[[], dict[str, str]]) -> None:
    for name, drawn in draws().items():
        assert (ASSETS / name).read_text(encoding="utf-8") == drawn, "run `uv run python -m docs.pictures`"


def test_the_gallery_shows_every_scheme() -> None:
    shown = set(links(DOCS / "schemes.md"))
    assert {f"assets/scheme-{name}.svg" for name in SCHEMES} <= shown
    assert all(counts_of(name).sum() == 1797 for name in SCHEMES if name != "counts")


def test_the_front_pages_show_the_experiment_whose_curve_they_show() -> None:
    assert experiment_of(DOCS / "index.md", "first.toml") == experiment_of(ROOT / "README.md", "first.toml")
    picture = ET.fromstring((ASSETS / "first.svg").read_text(encoding="utf-8"))
    texts = {element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert {"fedavg", "fedadam", "60", "100 %"} <= texts


def test_a_curve_ends_where_its_values_do() -> None:
    picture = draw({"low": [(1, 0.0), (10, 0.5)], "high": [(1, 0.5), (10, 1.0)]}, "Accuracy")
    ends = [
        path.get("d", "").split("L")[-1].split()
        for path in ET.fromstring(picture).iter()
        if "2.5" in path.get("style", "")
    ]
    (x, low), (other, high) = ends
    assert x == other and float(low) > float(high) and picture.count("var(--line0)") == 2


@pytest.mark.parametrize("path", sorted(ASSETS.glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_loads_nothing_and_names_itself(path: Path) -> None:
    picture = ET.fromstring(path.read_text(encoding="utf-8"))
    assert picture.get("aria-label") and picture.get("viewBox")
    text = path.read_text(encoding="utf-8")
    assert "href" not in text and "url(" not in text and text.count("http") == text.count("www.w3.org/2000/svg")


def test_the_site_holds_the_markup_of_our_pictures_alone() -> None:
    page = '<p><img alt="a" src="assets/round-star.svg"><img alt="b" src="../assets/report.png"></p>'
    filled = on_page_content(page)
    assert filled.count("<svg") == 1 and "report.png" in filled and "[data-md-color-scheme=slate]" in filled


def test_the_site_holds_the_readme_of_the_clusters() -> None:
    page = on_page_markdown(text_of(DOCS / "how-to" / "clusters.md"))
    assert "sbatch clusters/slurm/raysim.sbatch" in page and "](local/" not in page and "../docs/" not in page
    assert "what-every-cluster-needs" in anchors(page) and "`clusters/on-prem/cluster.yaml`" in page
