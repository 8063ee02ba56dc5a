"""Reproductions for readers: the first section of a study's report, and a section in Markdown."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from partitioning.common.paths import read_text
from partitioning.common.text import word
from raysim.common.errors import InputError
from raysim.plots.style import in_page, themed
from raysim.report.templates import template
from raysim.reproduction.claim import Claim
from raysim.reproduction.provenance import digest
from raysim.studies.folder import TRIALS

RECORD = "claims.json"

NOTHING = "this setting runs no part of it."
UNTESTED = "not tested here"
CHANGED = "Changed by --set: the verdicts are of another setting than the reproduction's own."
MARKS = {"holds": "✓", "holds in direction": "(✓)", "does not hold": "✗"}
"""Marks of the verdicts."""

HEAD = "| claim | verdict | here | paper | condition |\n|---|---|---|---|---|"


def section(folder: Path) -> str:
    """Return the section's markup from the record and the figures in a study's folder; empty without a record.

    If the trials have changed since, it says so instead of the verdicts.

    Raises:
        InputError: the record, a figure or a trial is missing or damaged.
    """
    if not (folder / RECORD).is_file() or not (folder / TRIALS).is_file():
        return ""
    try:
        record = json.loads(read_text(folder / RECORD))
        return markup(folder, record, is_current=record["sha256"] == digest(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{folder / RECORD}, a figure that it names or a trial is missing or damaged ({error}): must be as `raysim "
            "reproduce` wrote it; run it again with this folder as --out"
        ) from None


def markup(folder: Path, record: Mapping[str, Any], *, is_current: bool = True) -> str:
    """Return the section's markup from a record; if it is not of the current trials, without its verdicts."""
    claims = [
        (row, paper_text(row), here_text(row), condition_text(row), verdict_text(row)) for row in record["claims"]
    ]
    return template("claims.html.j2", "raysim.reproduction").render(
        record=record,
        command=command(record),
        is_current=is_current,
        tested=[claim for claim in claims if claim[0]["verdict"] != UNTESTED],
        untested=[claim for claim in claims if claim[0]["verdict"] == UNTESTED],
        figures=[
            (each["title"], themed(in_page(read_text(folder / each["file"]))) if each["file"] else "")
            for each in record.get("figures", [])
        ],
        nothing=NOTHING,
        changed=CHANGED if record["changes"] else "",
    )


def as_markdown(record: Mapping[str, Any], prefix: str = "") -> str:
    """Return a reproduction's section: the finding, the claims, the figures, its setting, and how it was made.

    Args:
        record: record of the reproduction.
        prefix: path of the figures' folder, with a slash at the end.
    """
    lines = [f"## {title_of(record)}", ""]
    tested = [_claim(each) for each in record["claims"] if each["verdict"] != UNTESTED]
    others = [_claim(each) for each in record["claims"] if each["verdict"] == UNTESTED]
    if tested:
        lines += [_tally(record["claims"]), ""]
    if record["changes"]:
        lines += [CHANGED, ""]
    if record["found"]:
        lines += [f"Found: {record['found']}", ""]
    if tested:
        lines += [HEAD, *tested, ""]
    if others:
        lines += [*_folded(f"{len(others)} {UNTESTED}", HEAD, *others), ""]
    figures = [text for each in record.get("figures", []) for text in (_picture(each, prefix), "")]
    return "\n".join([*lines, *figures, *_setting(record)]) + "\n"


def _tally(claims: Iterable[Mapping[str, Any]]) -> str:
    """Return a line that counts the tested claims by verdict."""
    counts = Counter(each["verdict"] for each in claims)
    found = [f"{mark} {verdict}: {counts[verdict]}" for verdict, mark in MARKS.items() if counts[verdict]]
    return f"**{', '.join(found)}.**"


def _picture(figure: Mapping[str, Any], prefix: str) -> str:
    if figure["file"] is None:
        return f"{figure['title']}: {NOTHING}"
    return f"{figure['title']}\n\n![{figure['title']}]({prefix}{figure['file']})"


def _setting(record: Mapping[str, Any]) -> list[str]:
    """Return the setting: command, notes, changed keys, and at the end the trials, the machine and the commit."""
    lines = [f"    {command(record)}"]
    if notes := [note for note in (record["about"]["note"], record["note"]) if note]:
        lines += ["", *notes]
    if record["differs"]:
        # Without a value, the paper's setting has the default, or gives it by another key.
        changed = [
            f"`{key}` {'none' if ours is None else ours}" + ("" if theirs is None else f" (paper: {theirs})")
            for key, theirs, ours in record["differs"]
        ]
        count = f"{len(changed)} keys differ from the paper's" if len(changed) > 1 else "A key differs from the paper's"
        lines += ["", *_folded(count, f"Reduced: {'; '.join(changed)}.")]
    unfinished = f", {record['not_done']} of them unfinished" if record["not_done"] else ""
    made = f"raysim {record['version']}" + (f" at `{record['commit'][:12]}`" if record["commit"] else "")
    seconds = record["seconds"]
    length = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    time = f"{record['trials']} trials{unfinished}, {length} of training in all"
    origin = f"{time}; {record['machine']}; {made}; models and metrics sha256 `{record['sha256'][:16]}`."
    return [*lines, "", origin]


def _folded(title: str, *lines: str) -> list[str]:
    """Return lines that a reader unfolds; `markdown` lets MkDocs render tables inside."""
    return [f'<details markdown="1"><summary>{title}</summary>', "", *lines, "", "</details>"]


def command(record: Mapping[str, Any]) -> str:
    """Return the command that runs a reproduction."""
    words = ["raysim reproduce", word(record["name"]), *(["--full"] if record["full"] else [])]
    return " ".join([*words, *(f"--set {word(change)}" for change in record["changes"])])


def title_of(record: Mapping[str, Any]) -> str:
    """Return the title of a reproduction's section."""
    about = record["about"]
    return f"{record['name']}: {about['paper']}, {about['place']}"


def _claim(row: Mapping[str, Any]) -> str:
    verdict = verdict_text(row)
    return f"| {row['says']} | {verdict} | {here_text(row)} | {paper_text(row)} | {condition_text(row)} |"


def verdict_text(row: Mapping[str, Any]) -> str:
    """Return a claim's verdict with its mark; for an untested claim the reason, for one that is off the cause."""
    verdict = str(row["verdict"])
    if verdict == UNTESTED:
        reason = row.get("untested", UNTESTED)
        return f"{row['hours']:,g} hours" if reason == "hours" else str(reason)
    cause = f": {row['cause']}" if row.get("cause") and verdict != "holds" else ""
    return f"{MARKS[verdict]} {verdict}{cause}"


def paper_text(row: Mapping[str, Any]) -> str:
    """Return a claim's number in the paper."""
    return "" if row.get("paper") is None else f"{_claim_of(row).shown(row['paper']):.4g}"


def here_text(row: Mapping[str, Any]) -> str:
    """Return a claim's mean and standard deviation here."""
    if row["mean"] is None:
        return ""
    spread = "" if row["spread"] is None else f" ± {row['spread']:.2g}"
    return f"{_claim_of(row).shown(row['mean']):.4g}{spread} (n = {len(row['numbers'])})"


def condition_text(row: Mapping[str, Any]) -> str:
    """Return a claim's condition in words."""
    return _claim_of(row).condition


def _claim_of(row: Mapping[str, Any]) -> Claim:
    return Claim.model_validate({key: row[key] for key in Claim.model_fields if key in row}, strict=False)
