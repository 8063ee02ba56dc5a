"""A study's tables in LaTeX, with the package booktabs."""

from __future__ import annotations

from partitioning.common.text import latex
from raysim.report.tables import ResultTable
from raysim.studies.tables import STAR


def latex_table(table: ResultTable, caption: str, label: str) -> str:
    r"""Return a floating table with its caption above it.

    Args:
        label: name for `\ref`.
    """
    head = [latex(column.title) for column in (*table.keys, *table.columns)]
    rows = [[_cell(*cell) for cell in row] for row in table.rows]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{latex(caption)}}}",
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


def _cell(text: str, is_best: bool, is_starred: bool) -> str:
    text = latex(text)
    if text[:1] == "-" and text[1:2].isdigit():  # a sign, neither hyphen nor dash
        text = f"$-${text[1:]}"
    starred = f"{text}$^{STAR}$" if is_starred else text
    return rf"\textbf{{{starred}}}" if is_best else starred


def _row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"
