"""Hostile names by seed: `python -m tests.fuzz names FIRST STOP` runs commands on the texts of each seed.

Texts are labels, columns, domains, files, folders, settings, keys of files and arguments. It holds where each command
ends with 0, 1 or 2, soon; where streams, logs, pages and pictures have no character that a terminal obeys; and where
pages and pictures parse.
"""

import io
import json
import os
import random
import re
import signal
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from partitioning.cli.commands import main as partitioning_main
from partitioning.cli.exit_status import run_command
from raysim.cli.commands import cli
from raysim.plots.style import as_file
from tests.fuzz.text.hostile import LONGEST, text, wrong

SECONDS = 120
"""Time of a command on a busy machine."""

PAGE_LINE = 25_000
"""Most characters of a line of a log or of a page's text."""

ARGUMENT = "\x00\ud800"
"""Characters that no argument of a program has."""

FILE = ARGUMENT + "/"
"""Characters that no name of a file has."""

OWN = files("raysim.report").joinpath("report.js").read_text(encoding="utf-8").strip()
"""The script of every page."""

ACTIVE = {"iframe", "object", "embed", "form", "img", "a", "base"}
"""Elements that no page of ours has; of scripts, a page has its own one and values as JSON."""


class Output(io.StringIO):
    """A stream with the encoding of a terminal."""

    encoding = "utf-8"  # type: ignore[assignment]


LINKS = ("href", "xlink:href", "src", "srcset", "data", "action", "formaction", "poster", "style")
"""Attributes whose value a browser follows. All others may name a script as any other text."""


class Elements(HTMLParser):
    """Active elements and attributes of a page, and its texts."""

    def __init__(self) -> None:
        super().__init__()
        self.active: list[str] = []
        self.texts: list[str] = []
        self._kind = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        handlers = [
            name
            for name, value in attrs
            if name.startswith("on") or (name in LINKS and "script:" in (value or "").lower())
        ]
        self.active += [tag, *handlers] if tag in ACTIVE or handlers else []
        self._kind = f"script {dict(attrs)}" if tag == "script" else ""

    def handle_data(self, data: str) -> None:
        if self._kind == "script {'type': 'application/json'}":
            self.texts += _texts(json.loads(data))
        elif self._kind:
            self.active += [] if self._kind == "script {}" and data.strip() == OWN else [self._kind]
        else:
            self.texts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._kind = ""


def _texts(value: object) -> list[str]:
    """Return all texts in a value of JSON."""
    if isinstance(value, str):
        return [value]
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in values for text in _texts(each)]


def ran(program: str, *arguments: str) -> tuple[int, str]:
    """Run a command in this process: its exit status, and what it shows."""
    shown = Output()
    with redirect_stdout(shown), redirect_stderr(shown), soon(f"{program} {arguments!a:.300}"):
        try:
            if program == "raysim":
                run_command(cli, "raysim", list(arguments))
            else:
                before = signal.getsignal(signal.SIGTERM)
                try:
                    partitioning_main(list(arguments))
                finally:
                    signal.signal(signal.SIGTERM, before)
        except SystemExit as end:
            return int(end.code or 0), shown.getvalue()
        except Exception as error:
            return 1, f"{shown.getvalue()}Traceback (most recent call last): {type(error).__name__}: {error!s:.300}"
    raise AssertionError


@contextmanager
def soon(what: str) -> Iterator[None]:
    """End the process if a command hangs, and name it."""

    def end(*_: object) -> None:
        os.write(2, f"it hangs: {what}\n".encode())
        os.abort()

    signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def table(rng: random.Random, path: Path, label: str, extra: str) -> None:
    """Write a table with hostile labels, and columns of hostile names."""
    labels = list(dict.fromkeys(text(rng, without="\ud800") for _ in range(rng.randint(2, 5))))
    labels = labels if len(labels) > 1 else [*labels, "other"]
    drawn = [labels[number % len(labels)] for number in range(40)]
    numbers = np.random.default_rng(0).normal(size=40).astype(np.float32)
    pq.write_table(pa.table({"x": numbers, extra: numbers, label: drawn}), path)


