"""First section of a reproduction's report: the paper's figures and claims."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from partitioning.common.paths import read_text
from raysim.common.errors import InputError
from raysim.plots.style import in_page, themed
from raysim.report.templates import template
from raysim.reproduction.page import NOTHING, command, here_text, paper_text, verdict_text

RECORD = "claims.json"


def section(folder: Path) -> str:
    """Return the section's markup from the record and the figures in a study's folder; empty without a record.

    Raises:
        InputError: the record or a figure is missing or damaged.
    """
    if not (folder / RECORD).is_file():
        return ""
    try:
        return _markup(folder, json.loads(read_text(folder / RECORD)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{folder / RECORD} or a figure that it names is missing or damaged ({error}): must be as `raysim "
            "reproduce` wrote it; run it again with this folder as --out"
        ) from None


def _markup(folder: Path, record: Mapping[str, Any]) -> str:
    claims = [(row, paper_text(row), here_text(row), verdict_text(row)) for row in record["claims"]]
    return template("claims.html.j2", "raysim.reproduction").render(
        record=record,
        command=command(record),
        tested=[claim for claim in claims if claim[0]["numbers"]],
        untested=[claim for claim in claims if not claim[0]["numbers"]],
        figures=[(each["title"], _svg(folder, each)) for each in record.get("figures", [])],
        nothing=NOTHING,
    )


def _svg(folder: Path, figure: Mapping[str, Any]) -> str:
    return themed(in_page(read_text(folder / figure["file"]))) if figure["file"] else ""
