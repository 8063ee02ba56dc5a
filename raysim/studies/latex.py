"""A study's tables in LaTeX, with the package booktabs."""

from __future__ import annotations

from raysim.report.tables import ResultTable
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
    rows = [[_cell(*cell) for cell in row] for row in table.rows]
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


def _cell(text: str, is_best: bool, is_starred: bool) -> str:
    text = escaped(text)
    if text[:1] == "-" and text[1:2].isdigit():  # a sign, neither hyphen nor dash
        text = f"$-${text[1:]}"
    starred = f"{text}$^{STAR}$" if is_starred else text
    return rf"\textbf{{{starred}}}" if is_best else starred


def _row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"
