"""Reproduce a paper's table or figure: run its study, judge its claims, draw its figures."""

import json
import shlex
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from partitioning.common.disk import write_whole
from partitioning.common.paths import read_parquet, read_text
from partitioning.common.text import printable_lines
from raysim.common.distribution import VERSION
from raysim.common.errors import InputError, StoppedError
from raysim.plots.style import as_file
from raysim.reproduction.drawing import drawn
from raysim.reproduction.file import Reproduction, differences, read_reproduction
from raysim.reproduction.needed import check_data
from raysim.reproduction.page import RECORD, as_markdown, section
from raysim.reproduction.provenance import commit, digest, machine, setting_of
from raysim.reproduction.verdict import JudgedClaim, StudyNumbers
from raysim.store.config_file import FREE
from raysim.studies.concluding import conclude
from raysim.studies.folder import STUDY
from raysim.studies.read import read_findings
from raysim.studies.showing import Board
from raysim.studies.studying import study

PAGE, FIGURES = "claims.md", "figures"

ELSEWHERE = {"data.root", *(key for key in FREE if key.startswith("fleet."))}
"""Keys of the machine and its files, which are no change of a study: the record names the machine."""


def reproduce(
    name: str,
    out: str | Path | None = None,
    *,
    full: bool = False,
    changes: Iterable[str] = (),
    watcher: Board | None = None,
    **options: Any,
) -> tuple[Path, tuple[JudgedClaim, ...]]:
    """Run or continue the study of a paper's table or figure; judge its claims and draw its figures.

    Args:
        name: name of the reproduction, or path of its file.
        out: folder, either new or of the same study; default `runs/NAME-TIME`.
        full: use the paper's setting, not the reduced one.
        changes: `key.path=value` each, applied to the study.
        watcher: observer of the study; by default it shows nothing.
        options: further arguments of `raysim.study`.

    Returns:
        The folder, with the study, the judged claims and the figures; and the judged claims.

    Raises:
        InputError: the reproduction does not exist, it has no reduced setting, or its data are missing.
        Others: as `raysim.study`.
    """
    reproduction = read_reproduction(name)
    if reproduction.is_full_alone and not full:
        raise InputError(f"reproduction {name!r} has no reduced setting: must run in the paper's setting; add --full")
    changes = tuple(changes)
    folder = Path(out) if out is not None else Path("runs") / f"{reproduction.name}-{datetime.now():%Y%m%d-%H%M%S}"
    # The checkout may change during the run.
    begun = commit()
    tables, board = reproduction.study(full, changes), watcher or Board()
    check_data(tables, board.notice)
    try:
        study(tables, folder, watcher=board, **options)
    except StoppedError:
        # `raysim study` would also continue, but neither judge nor draw.
        remedy = f"; continue with: {_again(name, folder, full, changes)}" if (folder / STUDY).is_file() else ""
        raise StoppedError(f"stopped{remedy}") from None
    claims = judge(reproduction, folder, full)
    record = {**record_of(reproduction, folder, claims, full, changes), "figures": draw(reproduction, folder)}
    record |= origin(folder, begun)
    with write_whole(folder / RECORD) as aside:
        aside.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    with write_whole(folder / PAGE) as aside:
        aside.write_text(printable_lines(as_markdown(record)), encoding="utf-8")
    conclude(folder, lead=section(folder))
    return folder, claims


def _again(name: str, folder: Path, full: bool, changes: Iterable[str]) -> str:
    asked = [word for change in changes for word in ("--set", change)]
    return shlex.join(["raysim", "reproduce", name, *(["--full"] if full else []), *asked, "--out", str(folder)])


def judge(reproduction: Reproduction, folder: Path, full: bool) -> tuple[JudgedClaim, ...]:
    """Judge the claims by a study's folder. A reduced setting cannot test claims with `full`."""
    numbers = StudyNumbers(folder)
    claims = reproduction.claims
    return tuple(JudgedClaim(claim) if claim.full and not full else numbers.judge(claim) for claim in claims)


def draw(reproduction: Reproduction, folder: Path) -> list[dict[str, str | None]]:
    """Draw the figures into a study's folder. Return title and file each; None without data to draw."""
    study = read_findings(folder)
    figures: list[dict[str, str | None]] = []
    for number, figure in enumerate(reproduction.figures, 1):
        file = f"{FIGURES}/{number}.svg"
        svg = drawn(f"paper{number}", figure, study)
        if svg:
            (folder / FIGURES).mkdir(exist_ok=True)
            with write_whole(folder / file) as aside:
                aside.write_text(as_file(svg), encoding="utf-8")
        else:
            (folder / file).unlink(missing_ok=True)
        figures.append({"title": figure.table.title, "file": file if svg else None})
    return figures


def record_of(
    reproduction: Reproduction, folder: Path, claims: Iterable[JudgedClaim], full: bool, changes: Iterable[str]
) -> Mapping[str, Any]:
    """Return the record of a reproduction for the results page."""
    trials = read_parquet(folder / "trials.parquet", columns=["seconds", "status"])
    set_by_hand = [change for change in changes if change.partition("=")[0].strip() not in ELSEWHERE]
    return {
        "name": reproduction.name,
        **reproduction.words(full, as_it_comes=not set_by_hand),
        "full": full,
        "changes": set_by_hand,
        "setting": setting_of(reproduction, full),
        "differs": [] if full else [[key, theirs, ours] for key, theirs, ours in differences(reproduction)],
        "version": VERSION,
        "trials": trials.num_rows,
        "not_done": trials.filter(pc.field("status") != "done").num_rows,
        "seconds": round(sum(trials["seconds"].to_pylist()), 1),
        "claims": [_row(each) for each in claims],
    }


def origin(folder: Path, begun: str | None) -> Mapping[str, str | None]:
    """Return commit, machine and digest: the recorded ones if the results did not change, else today's."""
    new = {"commit": begun, "machine": machine(folder), "sha256": digest(folder)}
    if (folder / RECORD).is_file():
        recorded = json.loads(read_text(folder / RECORD))
        if recorded.get("sha256") == new["sha256"]:
            return {key: recorded[key] for key in new}
    return new


def _row(judged: JudgedClaim) -> dict[str, Any]:
    numbers = {"numbers": list(judged.numbers), "verdict": judged.verdict}
    found = {"mean": judged.mean, "spread": judged.spread} if judged.numbers else {"mean": None, "spread": None}
    claim = {**judged.claim.model_dump(exclude_none=True), "condition": judged.claim.condition}
    return {**claim, **numbers, **found}
