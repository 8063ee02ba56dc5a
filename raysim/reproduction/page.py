"""What is said of reproductions: in Markdown, for one and for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NOTHING = "nothing of it is run in this setting."
UNTESTED = "not tested here"
HEAD = "| claim | paper | here | it holds if | verdict |\n|---|---|---|---|---|"


def as_markdown(record: Mapping[str, Any]) -> str:
    """A reproduction: what it is, how it differs from the paper's, and its claims."""
    lines = [f"## {_title(record)}", "", *_setting(record)]
    tested = [_claim(each) for each in record["claims"] if each["verdict"] != UNTESTED]
    others = [_claim(each) for each in record["claims"] if each["verdict"] == UNTESTED]
    if tested:
        lines += ["", HEAD, *tested]
    if record["found"]:
        lines += ["", f"Found: {record['found']}"]
    if others:
        lines += ["", f"<details><summary>{len(others)} {UNTESTED}</summary>", "", HEAD, *others, "", "</details>"]
    return "\n".join(lines) + "\n"


def pictures(record: Mapping[str, Any], place: str = "") -> str:
    """The figures of a reproduction as images, `place` being the way to its folder, with a slash at the end."""
    return "".join(f"\n{_picture(each, place)}\n" for each in record.get("figures", []))


def _picture(figure: Mapping[str, Any], place: str) -> str:
    if figure["file"] is None:
        return f"{figure['title']}: {NOTHING}"
    return f"{figure['title']}\n\n![{figure['title']}]({place}{figure['file']})"


def _setting(record: Mapping[str, Any]) -> list[str]:
    lines = [f"    {command(record)}"]
    if said := _sentences(record["about"]["note"], record["note"]):
        lines += ["", *said]
    not_done = f", of which {record['not_done']} did not end" if record["not_done"] else ""
    made = f"raysim {record['version']}" + (f" at `{record['commit'][:12]}`" if record["commit"] else "")
    time = f"{record['trials']} trials{not_done}, {_time(record['seconds'])} of training in all"
    lines += ["", f"{time}; {record['machine']}; {made}; models and metrics sha256 `{record['sha256'][:16]}`."]
    if record["differs"]:
        changed = [f"`{key}` {_value(ours)}{_of_paper(theirs)}" for key, theirs, ours in record["differs"]]
        count = f"{len(changed)} keys differ from the paper's" if len(changed) > 1 else "A key differs from the paper's"
        lines += ["", f"<details><summary>{count}</summary>", "", f"Reduced: {'; '.join(changed)}.", "", "</details>"]
    return lines


def command(record: Mapping[str, Any]) -> str:
    """What runs it."""
    words = ["raysim reproduce", record["name"], *(["--full"] if record["full"] else [])]
    return " ".join([*words, *(f"--set {change}" for change in record["changes"])])


def summary(records: Iterable[Mapping[str, Any]]) -> str:
    """All reproductions: how many claims of each came to which verdict; the quick ones do not count in all."""
    verdicts = ("holds", "holds in direction", "does not hold", UNTESTED)
    lines = [f"| reproduction | paper | {' | '.join(verdicts)} |", "|---|---|" + "---|" * len(verdicts)]
    total = Counter[str]()
    for record in records:
        counts = Counter(each["verdict"] for each in record["claims"])
        about, total = record["about"], total + (Counter() if record["name"].endswith("-quick") else counts)
        cells = [str(counts[verdict] or "") for verdict in verdicts]
        lines.append(f"| {_link(record)} | {about['paper']}, {about['place']} | {' | '.join(cells)} |")
    sums = " | ".join(str(total[verdict]) for verdict in verdicts)
    return "\n".join([*lines, f"| all but the quick ones | | {sums} |"])


def _link(record: Mapping[str, Any]) -> str:
    """The way to a reproduction's section, as hosts of Markdown name headings."""
    kept = "".join(each for each in _title(record).lower() if each.isalnum() or each in " -_")
    return f"[{record['name']}](#{kept.replace(' ', '-')})"


def _title(record: Mapping[str, Any]) -> str:
    about = record["about"]
    return f"{record['name']}: {about['paper']}, {about['place']}"


def _claim(row: Mapping[str, Any]) -> str:
    return f"| {row['says']} | {paper_text(row)} | {here_text(row)} | {row['condition']} | {row['verdict']} |"


def paper_text(row: Mapping[str, Any]) -> str:
    """A claim's number in the paper."""
    return "" if row.get("paper") is None else f"{row['paper']:.4g}"


def here_text(row: Mapping[str, Any]) -> str:
    """The number that it came to, and its deviation."""
    if row["mean"] is None:
        return ""
    spread = "" if row["spread"] is None else f" ± {row['spread']:.2g}"
    return f"{row['mean']:.4g}{spread} (n = {len(row['numbers'])})"


def _sentences(*notes: str) -> Sequence[str]:
    return [note for note in notes if note]


def _of_paper(value: Any) -> str:
    # What the paper's setting does not say by this very key is a default, or said by another one.
    return "" if value is None else f" (paper: {value})"


def _value(value: Any) -> str:
    return "none" if value is None else str(value)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
