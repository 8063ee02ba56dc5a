"""Reproduce a paper's table or figure: run its study, judge its claims, draw its figures."""

import json
import shlex
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from partitioning.common.disk import write_whole
from partitioning.common.paths import read_text
from partitioning.common.text import printable_lines
from raysim.common.distribution import VERSION
from raysim.common.errors import InputError
from raysim.plots.style import as_file
from raysim.reproduction.drawing import drawn
from raysim.reproduction.file import Reproduction, differences, read_reproduction
from raysim.reproduction.needed import check_data
from raysim.reproduction.page import CHANGED, RECORD, as_markdown, markup
from raysim.reproduction.provenance import commit, digest, machine, setting_of
from raysim.reproduction.verdict import JudgedClaim, StudyNumbers
from raysim.simulation.options import RunOptions
from raysim.simulation.stop import Stop
from raysim.store.config_file import FREE
from raysim.studies.concluding import conclude
from raysim.studies.read import Findings, read_findings
from raysim.studies.showing import Board
from raysim.studies.studying import run_study

PAGE, FIGURES = "claims.md", "figures"

ELSEWHERE = ("data.root", "watch.", "checkpoint.", *(key for key in FREE if key.startswith("fleet.")))
"""Beginnings of the keys of the machine and its files, which are no change of a study: the record names the machine."""


def reproduce(
    name: str,
    out: str | Path | None = None,
    *,
    full: bool = False,
    changes: Iterable[str] = (),
    actors: int | None = None,
    inline: bool = False,
    address: str | None = None,
    watcher: Board | None = None,
    stop: Stop | None = None,
) -> tuple[Path, tuple[JudgedClaim, ...]]:
    """Run or continue the study of a paper's table or figure; judge its claims and draw its figures.

    Args:
        name: name of the reproduction, or path of its file.
        out: folder, either new or of the same study; default `runs/NAME-TIME`.
        full: use the paper's setting, not the reduced one.
        changes: `key.path=value` each, applied to the study.
        actors, inline, address, watcher, stop: as for `raysim.study`.

    Returns:
        The folder, with the study, the judged claims and the figures; and the judged claims.

    Raises:
        InputError: the reproduction does not exist, it has no such setting, or its data are missing.
        Others: as `raysim.study`.
    """
    reproduction = read_reproduction(name)
    if reproduction.is_full_alone and not full:
        raise InputError(f"reproduction {name!r} has no reduced setting: must run in the paper's setting; add --full")
    if reproduction.is_quick_alone and full:
        raise InputError(f"reproduction {name!r} is a quick check alone: must run in its own setting; leave --full out")
    changes = tuple(changes)
    folder = Path(out) if out is not None else Path("runs") / f"{reproduction.name}-{datetime.now():%Y%m%d-%H%M%S}"
    # The checkout may change during the run.
    begun = commit()
    tables, board = reproduction.study(full, changes), watcher or Board()
    check_data(tables, board.notice)
    options = RunOptions(actors, inline, address, watcher=board, stop=stop or Stop())
    # `raysim study` would also continue, but neither judge nor draw.
    again = _again(name, folder, full, changes, options)
    run_study(tables, folder, (), options, board, _conclude_if_failed, again)
    found = read_findings(folder)
    try:
        claims, figures = judge(reproduction, found, full), draw(reproduction, found)
    except InputError:
        # The study has ended, and only the claims or figures are wrong; earlier claims keep their report.
        if not (folder / RECORD).is_file():
            conclude(folder)
        raise
    record = {**record_of(reproduction, found, claims, full, changes), "figures": figures}
    record |= origin(folder, begun)
    with write_whole(folder / RECORD) as aside:
        aside.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    with write_whole(folder / PAGE) as aside:
        aside.write_text(printable_lines(as_markdown(record)), encoding="utf-8")
    conclude(folder, lead=markup(folder, record))
    if record["changes"]:
        board.notice(CHANGED)
    return folder, claims


def _conclude_if_failed(folder: Path, failed: Mapping[str, str]) -> None:
    """Write the report of a study whose claims are not judged; with them, it is written at the end."""
    if failed:
        conclude(folder)


def _again(name: str, folder: Path, full: bool, changes: Iterable[str], options: RunOptions) -> str:
    asked = [word for change in changes for word in ("--set", change)]
    place = ["--inline"] if options.inline else []
    place += ["--address", options.address] if options.address else []
    words = [name, *(["--full"] if full else []), *asked, "--out", str(folder), *place]
    return shlex.join(["raysim", "reproduce", *words])


def judge(reproduction: Reproduction, found: Findings, full: bool) -> tuple[JudgedClaim, ...]:
    """Judge the claims by a study's trials. A reduced setting cannot test claims with `full`."""
    numbers = StudyNumbers(found)
    claims = reproduction.claims
    return tuple(JudgedClaim(claim) if claim.full and not full else numbers.judge(claim) for claim in claims)


def draw(reproduction: Reproduction, found: Findings) -> list[dict[str, str | None]]:
    """Draw the figures into a study's folder. Return title and file each; None without data to draw."""
    figures: list[dict[str, str | None]] = []
    for number, figure in enumerate(reproduction.figures, 1):
        file = f"{FIGURES}/{number}.svg"
        svg = drawn(f"paper{number}", figure, found)
        if svg:
            (found.folder / FIGURES).mkdir(exist_ok=True)
            with write_whole(found.folder / file) as aside:
                aside.write_text(as_file(svg), encoding="utf-8")
        else:
            (found.folder / file).unlink(missing_ok=True)
        figures.append({"title": figure.table.title, "file": file if svg else None})
    return figures


def record_of(
    reproduction: Reproduction, found: Findings, claims: Iterable[JudgedClaim], full: bool, changes: Iterable[str]
) -> Mapping[str, Any]:
    """Return the record of a reproduction for the results page."""
    set_by_hand = [change for change in changes if not change.strip().startswith(ELSEWHERE)]
    return {
        "name": reproduction.name,
        **reproduction.words(full, as_it_comes=not set_by_hand),
        "full": full,
        "changes": set_by_hand,
        "setting": setting_of(reproduction, full),
        "differs": [] if full else [[key, theirs, ours] for key, theirs, ours in differences(reproduction)],
        "version": VERSION,
        "trials": len(found.trials),
        "not_done": sum(each.status != "done" for each in found.trials),
        "seconds": round(sum(each.seconds or 0.0 for each in found.trials), 1),
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
