"""The record `speed.json`: figures with commit and hardware, and the tables of the pages that show them.

uv run python -m tests.benchmarks.record        # writes the tables of `PAGES`
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from raysim.reproduction.provenance import processor
from tests.benchmarks.peers.loads import LOADS
from tests.benchmarks.rounds import RAYSIM, WALL

RECORD = Path(__file__).with_name("speed.json")
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (
    ROOT / "README.md",
    DOCS / "benchmarks.md",
    DOCS / "explanation" / "speed.md",
    DOCS / "explanation" / "scale.md",
)
IDEAL = "two plain loops"
MEMORY = "memory "
"""Beginning of the entries with the memory that a load takes."""

Record = Mapping[str, Any]
"""Figures, repeats, commit and hardware by load."""

MARKED = re.compile(r"(<!-- from speed\.json: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
"""Part of a page that the record fills."""

ROUNDS = {
    "A": "A: 100 clients x 600 samples, 10 a round",
    "B": "B: 1,000 x 20, 100 a round",
    "C": "C: 1,000 x 50, 50 a round",
    "K": "K: 100 x 20 texts, 20 a round",
    "L": "L: as K",
    "M": "M: 100 x 20 texts, 4 a round",
    "N": "N: as M",
    "O": "O: 100 x 64, 10 a round",
    "P": "P: 100 x 640, 10 a round",
    "Q": "Q: 100 x 60, 10 a round",
}
IMAGES, TEXTS, NETWORKS = ("A", "B", "C"), ("K", "L", "M", "N"), ("O", "P", "Q")
MODELS = {
    "A": "`mlp` 784-200-200-10",
    "B": "the same",
    "C": "`cnn_dropout` on 3x32x32",
    "K": "GPT-2, 0.12 million",
    "L": "its adapters",
    "M": "GPT-2, 10.8 million",
    "N": "its adapters",
    "O": "FedBN's `digit_cnn`",
    "P": "`lenet`",
    "Q": "`resnet20`, batch norm",
}
"""Model of each load."""

JOBS = {"D": "D: logistic regression", "I": "I: MNIST, evaluated in every round", "J": "J: the quickstart"}
"""Loads that are whole commands."""

ROWS = {
    "plain loop": "a plain PyTorch loop, 1 process",
    IDEAL: "two plain loops at once: the ideal",
    WALL: "**raysim, 2 actors**",
    RAYSIM: "**raysim, 2 actors**, stages of a round",
    "FedJAX": "FedJAX 0.0.17, 1 process",
    "pfl, 1 process": "pfl-research 0.6, 1 process",
    "pfl, 2 processes": "pfl-research 0.6, 2 processes",
    "BlazeFL 3, 2 threads": "BlazeFL 3.0, 2 threads",
    "fluke": "fluke 0.8, 1 process",
    "Flower, 2 workers": "Flower 1.41, 2 workers",
}
LEFT_OUT = ("plain loop", IDEAL, "pfl, 1 process")
SHORT = tuple(title for title in ROWS if title not in LEFT_OUT)
"""Rows of README's table; raysim's stages only while a load has no wall clock."""

LOGGED = f"{RAYSIM}, by the clock"
"""Row of older records in place of `WALL`: mean of a round by the whole seconds of `run.log`."""


def load_record() -> dict[str, Any]:
    """Return the record; empty if there is none."""
    return dict(json.loads(RECORD.read_text(encoding="utf-8"))) if RECORD.exists() else {}


def save(name: str, figures: Mapping[str, float], repeats: int) -> None:
    """Keep a load's figures."""
    keep(name, {"figures": {title: round(value, 4) for title, value in figures.items()}, "repeats": repeats})


