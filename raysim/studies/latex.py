"""A study's tables in LaTeX, with the package booktabs."""

from __future__ import annotations

from raysim.report.tables import ResultTable, TableColumn
from raysim.studies.tables import STAR

ESCAPED = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": "$<$",
        ">": "$>$",
        "|": "$|$",
        "±": r"$\pm$",
        "×": r"$\times$",
        "–": "--",
    }
)
"""Signs that LaTeX would interpret, or that its fonts lack."""


def latex(table: ResultTable, caption: str, label: str) -> str:
    r"""Return a floating table with its caption above it.

    Args:
        table: the table.
        caption: plain text.
        label: name for `\ref`.
    """
    head = [escaped(column.title) for column in (*table.keys, *table.columns)]
    rows = [
        [*(escaped(key.cells[row]) for key in table.keys), *(_cell(column, row) for column in table.columns)]
        for row in range(len(table.keys[0].cells))
    ]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escaped(caption)}}}",
            rf"\label{{{label}}}",
            rf"\begin{{tabular}}{{{'l' * len(table.keys) + 'r' * len(table.columns)}}}",
            r"\toprule",
            _row(head),
            r"\midrule",
            *map(_row, rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def escaped(text: str) -> str:
    """Return a text as LaTeX source."""
    return text.translate(ESCAPED)


def _cell(column: TableColumn, row: int) -> str:
    text = escaped(column.cells[row])
    if text[:1] == "-" and text[1:2].isdigit():  # a sign, neither hyphen nor dash
        text = f"$-${text[1:]}"
    starred = f"{text}$^{STAR}$" if row in column.starred else text
    return rf"\textbf{{{starred}}}" if row in column.best else starred


def _row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"
