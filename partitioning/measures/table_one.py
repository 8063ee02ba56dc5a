"""RADFed's Table I as text: a row a population, in the form that a paper, a page or a program takes."""

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from partitioning.measures.statistics import Statistics

Row = Mapping[str, str | int | float]
"""The values of a row by the names of the paper's columns, in their order."""

_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def table_row(name: str, numbers: Statistics) -> Row:
    """Return the row of a population."""
    return {
        "Dataset": name,
        "Min": numbers.min,
        "Max": numbers.max,
        "Mean": numbers.mean,
        "Stdev": numbers.std,
        "C-score": numbers.c_score,
    }


def in_words(row: Row) -> list[str]:
    """Return a row's cells as the paper prints them: whole samples, and two places of the C-score.

    Deviation: one place of means and deviations below 100, so that small populations can be told apart.
    """
    return [_cell(name, value) for name, value in row.items()]


def to_csv(rows: Sequence[Row]) -> str:
    """Return the rows, with all their digits, as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_json(rows: Sequence[Row]) -> str:
    """Return the rows, with all their digits, as a JSON list."""
    return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"


def to_markdown(rows: Sequence[Row]) -> str:
    """Return the rows as the paper prints them in a Markdown table."""
    cells = [list(rows[0]), ["---", *["---:"] * (len(rows[0]) - 1)]]
    cells += [[cell.replace("|", r"\|") for cell in in_words(row)] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def to_latex(rows: Sequence[Row]) -> str:
    """Return the rows as the paper prints them in a LaTeX `tabular`, which needs no package."""
    head, *body = [[_escape(cell) for cell in line] for line in (list(rows[0]), *map(in_words, rows))]
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
"""How rows are written, by the ending of the file."""


def _cell(name: str, value: str | float) -> str:
    if isinstance(value, str):
        return value
    if name == "C-score":
        return f"{value:.2f}"
    return f"{value:,.1f}" if isinstance(value, float) and value < 100 else f"{value:,.0f}"


def _escape(text: str) -> str:
    return re.sub(r"[\\~^&%$#_{}]", lambda found: _LATEX.get(found[0], rf"\{found[0]}"), text)
