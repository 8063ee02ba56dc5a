"""Hostile texts by seed, and what every output must keep: bounds, and no character that a terminal obeys."""

import random
import re

KINDS = (
    "$a_b^{$",
    r"$\frac{1}{$ and $x$",
    "$",
    "\x1b[2J\x1b[31mred",
    "\x1b]8;;http://evil/\x07link\x1b]8;;\x07",
    "\x9b31mC1",
    "a\r\nraysim: done",
    "a\tb\x0bc\x0c",
    "\u202egpj.exe",
    "\u2066iso\u2069",
    "zero\u200bwidth\ufeff",
    "e" + "\u0301" * 300,
    "🐈👩‍👩‍👧",
    "日本語のラベル",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "]]>&#x1b;&lt;",
    "{{ 7*7 }}{% raw %}",
    r"\input{/etc/passwd}\end{tabular}",
    "50% & #_{}~^",
    "[red]x[/red][link=http://e]y[/link]",
    ":cat: [/]",
    "%s%n%d %(x)s",
    "{0}{name!r:>9999}",
    "_hidden",
    "-rf",
    "--help",
    "   ",
    "'; touch pwned; '",
    "$(touch pwned)",
    "`touch pwned`",
    "=cmd|' /C calc'!A0",
    "| a | b |\n|---|",
    "[x](javascript:alert(1))",
    "\x7f\x08\x08",
    "\uffff\ufdd0",
    "nan",
    "None",
    "../../etc",
    "a" * 300,
    "\x85\u2028\u2029",
)

RARE = ("x" * 1_000_000, "$x$ " * 50_000, "\x1b[31m" * 30_000, "", "\x00", "\ud800")

CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)
"""Characters that no output may have."""

LONGEST = 4000
"""Most characters of an error line."""


def text(rng: random.Random, *, rare: bool = True, most: int | None = None, without: str = "") -> str:
    """A hostile text: one or two kinds, or a rare one that some places cannot hold."""
    if rare and rng.random() < 0.15:
        drawn = rng.choice(RARE)
    else:
        drawn = "".join(rng.choices(KINDS, k=rng.choice((1, 1, 2))))
    drawn = "".join(sign for sign in drawn if sign not in without)
    return drawn if most is None else drawn.encode(errors="surrogatepass")[:most].decode(errors="ignore")


def wrong(shown: str) -> str:
    """Say what is wrong with the output of a command; nothing if it is right."""
    if "Traceback (most recent call last)" in shown:
        return "a traceback: " + shown[-600:]
    if (found := CONTROL.search(shown)) is not None:
        return f"the character {found[0]!r} in {shown[max(0, found.start() - 60) : found.end() + 60]!r}"
    longest = max(map(len, shown.split("\n")), default=0)
    return f"a line of {longest} characters" if longest > LONGEST else ""