def population(rng: random.Random) -> Iterator[str]:
    """Make a population, and show it by every command."""
    label, extra = text(rng, rare=False) or "label", text(rng, rare=False) or "z"
    extra = extra if extra not in ("x", label) else "other"
    source, other = name(rng, ".parquet"), name(rng, ".parquet", "2")
    table(rng, source, label, extra)
    table(rng, other, label, extra)
    out = name(rng, "")
    given = [
        "--label=" + label,
        "--scheme=iid",
        "--clients=3",
        "--scheme=iid",
        "--feature=" + extra,
        f"--out={out}",
        f"--test={text(rng, most=80, without=FILE + '=')}={other}",
    ]
    status, shown = ran("partitioning", "make", *given, "--", str(source))
    yield wrong(shown)
    if status:
        return
    for more in ((), ("--json",), ("--out=table.md",), ("--out=table.tex",), ("--out=table.csv",)):
        status, shown = ran("partitioning", "inspect", *more, "--", str(out))
        yield wrong(shown) or _failed(status, shown)
    for ending in ("svg", "png"):
        status, shown = ran("partitioning", "plot", f"--out=picture.{ending}", "--", str(out))
        yield wrong(shown) or _failed(status, shown)
    yield parsed(Path("picture.svg").read_text(encoding="utf-8"))
    yield from (wrong(Path(each).read_text(encoding="utf-8")) for each in ("table.md", "table.tex"))
    status, shown = ran("partitioning", "verify", "--", str(out))
    yield wrong(shown) or _failed(status, shown)


def experiment(source: Path, label: str) -> dict[str, object]:
    return {
        "rounds": 1,
        "data": {"dataset": f"file:{source}", "label": label, "test": 0.2},
        "partition": {"scheme": "iid", "clients": 3},
        "model": {"name": "logistic"},
        "algorithm": [{"name": "fedavg"}],
    }


def run(rng: random.Random) -> Iterator[str]:
    """Run, report and resume an experiment on hostile labels and names."""
    source, label = name(rng, ".parquet"), text(rng, rare=False) or "label"
    if "," in source.name or source.name != source.name.strip():
        source = Path("table.parquet")
    table(rng, source, label, "z")
    file, out = name(rng, ".toml"), name(rng, "")
    file.write_text(tomli_w.dumps(experiment(source, label)), encoding="utf-8")
    status, shown = ran("raysim", "run", "--inline", f"--out={out}", "--", str(file))
    yield wrong(shown)
    if status:
        return
    yield wrong((out / "run.log").read_text(encoding="utf-8")[:0]) or _log(out)
    yield page(out / "report.html")
    for command in (("report", "--out=both.html", "--", str(out), str(out)), ("resume", "--inline", "--", str(out))):
        status, shown = ran("raysim", *command)
        yield wrong(shown) or _failed(status, shown)
    yield page(Path("both.html"))
    yield page(out / "report.html")


def study(rng: random.Random) -> Iterator[str]:
    """Run a study with hostile values and names, and write its report."""
    label = text(rng, rare=False) or "label"
    table(rng, Path("table.parquet"), label, "z")
    table_of = experiment(Path("table.parquet"), label)
    dataset = rng.choice(("good", text(rng, rare=False)))
    algorithms = [{"name": "fedavg"}, {"name": rng.choice(("fedprox", text(rng, rare=False))), "proximal": 0.1}]
    given = {
        "metric": "test_accuracy",
        "select_by": "test_accuracy",
        "seeds": [0],
        "datasets": {dataset: {"data.without": text(rng, rare=False)} if rng.random() < 0.3 else {}},
    }
    file, out = name(rng, ".toml"), name(rng, "")
    file.write_text(tomli_w.dumps({**table_of, "algorithm": algorithms, "study": given}), encoding="utf-8")
    status, shown = ran("raysim", "study", "--inline", f"--out={out}", "--", str(file))
    yield wrong(shown)
    if status:
        return
    status, shown = ran("raysim", "report", "--", str(out))
    yield wrong(shown) or _failed(status, shown) or page(out / "report.html")
    yield from (wrong(_bounded(out / each)) for each in ("table.md", "table.tex"))


