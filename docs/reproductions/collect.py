"""Collect the records of reproductions and write the pages about them.

    uv run python -m docs.reproductions.collect FOLDER ...

takes the record and the figures of each folder into `results/` and writes all pages of this folder again.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.reproductions.judges import judges, with_table
from raysim.common.errors import InputError
from raysim.reproduction.claim import WORDS
from raysim.reproduction.file import Reproduction, read_reproduction, reproductions
from raysim.reproduction.page import RECORD, UNTESTED, as_markdown, title_of
from raysim.reproduction.provenance import setting_of

HERE = Path(__file__).parent
RESULTS = HERE / "results"
README = HERE.parents[1] / "README.md"

PAPERS = {
    "mcmahan": "FedAvg's own tables (McMahan et al.)",
    "fedmmb": "Federated Multi-Mini-Batch (FedMMB, FedSMB)",
    "radfed": "Aggregation Delayed Federated Learning (RADFed)",
    "fedbn": "FedBN",
    "fedbs": "FedBS",
    "fixbn": "Making Batch Normalization Great in Federated Deep Learning (FixBN)",
    "niid": "NIID-Bench, as Flower's baseline publishes it",
    "pfllib": "PFLlib's leaderboard",
    "flamby": "FLamby's hospitals",
    "lr": "LR-MNIST, as three simulators report it",
    "dp": "DP-FedAvg: differential privacy of clients",
    "topk": "Top-k with error feedback",
    "heterofl": "HeteroFL: models of many sizes",
    "hierfavg": "Client-Edge-Cloud Hierarchical Federated Learning (HierFAVG)",
    "fedscale": "FedBuff against synchronous rounds, as FedScale reports it",
    "robust": "Median and Krum against attackers",
    "gossip": "Gossip: exponential graphs against a ring",
}
"""Title of each page by the prefix of its reproductions' names, in order."""


def take(folder: Path) -> Path:
    """Copy the record and the figures of a reproduction's folder into `results/`.

    Raises:
        InputError: the folder has no record, or a record of another setting, of an unknown reproduction, or of
            code without a commit.
    """
    if not (folder / RECORD).is_file():
        raise InputError(f"{folder} has no {RECORD}: must be the folder of a finished reproduction; run it first")
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    name = str(record["name"])
    known = name in reproductions() and record["setting"] == setting_of(read_reproduction(name), full=False)
    if not known or record["changes"]:
        raise InputError(
            f"{folder}: must be {name} in its own reduced setting, without changes; run `raysim reproduce {name}`"
        )
    if not record["commit"] or record["commit"].endswith("+"):
        raise InputError(f"{folder} was made at {record['commit']}: must be a clean commit; commit, and run it again")
    target = RESULTS / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in (RECORD, *(each["file"] for each in record["figures"] if each["file"])):
        (target / file).parent.mkdir(exist_ok=True)
        shutil.copy(folder / file, target / file)
    return target


def records() -> Sequence[Mapping[str, Any]]:
    """Read the records in the order of the pages, with the texts that the files have today."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob(f"*/{RECORD}")]
    return sorted(map(_with_words, found), key=lambda record: _order(record["name"]))


def _with_words(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with the texts of its file today: notes, findings, and each claim's reasons."""
    reproduction = read_reproduction(record["name"])
    words = {each.says: each.model_dump(exclude_none=True, include=set(WORDS)) for each in reproduction.claims}
    bare = [{key: row[key] for key in row if key not in WORDS} for row in record["claims"]]
    claims = [{**row, **words.get(row["says"], {})} for row in bare]
    return {**record, **reproduction.words(full=False), "claims": claims}


def pages(found: Sequence[Mapping[str, Any]], every: Iterable[Reproduction]) -> dict[str, str]:
    """Return the Markdown of each page by its file name.

    Args:
        found: records of the reproductions that were run.
        every: all reproductions, run or not.
    """
    known, every = {record["name"] for record in found}, list(every)
    others = sorted((each for each in every if each.name not in known), key=lambda each: _order(each.name))
    listed = [f"| `raysim reproduce {each.name} --full` | {each.about.paper}, {each.about.place} |" for each in others]
    rest = ["## Not run here", "", "| command | table or figure |", "|---|---|", *listed, ""] if listed else []
    introduction = (HERE / "introduction.txt").read_text(encoding="utf-8")
    top = ["# Reproductions: results", "", judges(found, every), "", introduction]
    written = {"index.md": "\n".join([*top, reasons(found), "", summary(found), "", *rest])}
    for paper, title in PAPERS.items():
        own = [record for record in found if record["name"].partition("-")[0] == paper]
        sections = [as_markdown(record, f"results/{record['name']}/") for record in own]
        written[f"{paper}.md"] = "\n".join([f"# {title}", "", *sections])
    return written


def summary(records: Iterable[Mapping[str, Any]]) -> str:
    """Return a table with the number of claims by reproduction and verdict; the total leaves out the quick ones."""
    verdicts = ("holds", "holds in direction", "does not hold", UNTESTED)
    lines = [f"| reproduction | paper | {' | '.join(verdicts)} |", "|---|---|" + "---|" * len(verdicts)]
    total = Counter[str]()
    for record in records:
        counts = Counter(each["verdict"] for each in record["claims"])
        about, total = record["about"], total + (Counter() if record["name"].endswith("-quick") else counts)
        cells = [str(counts[verdict] or "") for verdict in verdicts]
        lines.append(f"| {_link(record)} | {about['paper']}, {about['place']} | {' | '.join(cells)} |")
    sums = " | ".join(str(total[verdict]) for verdict in verdicts)
    return "\n".join([*lines, f"| all except the quick ones | | {sums} |"])


def _link(record: Mapping[str, Any]) -> str:
    """Return a link to a reproduction's section on its paper's page."""
    words = re.sub(r"[^\w\s-]", "", title_of(record).lower())
    anchor = re.sub(r"[-\s]+", "-", words)
    return f"[{record['name']}]({record['name'].partition('-')[0]}.md#{anchor})"


def reasons(records: Iterable[Mapping[str, Any]]) -> str:
    """Return a sentence with the number of untested claims by reason."""
    rows = [row for record in records for row in record["claims"] if row["verdict"] == UNTESTED]
    counts = Counter(row.get("untested") for row in rows)
    longest = max((row["hours"] for row in rows if row.get("hours")), default=0)
    return (
        f"Of {len(rows)} claims that were not tested here, {counts['hours']} need hours ({longest:,.0f} at most), "
        f"{counts['data']} need data that no command gets, and {counts['picture']} have only a picture to compare with."
    )


def _order(name: str) -> tuple[int, str, int, str]:
    """Return the sort key of a reproduction: paper, table or figure, number."""
    paper, _, rest = name.partition("-")
    kind, _, number = rest.partition("-")
    digits = "".join(filter(str.isdigit, number)) or "0"
    return list(PAPERS).index(paper) if paper in PAPERS else len(PAPERS), kind, int(digits), number


def main(folders: Sequence[str]) -> None:
    """Take folders in and write the pages."""
    for folder in folders:
        take(Path(folder))
    found, every = records(), [read_reproduction(name) for name in reproductions()]
    for name, text in pages(found, every).items():
        (HERE / name).write_text(text, encoding="utf-8")
    README.write_text(with_table(README.read_text(encoding="utf-8"), judges(found, every)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
