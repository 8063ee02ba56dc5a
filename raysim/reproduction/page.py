"""What is said of reproductions: in Markdown, for one and for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NOTHING = "nothing of it is run in this setting."
HEAD = "| claim | paper | here | it holds if | verdict |\n|---|---|---|---|---|"


def as_markdown(record: Mapping[str, Any]) -> str:
    """A reproduction: what it is, how it differs from the paper's, and its claims."""
    about = record["about"]
    lines = [f"## {record['name']}: {about['paper']}, {about['place']}", "", *_setting(record), "", HEAD]
    lines += [_claim(each) for each in record["claims"]]
    return "\n".join(lines) + "\n"


def pictures(record: Mapping[str, Any], place: str = "") -> str:
    """The figures of a reproduction as images, `place` being the way to its folder, with a slash at the end."""
    return "".join(f"\n{_picture(each, place)}\n" for each in record.get("figures", []))


def _picture(figure: Mapping[str, Any], place: str) -> str:
    if figure["file"] is None:
        return f"{figure['title']}: {NOTHING}"
    return f"{figure['title']}\n\n![{figure['title']}]({place}{figure['file']})"


def _setting(record: Mapping[str, Any]) -> list[str]:
    lines = [f"    {command(record)}", "", *_sentences(record["about"]["note"], record["note"])]
    if record["differs"]:
        changed = [f"`{key}` {_value(ours)} (paper: {_value(theirs)})" for key, theirs, ours in record["differs"]]
        lines.append(f"Reduced: {'; '.join(changed)}.")
    not_done = f", of which {record['not_done']} did not end" if record["not_done"] else ""
    made = f"raysim {record['version']}" + (f" at `{record['commit'][:12]}`" if record["commit"] else "")
    time = f"{record['trials']} trials{not_done}, {_time(record['seconds'])} of training in all"
    lines.append(f"{time}; {record['machine']}; {made}; models and metrics sha256 `{record['sha256'][:16]}`.")
    return lines


def command(record: Mapping[str, Any]) -> str:
    """What runs it."""
    words = ["raysim reproduce", record["name"], *(["--full"] if record["full"] else [])]
    return " ".join([*words, *(f"--set {change}" for change in record["changes"])])


def summary(records: Iterable[Mapping[str, Any]]) -> str:
    """All reproductions: how many claims of each came to which verdict."""
    verdicts = ("holds", "holds in direction", "does not hold", "not tested here")
    lines = [f"| reproduction | paper | {' | '.join(verdicts)} |", "|---|---|" + "---|" * len(verdicts)]
    for record in records:
        counts = [sum(each["verdict"] == verdict for each in record["claims"]) or "" for verdict in verdicts]
        about = record["about"]
        lines.append(f"| {record['name']} | {about['paper']}, {about['place']} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def _claim(row: Mapping[str, Any]) -> str:
    return f"| {row['says']} | {paper_text(row)} | {here_text(row)} | {row['condition']} | {row['verdict']} |"


def paper_text(row: Mapping[str, Any]) -> str:
    """A claim's number in the paper."""
    return "" if row.get("paper") is None else f"{row['paper']:.4g}"


def here_text(row: Mapping[str, Any]) -> str:
    """The number that it came to, and its deviation."""
    here = "" if row["mean"] is None else f"{row['mean']:.4g}"
    return here if row["spread"] is None else f"{here} ± {row['spread']:.2g} (n = {len(row['numbers'])})"


def _sentences(*notes: str) -> Sequence[str]:
    return [note for note in notes if note]


def _value(value: Any) -> str:
    return "none" if value is None else str(value)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
