"""Table of the measurements: each figure is written as it comes, as JSON and as Markdown."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import torch


class Table:
    """Rows of a table on disk; it continues what is there.

    Args:
        folder: folder of `gpu.json` and `gpu.md`.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._json, self._markdown = folder / "gpu.json", folder / "gpu.md"
        self.rows: list[dict[str, Any]] = []
        if self._json.exists():
            self.rows = json.loads(self._json.read_text(encoding="utf-8"))

    def add(self, part: str, case: str, **figures: Any) -> None:
        """Add a row in place of an earlier one of its part and case; write both files and print the row."""
        row = {"part": part, "case": case, **{name: _rounded(value) for name, value in figures.items()}}
        self.rows = [each for each in self.rows if (each["part"], each["case"]) != (part, case)] + [row]
        self._json.write_text(json.dumps(self.rows, indent=1) + "\n", encoding="utf-8")
        self._markdown.write_text(self.markdown(), encoding="utf-8")
        print(json.dumps(row), flush=True)

    def markdown(self) -> str:
        """Return the rows as a table for each part."""
        lines = [f"# Measured on {device_name()}", ""]
        for part in dict.fromkeys(row["part"] for row in self.rows):
            rows = [row for row in self.rows if row["part"] == part]
            columns = list(dict.fromkeys(name for row in rows for name in row if name != "part"))
            lines += [f"## {part}", "", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
            lines += [f"| {' | '.join(_text(row.get(name)) for name in columns)} |" for row in rows]
            lines.append("")
        return "\n".join(lines)


def device_name() -> str:
    """Return the GPU, or the processor if there is none."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    return f"{name}, torch {torch.__version__}, Python {platform.python_version()}"


def _rounded(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _text(value: Any) -> str:
    return "" if value is None else str(value).replace("|", "\\|").replace("\n", " ")