def keep(name: str, entry: Mapping[str, Any]) -> None:
    """Keep an entry with the commit and the hardware that it is from."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    cores = f"{os.cpu_count()} cores, {platform.machine()}"
    origin = {
        "commit": commit.stdout.strip(),
        "hardware": f"{cores}, {processor()}, {torch.backends.cpu.get_cpu_capability()}",
        "torch": version("torch"),
        "ray": version("ray"),
    }
    record = {**load_record(), name: {**entry, **origin}}
    RECORD.write_text(json.dumps(dict(sorted(record.items())), indent=2) + "\n", encoding="utf-8")


def rounds_table(record: Record, rows: Sequence[str] = tuple(ROWS), loads: Sequence[str] = IMAGES) -> str:
    """Return seconds a round, and the ratio to two plain loops."""
    lines = [f"| | {' | '.join(ROUNDS[load] for load in loads)} |", f"|---|{'---|' * len(loads)}"]
    models = (f"{MODELS[load]}, batch {LOADS[load].batch}" for load in loads)
    lines.append(f"| model, one epoch | {' | '.join(models)} |")
    measured = {title for load in loads for title in record.get(load, {}).get("figures", {})}
    for title in filter(measured.__contains__, rows):
        lines.append(f"| {ROWS[title]} | {' | '.join(_cell(record.get(load, {}), title) for load in loads)} |")
    return "\n".join([*lines, "", _origin(record, loads), *_stages_note(record, loads)])


def readme_table(record: Record) -> str:
    """Return the rows of `rounds_table` that compare simulators, on loads whose record has a figure of raysim."""
    measured = [load for load in (*IMAGES, "K") if RAYSIM in record.get(load, {}).get("figures", {})]
    timed = all(WALL in record[load]["figures"] for load in measured)
    return rounds_table(record, [title for title in SHORT if title != RAYSIM or not timed], measured)


COMMANDS = {
    "D": ("D", "raysim run"),
    "I": ("I", "raysim run"),
    "J": ("J", "quickstart"),
    "J, `--inline`": ("J", "quickstart --inline"),
    "J, no bytecode": ("J", "quickstart, no bytecode"),
    "J, `--inline`, no bytecode": ("J", "quickstart --inline, no bytecode"),
}
"""Load and figure of each whole command that the record has."""

ALONE = "seconds a round"
"""Row of an older record of G: rounds of one process."""

ALONE_NOTE = (
    "The rounds of G, an older record, were timed in one process, without files, checkpoints and evaluation. "
    "The driver needed 824 MiB before them and no more during them."
)

STAGES = ("start", "data", "fleet", "training", "evaluation", "files", "end", "report")
LEAST_SECONDS = 0.1
"""Shortest stage of a command that a table shows."""


def jobs_table(record: Record) -> str:
    """Return the seconds of whole commands and of plain loops."""
    lines = ["| seconds per command | a plain PyTorch loop | raysim |", "|---|---:|---:|"]
    for load in ("D", "I", "J"):
        figures = record[load]["figures"]
        loop = _short(figures["plain loop"]) if "plain loop" in figures else "–"
        lines.append(f"| {JOBS[load]} | {loop} | {_short(figures[COMMANDS[load][1]])} |")
    return "\n".join([*lines, "", _origin(record, list(JOBS))])


def stages_table(record: Record) -> str:
    """Return the seconds of each stage of whole commands."""
    lines = [f"| seconds | {' | '.join(COMMANDS)} |", f"|---|{'---:|' * len(COMMANDS)}"]
    for stage in STAGES:
        seconds = [record[load]["figures"][f"{key}: {stage}"] for load, key in COMMANDS.values()]
        cells = (_short(value) if value >= LEAST_SECONDS else "–" for value in seconds)
        lines.append(f"| {stage} | {' | '.join(cells)} |")
    wholes = (_short(record[load]["figures"][key]) for load, key in COMMANDS.values())
    lines.append(f"| the whole command | {' | '.join(wholes)} |")
    return "\n".join([*lines, "", _origin(record, list(JOBS))])


def empty_table(record: Record) -> str:
    """Return seconds per round of client updates without a step."""
    figures = record["E"]["figures"]
    ways = [title for title in ROWS if title in figures]
    lines = [f"| seconds per round | {' | '.join(ROWS[title] for title in ways)} |", f"|---|{'---:|' * len(ways)}"]
    lines.append(f"| 1,000 empty client updates | {' | '.join(_short(figures[title]) for title in ways)} |")
    return "\n".join([*lines, "", _origin(record, ["E"]), *_stages_note(record, ["E"])])


def redistribution_table(record: Record) -> str:
    """Return seconds per round that adds models up, and that redistributes each of them."""
    lines = [
        "| model | adds models up, s | redistributes models, s | difference per model, ms |",
        "|---|---:|---:|---:|",
    ]
    for model in ("mlp", "cnn"):
        titles = ("summed, seconds a round", "redistributed, seconds a round", "ms a model more")
        cells = (_short(record["H"]["figures"][f"{model}, {title}"]) for title in titles)
        lines.append(f"| `{model}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", _origin(record, ["H"])])


def scale_table(record: Record) -> str:
    """Return the seconds to open large populations and to run their rounds."""
    figures = record["F"]["figures"]
    titles = ("load", "clients", "clients per round", "seconds to open the population", "seconds per round")
    lines = [f"| {' | '.join(titles)} |", "|---|---:|---:|---:|---:|"]
    for size in dict.fromkeys(title.partition(" clients")[0] for title in figures):
        opened, taken = (_short(figures[f"{size} clients, seconds {what}"]) for what in ("to open", "a round"))
        lines.append(f"| F | {size} | 100 | {opened} | {taken} |")
    large = record["G"]["figures"]
    taken = _short(large.get(RAYSIM) or large[ALONE])
    lines.append(f"| G | {LOADS['G'].clients:,} | {LOADS['G'].cohort:,} | – | {taken} |")
    note = ["", ALONE_NOTE] if RAYSIM not in large else []
    return "\n".join([*lines, "", _origin(record, ["F", "G"]), *note])


def texts_table(record: Record) -> str:
    """Return seconds a round of language models."""
    return rounds_table(record, loads=TEXTS)


def networks_table(record: Record) -> str:
    """Return seconds a round of the papers' networks."""
    return rounds_table(record, loads=NETWORKS)


