"""The results page, `raysim/recipes/README.md`: what every reproduction that was run came to, with its figures.

python -m raysim.reproduction.results FOLDER ...     takes in the folders of reproductions, and writes the page anew
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from partitioning.common.disk import complete
from raysim.common.errors import InputError
from raysim.reproduction.file import Reproduction, read_reproduction, reproductions
from raysim.reproduction.page import as_markdown, pictures, summary
from raysim.reproduction.provenance import setting_of
from raysim.reproduction.section import RECORD

RECIPES = Path(__file__).parents[1] / "recipes"
RESULTS, PAGE = RECIPES / "results", RECIPES / "README.md"

HEAD = Path(__file__).with_suffix(".md")

PAPERS = ("fedmmb", "radfed", "fedbn", "fedbs", "fixbn")
"""What the names of reproductions begin with, in the order of the page."""


def take(folder: Path) -> Path:
    """Take the record and the figures of a reproduction's folder into the results; the place where they are.

    Raises:
        InputError: it has no record, or one of another setting, of no reproduction or of code that is no commit.
    """
    if not (folder / RECORD).is_file():
        raise InputError(f"{folder} has no {RECORD}: must be the folder of a reproduction that has ended; run it")
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    name = str(record["name"])
    known = name in reproductions() and record["setting"] == setting_of(read_reproduction(name), full=False)
    if not known or record["changes"]:
        raise InputError(f"{folder} is not of {name} as it comes, reduced: must be so; run `raysim reproduce {name}`")
    if not record["commit"] or record["commit"].endswith("+"):
        raise InputError(f"{folder} was made at {record['commit']}: must be a commit as it is; commit, and run it")
    place = RESULTS / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for file in (RECORD, *(each["file"] for each in record["figures"] if each["file"])):
        (place / file).parent.mkdir(exist_ok=True)
        shutil.copy(folder / file, place / file)
    return place


def records() -> Sequence[Mapping[str, Any]]:
    """The records of what was run, in the order of the page; in words, what the files say today."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob(f"*/{RECORD}")]
    told = [{**record, **read_reproduction(record["name"]).words(full=False)} for record in found]
    return sorted(told, key=lambda record: _place(record["name"]))


def page(found: Sequence[Mapping[str, Any]], every: Iterable[Reproduction]) -> str:
    """The page's Markdown.

    Args:
        found: the records of what was run.
        every: reproductions, run or not.
    """
    known = {record["name"] for record in found}
    others = sorted((each for each in every if each.name not in known), key=lambda each: _place(each.name))
    sections = [as_markdown(record) + pictures(record, f"results/{record['name']}/") for record in found]
    listed = [f"| `raysim reproduce {each.name} --full` | {each.about.paper}, {each.about.place} |" for each in others]
    rest = ["## Not run here", "", "| command | of |", "|---|---|", *listed, ""] if listed else []
    return "\n".join([HEAD.read_text(encoding="utf-8"), summary(found), "", *sections, *rest])


def _place(name: str) -> tuple[int, str, int, str]:
    paper, _, rest = name.partition("-")
    what, _, number = rest.partition("-")
    digits = "".join(filter(str.isdigit, number)) or "0"
    return PAPERS.index(paper) if paper in PAPERS else len(PAPERS), what, int(digits), number


def main(folders: Sequence[str]) -> None:
    """Take folders in, and write the page."""
    for folder in folders:
        take(Path(folder))
    with complete(PAGE) as aside:
        aside.write_text(page(records(), map(read_reproduction, reproductions())), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
