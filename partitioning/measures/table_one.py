"""RADFed's Table I, one row per population, as CSV, JSON, Markdown or LaTeX."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from partitioning.common.text import cell, latex, markdown
from partitioning.measures.statistics import Statistics

Row = Mapping[str, str | int | float]
"""Values of a row by the paper's column names, in order."""


def table_row(name: str, numbers: Statistics) -> Row:
    """Return a population's row."""
    return {
        "Dataset": name,
        "Min": numbers.min,
        "Max": numbers.max,
        "Mean": numbers.mean,
        "Stdev": numbers.std,
        "C-score": numbers.c_score,
    }


def format_row(row: Row) -> list[str]:
    """Return a row's cells in the paper's format: whole samples, and two decimals of the C-score.

    Deviation: means and standard deviations below 100 have one decimal, to distinguish small populations.
    """
    return [_cell(name, value) for name, value in row.items()]


def to_csv(rows: Sequence[Row]) -> str:
    """Return the rows, with all their digits, as CSV; a name that a spreadsheet would calculate gets an apostrophe."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: cell(value) if isinstance(value, str) else value for name, value in row.items()})
    return text.getvalue()


def to_json(rows: Sequence[Row]) -> str:
    """Return the rows, with all their digits, as a JSON list."""
    return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"


def to_markdown(rows: Sequence[Row]) -> str:
    """Return the rows in the paper's format, as a Markdown table."""
    cells = [list(rows[0]), ["---", *["---:"] * (len(rows[0]) - 1)]]
    cells += [[markdown(cell) for cell in format_row(row)] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def to_latex(rows: Sequence[Row]) -> str:
    """Return the rows in the paper's format, as a LaTeX `tabular` that needs no package."""
    head, *body = [[latex(cell) for cell in line] for line in (list(rows[0]), *map(format_row, rows))]
    lines = [
        rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
        r"\hline",
        rf"{' & '.join(head)} \\",
        r"\hline",
        *(rf"{' & '.join(line)} \\" for line in body),
        r"\hline",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


FORMATS: Mapping[str, Callable[[Sequence[Row]], str]] = MappingProxyType(
    {".csv": to_csv, ".md": to_markdown, ".tex": to_latex, ".json": to_json}
)
"""Writers of rows by file suffix."""


def _cell(name: str, value: str | float) -> str:
    if isinstance(value, str):
        return value
    if name == "C-score":
        return f"{value:.2f}"
    return f"{value:,.1f}" if isinstance(value, float) and value < 100 else f"{value:,.0f}"