def owners(rng: random.Random) -> Iterator[str]:
    """Run on clients, sites, domains and devices of hostile names, and inspect the population."""
    drawn = list(dict.fromkeys(text(rng, without="\ud800") for _ in range(4)))
    drawn += [f"other {number}" for number in range(4 - len(drawn))]
    numbers = np.random.default_rng(0).normal(size=40).astype(np.float32)
    columns = {"x": numbers, "owner": drawn * 10, "label": [0] * 20 + [1] * 20}
    pq.write_table(pa.table(columns), "table.parquet")
    devices = {"device": drawn, "share": [1.0] * 4, "compute": [100.0] * 4}
    pq.write_table(pa.table(devices), "devices.parquet")
    scheme, key = rng.choice((("natural", "column"), ("domains", "domain")))
    given: dict[str, object] = {
        **experiment(Path("table.parquet"), "label"),
        "partition": {"scheme": scheme, key: "owner", "site": "owner", "features": ["owner"], "local_test": 0.2},
        "devices": {"table": "devices.parquet"},
        "data": {"dataset": "file:table.parquet"},
        "evaluate": {"every": 1},
    }
    Path("exp.toml").write_text(tomli_w.dumps(given), encoding="utf-8")
    status, shown = ran("raysim", "run", "--inline", "--out=run", "exp.toml")
    yield wrong(shown) or _failed(status, shown)
    yield _log(Path("run")) or page(Path("run/report.html"))
    for command in (("inspect", "run/population"), ("plot", "--out=picture.svg", "run/population")):
        status, shown = ran("partitioning", *command)
        yield wrong(shown) or _failed(status, shown)
    yield parsed(Path("picture.svg").read_text(encoding="utf-8"))


def refusal(rng: random.Random) -> Iterator[str]:
    """Give a command a hostile argument, or an experiment with a hostile key or value."""
    drawn = text(rng, without=ARGUMENT)
    named = text(rng, most=80, without=FILE)
    Path("exp.toml").write_text(_disturbed(rng), encoding="utf-8")
    commands = (
        ("raysim", "run", "--inline", "exp.toml"),
        ("raysim", "run", "--inline", "--", drawn),
        ("raysim", "run", "--inline", "exp.toml", f"--set={drawn}"),
        ("raysim", "run", "exp.toml", f"--set=data.label={drawn}"),
        ("raysim", "run", "exp.toml", "--inline", f"--set=algorithm.name={drawn}"),
        ("raysim", "run", "exp.toml", "--inline", f"--set={drawn}=1"),
        ("raysim", "run", "exp.toml", "--inline", f"--out={named}"),
        ("raysim", "run", "exp.toml", f"--address={drawn}"),
        ("raysim", "run", f"--{drawn}"),
        ("raysim", drawn),
        ("raysim", "resume", "--", drawn),
        ("raysim", "report", "--", drawn),
        ("raysim", "report", f"--out={named}", "--", drawn),
        ("raysim", "study", "--", drawn),
        ("raysim", "study", "exp.toml", f"--set=study.{drawn}=1"),
        ("raysim", "reproduce", "--", drawn),
        ("raysim", "list", "algorithms", "--", drawn),
        ("raysim", "list", "models", "--", drawn),
        ("raysim", "list", "--", drawn),
        ("raysim", "export", "--", drawn, "x.parquet"),
        ("raysim", "export", f"--shift={drawn}", "shifted:digits", "x.parquet"),
        ("raysim", "follow", f"--address={drawn}", "--", drawn),
        ("raysim", "follow", "--address=http://127.0.0.1:1", "--", drawn),
        ("raysim", "submit", f"--address={drawn}", "exp.toml"),
        ("raysim", "submit", "--address=http://127.0.0.1:1", f"--stage={drawn}", "exp.toml"),
        ("partitioning", "make", "--out=p", "--clients=3", "--", drawn),
        ("partitioning", "make", "--out=p", "--clients=3", f"--label={drawn}", "table.parquet"),
        ("partitioning", "make", "--out=p", f"--clients={drawn}", "table.parquet"),
        ("partitioning", "make", "--out=p", "--clients=3", f"--scheme={drawn}", "table.parquet"),
        ("partitioning", "make", "--out=p", "--clients=3", f"--feature={drawn}", "table.parquet"),
        ("partitioning", "make", "--out=p", "--clients=3", f"--test={drawn}", "table.parquet"),
        ("partitioning", "inspect", "--", drawn),
        ("partitioning", "plot", "--out=x.svg", "--", drawn),
        ("partitioning", "plot", f"--out={named}", "--", "p"),
        ("partitioning", "verify", "--", drawn),
        ("partitioning", drawn),
    )
    table(rng, Path("table.parquet"), "label", "z")
    status, shown = ran(*rng.choice(commands))
    yield wrong(shown) or _failed(status, shown, (0, 1, 2))