def memory_table(record: Record) -> str:
    """Return the memory of all processes of each way, and in brackets of the main process and the largest other one."""
    loads = [name for name in record if name.startswith(MEMORY)]
    figures = {name.removeprefix(MEMORY): record[name]["figures"] for name in loads}
    lines = [f"| MiB | {' | '.join(figures)} |", f"|---|{'---:|' * len(figures)}"]
    for title in (title for title in ROWS if any(title in found for found in figures.values())):
        cells = [_memory(found[title]) if title in found else "–" for found in figures.values()]
        lines.append(f"| {ROWS[WALL if title == RAYSIM else title]} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", _origin(record, loads)])


TABLES: Mapping[str, Callable[[Record], str]] = {
    "rounds": rounds_table,
    "readme": readme_table,
    "texts": texts_table,
    "networks": networks_table,
    "jobs": jobs_table,
    "stages": stages_table,
    "empty": empty_table,
    "redistribution": redistribution_table,
    "scale": scale_table,
    "memory": memory_table,
}
"""Tables by the name that marks them."""


def filled(page: str, record: Record) -> str:
    """Return a page's text with the tables of the record."""
    return MARKED.sub(lambda mark: f"{mark[1]}{TABLES[mark[2]](record)}\n{mark[4]}", page)


def _cell(entry: Mapping[str, Any], title: str) -> str:
    figures = entry.get("figures", {})
    if title not in figures:
        return "–"
    return f"{figures[title]:.3f} ({figures[title] / figures[IDEAL]:.2f})"


def _stages_note(record: Record, loads: Sequence[str]) -> list[str]:
    """Return a sentence on loads without the wall clock of a round; none if all have it."""
    figures = {load: record.get(load, {}).get("figures", {}) for load in loads}
    stages = [load for load, found in figures.items() if RAYSIM in found and WALL not in found]
    if not stages:
        return []
    text = f"On {', '.join(stages)}, raysim's row adds up the stages of a round, such as training and aggregation. "
    text += "It leaves out the driver's other work, even if the actors wait for it."
    logged = [load for load in stages if LOGGED in figures[load]]
    ratios = ", ".join(f"{load} {figures[load][LOGGED] / figures[load][IDEAL]:.2f}" for load in logged)
    if logged:
        text += f" By the whole seconds of `run.log`, which are rough for short rounds, the ratios are about {ratios}."
    return ["", text]


def _memory(found: Mapping[str, float]) -> str:
    main, largest, total = (f"{found[part]:,.0f}" for part in ("main", "largest", "total"))
    return total if total == main else f"{total} ({main}, {largest})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _origin(record: Record, loads: Sequence[str]) -> str:
    """Return the commits, repeats and processors behind a table."""
    groups: dict[tuple[str, int, str], list[str]] = {}
    for load in (load for load in loads if load in record):
        entry = record[load]
        *_, cpu = entry["hardware"].split(", ", 2)
        groups.setdefault((entry["commit"], entry["repeats"], cpu), []).append(load)
    shown = {key: ", ".join(names).replace(MEMORY, "") for key, names in groups.items()}
    parts = [f"{names} at commit {commit}, {n} run{'s' * (n > 1)}, {cpu}" for (commit, n, cpu), names in shown.items()]
    return f"Medians: {'; '.join(parts)}."


def main() -> None:
    """Write the tables of the pages."""
    record = load_record()
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), record), encoding="utf-8")


if __name__ == "__main__":
    main()
