"""A study's tables in LaTeX, with the package booktabs."""

from __future__ import annotations

from raysim.studies.tables import STAR, Cell, Table

ESCAPED = {
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
"""What LaTeX would take for something else, or its fonts do not have."""


def latex(table: Table, caption: str, label: str) -> str:
    r"""A table that floats, with its caption above it.

    Args:
        caption: below which it stands.
        label: by which `\ref` finds it.
    """
    columns = "l" * len(table.of) + "r" * len(table.headings)
    rows = [[*map(escaped, line.of), *map(_cell, line.cells)] for line in table.lines]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escaped(caption)}}}",
            rf"\label{{{label}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            _row([*map(escaped, table.of), *map(escaped, table.headings)]),
            r"\midrule",
            *map(_row, rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def escaped(text: str) -> str:
    """A text as LaTeX prints it."""
    return "".join(ESCAPED.get(sign, sign) for sign in text)


def _cell(cell: Cell) -> str:
    text = escaped(cell.text)
    if text[:1] == "-" and text[1:2].isdigit():  # a sign, not a hyphen or a dash
        text = f"$-${text[1:]}"
    starred = f"{text}$^{STAR}$" if cell.star else text
    return rf"\textbf{{{starred}}}" if cell.best else starred


def _row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"