def _disturbed(rng: random.Random) -> str:
    """An experiment with one hostile key, value or line."""
    whole = experiment(Path("table.parquet"), "label")
    drawn = text(rng, without="\ud800")
    place = rng.choice((whole, *(each for each in whole.values() if isinstance(each, dict)), whole["algorithm"][0]))  # type: ignore[index]
    if rng.random() < 0.1:
        return drawn
    place[rng.choice((drawn, *place))] = rng.choice((drawn, [drawn], {drawn: drawn}))
    return tomli_w.dumps(whole)


def name(rng: random.Random, ending: str, more: str = "") -> Path:
    """A new name in the working folder that a file system takes."""
    drawn = text(rng, rare=False, most=100, without=FILE)
    return Path(f"{drawn}{more}{ending}" if drawn.strip(". ") else f"x{more}{ending}")


def page(path: Path) -> str:
    """Say what is wrong with a page."""
    whole = path.read_text(encoding="utf-8")
    elements = Elements()
    elements.feed(whole)
    if elements.active:
        return f"{path}: active elements {elements.active[:5]}"
    pictures = re.findall(r"<svg(?! class).*?</svg>", whole, re.DOTALL)
    return wrong("\n".join(each[:LONGEST] for each in elements.texts)) or next(
        filter(None, (parsed(as_file(each)) for each in pictures)), ""
    )


def parsed(svg: str) -> str:
    """Say why a picture is no XML."""
    try:
        ET.fromstring(svg)
    except ET.ParseError as error:
        return f"no XML: {error}"
    return ""


def _bounded(path: Path) -> str:
    return "\n".join(line[:LONGEST] for line in path.read_text(encoding="utf-8").split("\n"))


def _log(out: Path) -> str:
    longest = max(map(len, (out / "run.log").read_text(encoding="utf-8").split("\n")))
    return wrong(_bounded(out / "run.log")) or (f"a line of {longest}" if longest > PAGE_LINE else "")


def _failed(status: int, shown: str, allowed: tuple[int, ...] = (0,)) -> str:
    return "" if status in allowed else f"status {status}: {shown[-400:]}"


ROOMS: dict[str, tuple[Callable[[random.Random], Iterator[str]], int]] = {
    "population": (population, 4),
    "run": (run, 3),
    "study": (study, 1),
    "owners": (owners, 0),
    "refusal": (refusal, 12),
}
"""Commands by what they concern, and how often they are drawn."""


def check(seed: int, room: str | None = None) -> tuple[str, str]:
    """Run the commands of a seed; return what they concern, and the first that is wrong."""
    rng = random.Random(seed)
    room = room or rng.choices(list(ROOMS), [weight for _, weight in ROOMS.values()])[0]
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        return room, next(filter(None, ROOMS[room][0](rng)), "")


def main() -> None:
    first, stop = map(int, sys.argv[1:3])
    only = sys.argv[3] if len(sys.argv) > 3 else None
    drawn, failed = Counter[str](), Counter[str]()
    for seed in range(first, stop):
        room, found = check(seed, only)
        drawn[room] += 1
        if found:
            failed[room] += 1
            click.echo(f"seed {seed}, {room}: {found!a:.700}")
    for room in sorted(drawn):
        click.echo(f"{room}: {drawn[room]} drawn, {failed[room]} failed")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
