"""Commands, drawn each from its number: an experiment, a study or a table, options, and where they go wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from partitioning import SCHEMES
from partitioning.schemes.registry import parameters
from tests.fuzz.inputs.configurations import NUMBERS, OWN, PATHS, case, mutated, pick, valid

TEXTS = [
    *(
        "",
        " ",
        "é",
        "\udcff\udcfe",
        "\x1b[31m",
        "a\nb",
        "-",
        "--",
        "-x",
        "=",
        "..",
        "~",
        "$HOME",
        "%s",
        "x" * 5000,
        "𝕏",
    ),
    *("no/such/folder/x", "/dev/null/x", "/proc/x", "/nowhere/x", "TEXT/x", "FOLDER", "PIPE", "SOCKET", "LOOP/x"),
    *PATHS,
]
"""Words of a command line; none has a zero byte, which the system refuses."""

MAKE = ["clients", "label", "test", "test-clients", "validation-clients", "folds", "local-test", "site", "feature"]
MAKE += ["buckets", "seed", "memory", "scheme"]


KNOWN = {"run", "study", "resume", "report", "export", "list", "reproduce", "make", "inspect", "plot", "verify"}


@dataclass(frozen=True)
class Command:
    """A command line.

    Args:
        program: `raysim` or `partitioning`.
        arguments: its arguments.
    """

    program: str
    arguments: list[str]

    @property
    def kind(self) -> str:
        """Name of the command; one name for all that there are not."""
        return f"{self.program} {self.arguments[0] if self.arguments[0] in KNOWN else 'another word'}"


def command(number: int, home: Path, root: Path, write: bool = True) -> Command:
    """The command of a number.

    Args:
        number: keys every draw.
        home: folder of its files, where it runs.
        root: folder of the sound table, population and run.
        write: whether to write its files.
    """
    rng = np.random.default_rng([21, number])
    kind = pick(rng, [*14 * ["run"], *3 * ["study"], *3 * ["make"], "report", "export", "look", "plot"])
    if kind == "run":
        return _run(rng, number, home, root, write)
    if kind == "study":
        return _study(rng, home, root, write)
    made = {"make": _make, "report": _report, "export": _export, "look": _look, "plot": _plot}[kind](rng, root)
    return made


def _word(rng: np.random.Generator) -> str:
    return str(pick(rng, TEXTS)) if rng.random() < 0.6 else _number(rng)


def _number(rng: np.random.Generator) -> str:
    return str(pick(rng, [*NUMBERS, "9" * 5000, "1e400", "0x10", "1_000", "٣", "+1", "1.", "nan"]))


def _options(rng: np.random.Generator, names: list[str], most: int = 2) -> list[str]:
    """Some options with odd values."""
    words = []
    for _ in range(int(rng.integers(0, most + 1))):
        words += [f"--{pick(rng, names)}", _word(rng)]
    return words


def _run(rng: np.random.Generator, number: int, home: Path, root: Path, write: bool) -> Command:
    drawn, file = case(number, root / "table.parquet"), home / "experiment.toml"
    if write:
        file.write_bytes(drawn.text)
    words = [word for change in drawn.changes for word in ("--set", change)]
    if rng.random() < 0.1:
        words += ["--set", pick(rng, [*TEXTS, f"local.lr={_number(rng)}", f"{_word(rng)}={_word(rng)}"])]
    out = ["--out", _word(rng)] if rng.random() < 0.05 else ["--out", str(home / "run")]
    source = _word(rng) if rng.random() < 0.02 else str(file)
    actors = ["--actors", _number(rng)] if rng.random() < 0.02 else []
    return Command("raysim", ["run", source, "--inline", *out, *words, *actors])


def _study(rng: np.random.Generator, home: Path, root: Path, write: bool) -> Command:
    raw = valid(rng, root / "table.parquet")
    raw["rounds"] = 1
    raw["partition"]["validation_clients"] = 1
    names = list(dict.fromkeys(table["name"] for table in raw["algorithm"]))
    raw["algorithm"] = [{"name": name} for name in names]
    study: dict[str, Any] = {"seeds": [0], "grid": {pick(rng, [*names, "*"]): {"local.lr": [0.1, 0.2]}}}
    raw["study"] = study
    for _ in range(int(rng.integers(0, 3))):
        _odd_study(rng, study)
    changes: list[str] = []
    if rng.random() < 0.4:
        mutated(rng, raw, changes)
    file = home / "study.toml"
    if write:
        file.write_bytes(tomli_w.dumps(raw).encode("utf-8", "surrogatepass"))
    words = [word for change in changes for word in ("--set", change)]
    out = _word(rng) if rng.random() < 0.05 else str(home / "study")
    return Command("raysim", ["study", str(file), "--inline", "--out", out, *words])


def _odd_study(rng: np.random.Generator, study: dict[str, Any]) -> None:
    """Give a key of `[study]`, or of a table in it, an odd value."""
    long = list(range(300))
    values = [
        *NUMBERS,
        *TEXTS,
        [],
        [1, 1],
        [0.5],
        long,
        {},
        {"x": []},
        [[]],
        True,
        ["fedavg"],
        {"fedavg": {"local.lr": long}},
    ]
    values += [
        {"*": {f"k{i}": long for i in range(5)}},
        {"a": {"rounds": 1}},
        {"../x": {}},
        {"a": {"data.dataset": "digits"}},
    ]
    keys = [
        "seeds",
        "folds",
        "validation",
        "metric",
        "select_by",
        "baseline",
        "tune",
        "grid",
        "inherit",
        "datasets",
        "x",
    ]
    key, value = pick(rng, keys), pick(rng, values)
    place = study
    if isinstance(study.get(key), dict) and rng.random() < 0.5:
        place, key = study[key], pick(rng, ["fedavg", "*", "seeds", "local.lr", "", "a.b"])
    place[key] = value


def _make(rng: np.random.Generator, root: Path) -> Command:
    scheme = str(pick(rng, list(SCHEMES)))
    words = {"clients": "4", "scheme": scheme}
    if scheme in ("natural", "domains", "counts"):
        del words["clients"]
    own = [name.replace("_", "-") for name in parameters(scheme)]
    for _ in range(int(rng.integers(0, 4))):
        lists = [json.dumps([0.1, 1e308]), "[1", "{}", '{"x": 1}', "[]", "[[1,2,3]]", "[" * 3000, "[1e999]"]
        words[pick(rng, [*own, *own, *MAKE])] = pick(rng, [_number(rng), _number(rng), _word(rng), pick(rng, lists)])
    flags = [flag for flag in ("--stratify", "--standardise", "--index-only") if rng.random() < 0.1]
    source = _word(rng) if rng.random() < 0.1 else str(root / "table.parquet")
    out = _word(rng) if rng.random() < 0.1 else "made"
    return Command("partitioning", ["make", source, "--out", out, *flags, *(f"--{k}={v}" for k, v in words.items())])


def _report(rng: np.random.Generator, root: Path) -> Command:
    folders = [pick(rng, [str(root / "run"), str(root / "run"), _word(rng)]) for _ in range(int(rng.integers(0, 3)))]
    out = ["--out", _word(rng) if rng.random() < 0.5 else "page.html"]
    return Command("raysim", [pick(rng, ["report", "report", "report", "resume"]), *folders, *out])


def _export(rng: np.random.Generator, root: Path) -> Command:
    table = f"file:{root / 'table.parquet'}"
    names = [*PATHS, "digits", "shifted:digits", table, table, f"shifted:{table}", _word(rng)]
    out = _word(rng) if rng.random() < 0.4 else "table.parquet"
    return Command("raysim", ["export", pick(rng, names), out, *_options(rng, ["root", "shift", "seed"])])


def _look(rng: np.random.Generator, root: Path) -> Command:
    kinds = ["algorithms", "models", "datasets", "recipes", "reproductions", _word(rng)]
    listed = ["list", pick(rng, kinds), *([_word(rng)] if rng.random() < 0.5 else [])]
    odd = Command("raysim", pick(rng, [listed, ["reproduce", pick(rng, [*OWN, _word(rng)]), "--inline"], [_word(rng)]]))
    folder = pick(rng, [str(root / "population"), str(root / "run"), _word(rng)])
    sites = _options(rng, ["site"])
    return odd if rng.random() < 0.5 else Command("partitioning", ["verify", folder, *sites])


def _plot(rng: np.random.Generator, root: Path) -> Command:
    folders = [pick(rng, [str(root / "population"), _word(rng)]) for _ in range(int(rng.integers(1, 3)))]
    kind = pick(rng, ["plot", "inspect"])
    out = ["--out", pick(rng, ["p.png", "p.svg", "p.csv", "FOLDER.png", _word(rng), f"{_word(rng)}.png"])]
    return Command("partitioning", [kind, *folders, *out, *(_options(rng, ["panel"]) if kind == "plot" else [])])
