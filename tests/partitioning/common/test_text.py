"""Text from outside: what is shown has no meaning but its own, and an end."""

import subprocess
import sys

import pytest

from partitioning.cli.console import Console
from partitioning.common.text import CAPTION, LINE, caption, latex, markdown, printable, printable_lines, word

HOSTILE = {
    "\x1b[2J": r"\x1b[2J",
    "a\nb\r\tc": r"a\nb\r\tc",
    "\x00\x7f\x9b": r"\x00\x7f\x9b",
    "\u202egnp.exe": r"\u202egnp.exe",
    "a\u200bb": r"a\u200bb",
    "\ud800": r"\ud800",
    "\uffff": r"\uffff",
    "\u2028": r"\u2028",
}


@pytest.mark.parametrize(("text", "shown"), HOSTILE.items())
def test_what_is_no_printable_character_is_an_escape(text, shown):
    assert printable(text) == shown and printable(text).isprintable()


@pytest.mark.parametrize("text", ["", "cat", "$x$ <b> {0} %s [red]", "größe ± 猫 🐈", "cafe\u0301"])
def test_printable_text_stays(text):
    assert printable(text) == text


def test_a_long_text_loses_its_middle():
    shown = printable("begin" + "x" * 5_000_000 + "end")
    assert len(shown) == LINE and shown.startswith("begin") and shown.endswith("end") and "…" in shown
    assert len(printable("\U000e0001" * 5000)) == LINE
    assert printable("a class with the number 17", 18) == "a class …number 17"


def test_lines_stay_lines():
    assert printable_lines("a\n\tb\x1b\n") == "a\n    b\\x1b\n"
    assert len(printable_lines("x\n" * 5_000_000)) <= 1_000_000


def test_a_caption_is_short_and_not_hidden():
    assert caption("_x") == " _x"
    assert len(caption("x" * 1000)) == CAPTION


def test_latex_takes_a_text_literally():
    assert latex(r"50% of \x") == r"50\% of \textbackslash{}x"
    assert latex("[x] & *\n") == r"{[}x] \& *\textbackslash{}n"
    assert latex("*") == "{*}"


def test_markdown_takes_a_text_literally():
    assert markdown("a|b [x](y) <i> `c` *d* e_f") == r"a\|b \[x](y) \<i> \`c\` \*d\* e\_f"


@pytest.mark.parametrize("text", ["a b", "$(touch x)", "-rf", "'", "a;b", "", "`x`", "\n"])
def test_a_word_is_one_word_of_a_shell(text):
    given = subprocess.run(["sh", "-c", f"printf %s {word(text)}"], capture_output=True, text=True, check=True).stdout
    assert given == (f"./{text}" if text.startswith("-") else text)


def test_a_console_shows_a_string_literally(capsys):
    Console(width=100).print("[red]x[/] :cat: [link=http://x]y[/link] \x1b[31mz")
    assert capsys.readouterr().out == "[red]x[/] :cat: [link=http://x]y[/link] \\x1b[31mz\n"


def test_a_terminal_of_another_encoding_gets_escapes():
    code = "from partitioning.cli.terminal import *; escape_unencodable(); echo('größe 猫')"
    western = {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=western, check=True)
    assert done.stdout == b"gr\xf6\xdfe \\u732b\n"
