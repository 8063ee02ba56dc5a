"""Text from outside, made safe to show: in a terminal, log, figure, page, spreadsheet or shell, and in LaTeX.

Labels, names of columns and files, settings, and the output of jobs may hold anything. Stored values stay exact; a text
passes one of these functions where it is shown.
"""

import re
import shlex
from collections.abc import Sequence

from partitioning.common.uris import masked

LINE = 2000
"""Most characters of a shown line."""

CAPTION = 60
"""Most characters of a title, label or tick in a figure."""

PARAGRAPH = 20_000
"""Most characters of a line in a log or on a page."""

PAGE = 1_000_000
"""Most characters of a text of several lines in a log or on a page."""

_LATEX = {
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
"""Signs that LaTeX would interpret, or that its fonts lack."""


def described(value: object) -> str:
    """Return the type of a value, and its shape if it has one; never its content."""
    shape = getattr(value, "shape", None)
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return f"{kind} of shape {tuple(shape)}" if isinstance(shape, Sequence) else kind


def printable(text: object, most: int = LINE) -> str:
    r"""Return a text as one line without passwords, and without control, invisible, bidirectional or undecodable signs.

    Each of these becomes an escape such as `\x1b`. A text of more than `most` characters loses its middle, because a
    message begins with the value and ends with the remedy.
    """
    line = _cut(masked(str(text)), most)
    if line.isprintable():
        return line
    return _cut("".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in line), most)


def printable_lines(text: str) -> str:
    """Return a text of several lines, each of them printable."""
    return "\n".join(printable(line, PARAGRAPH) for line in _cut(text, PAGE).expandtabs(4).split("\n"))


def caption(text: object, most: int = CAPTION) -> str:
    """Return a text for a figure; matplotlib hides the labels that begin with an underscore."""
    shown = printable(text, most)
    return f" {shown}" if shown.startswith("_") else shown


def latex(text: object) -> str:
    """Return a text as LaTeX source."""
    source = "".join(_LATEX.get(sign, sign) for sign in printable(text, PARAGRAPH))
    # At the beginning of a row, both would be arguments of the line break before it.
    return re.sub(r"^[\[*]", r"{\g<0>}", source)


def markdown(text: object) -> str:
    """Return a text as Markdown that ends no cell and begins no emphasis, link, code or markup."""
    return re.sub(r"[\\|*_`\[<]", r"\\\g<0>", printable(text, PARAGRAPH))


def cell(text: object) -> str:
    """Return a text as a cell of CSV; one that a spreadsheet would calculate begins with an apostrophe."""
    shown = printable(text, PARAGRAPH)
    return f"'{shown}" if shown.lstrip().startswith(("=", "+", "-", "@")) else shown


def word(value: object) -> str:
    """Return a value as one word of a shell command; a leading dash makes no option of it."""
    text = str(value)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    end = most // 2
    return f"{text[: most - end - 1]}…{text[len(text) - end :]}"
