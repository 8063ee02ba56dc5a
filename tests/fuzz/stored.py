"""Damage to the stored files of a run, drawn by seeds: stopped runs are resumed, others go on while it happens.

A case ends with the bytes of the undisturbed run, or is refused in one line.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import click
import pyarrow.parquet as pq

from raysim.common.errors import DamagedError, InputError, StoppedError
from raysim.simulation.api import resume_experiment
from raysim.simulation.options import RunOptions
from raysim.simulation.stop import Stop
from raysim.store.location import RunLocation
from raysim.store.resume import run_of
from raysim.store.summary import read_summary
from raysim.watching.progress import Watcher
from tests.kit.runs import quick_run

MIDDLES = ("fedbn", "fedmmb", "radfed", "fedasync")
"""Algorithms in progress at the damage: with personal state, travelling models, updates under way."""

ROUNDS = 9

PAGE = 4096

IN_PROGRESS = 0.7
"""Share of the damages to files of the algorithm in progress."""


End = Literal["same", "refused"]


def experiment(middle: str) -> dict[str, Any]:
    """A run of three algorithms, of which the second is in progress at the damage."""
    own = {"radfed": {"aggregate_every": 2}, "fedasync": {"max_staleness": 3}}
    tables = [{"name": "singleset"}, {"name": middle, **own.get(middle, {})}, {"name": "fedavg"}]
    return {
        "seed": 3,
        "rounds": ROUNDS,
        "data": {"dataset": "digits", "test": 0.8},
        "partition": {"scheme": "iid", "clients": 6, "local_test": 0.2},
        "model": {"hidden": [6], "norm": "batch"},
        "local": {"batch_size": 20},
        "algorithm": [{"cohort": 3, **table} for table in tables],
        "fleet": {"block": 2},
        "evaluate": {"every": 4, "metrics": ["accuracy"]},
    }


class Meddler(Watcher):
    """Does something after a round of an algorithm, once."""

    def __init__(self, name: str, number: int, act: Callable[[Meddler], object]) -> None:
        self.stop, self.notices = Stop(), list[str]()
        self._name, self._number, self._act, self._now, self._done = name, number, act, "", False

    def begin(self, name: str, rounds: int, cohort: int, done: int = 0) -> None:
        self._now = name

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def round(self, number: int, metrics: dict[str, float]) -> None:
        if (self._now, number) == (self._name, self._number) and not self._done:
            self._done = True
            self._act(self)


def ask(meddler: Meddler) -> None:
    """Have the run stop after its round."""
    meddler.stop.asked = True


def go_on(folder: Path, watcher: Watcher) -> None:
    """Resume a run in this process, without its report."""
    folder, only = run_of(folder)
    options = RunOptions(inline=True, watcher=watcher)
    resume_experiment(RunLocation(folder, str(folder)), options, only)


def flip(path: Path, draw: random.Random, folder: Path) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 2, 8))):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    overwrite(path, content)


def cut(path: Path, draw: random.Random, folder: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(draw.randrange(path.stat().st_size))


def extend(path: Path, draw: random.Random, folder: Path) -> None:
    with path.open("ab") as file:
        file.write(draw.randbytes(draw.randint(1, PAGE)))


def zero(path: Path, draw: random.Random, folder: Path) -> None:
    content = bytearray(path.read_bytes())
    start = draw.randrange(len(content)) // PAGE * PAGE
    content[start : start + PAGE] = bytes(len(content[start : start + PAGE]))
    overwrite(path, content)


def swap_records(path: Path, draw: random.Random, folder: Path) -> None:
    """Exchange two stretches of equal length."""
    content = bytearray(path.read_bytes())
    length = max(1, len(content) // draw.randint(2, 12))
    one, other = 0, length * draw.randint(1, len(content) // length - 1) if len(content) >= 2 * length else 0
    content[one : one + length], content[other : other + length] = (
        content[other : other + length],
        content[one : one + length],
    )
    overwrite(path, content)


def swap_files(path: Path, draw: random.Random, folder: Path) -> None:
    """Exchange a file and another one, preferably of its kind."""
    others = [each for each in files(folder) if each != path]
    alike = [each for each in others if each.suffix == path.suffix]
    other = draw.choice(alike or others)
    one, two = path.read_bytes(), other.read_bytes()
    overwrite(path, two)
    overwrite(other, one)


def remove(path: Path, draw: random.Random, folder: Path) -> None:
    path.unlink()


def overwrite(path: Path, content: bytes) -> None:
    """Change a file in place, so that a process that has opened it sees the change."""
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()


DAMAGES = (flip, flip, flip, cut, extend, zero, swap_records, swap_files, remove)


def files(folder: Path) -> list[Path]:
    """All files of a run that something may be read from."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]
    return [path for path in found if path.name not in ("run.log", "report.html") and "partial" not in path.name]


def damage(folder: Path, middle: str, draw: random.Random) -> str:
    """Damage one or two files of a run, most often of the algorithm in progress; return what was done."""
    done = []
    for _ in range(draw.choice((1, 1, 1, 2))):
        # Each kind of file has the same chance, however many there are of it.
        kinds: dict[str, list[Path]] = {}
        for path in files(folder / middle if draw.random() < IN_PROGRESS else folder) or files(folder):
            kinds.setdefault(path.suffix + path.parent.name, []).append(path)
        path, act = draw.choice(kinds[draw.choice(sorted(kinds))]), draw.choice(DAMAGES)
        act(path, draw, folder)
        done.append(f"{act.__name__} {path.relative_to(folder)}")
    return ", ".join(done)


@dataclass(frozen=True)
class Outcome:
    """End of a case: what was damaged, whether its bytes are the same or it was refused, or what is wrong."""

    what: str
    end: str
    said: str = ""
    wrong: str = ""


class Stores:
    """Undisturbed and stopped runs of each middle algorithm, and the cases on copies of them.

    Args:
        home: empty folder.
    """

    def __init__(self, home: Path, middles: tuple[str, ...] = MIDDLES) -> None:
        self._home, self._middles = home, middles
        self._whole: dict[str, Mapping[str, Any]] = {}
        for middle in middles:
            quick_run(experiment(middle), home / f"whole-{middle}", inline=True)
            self._whole[middle] = left(home / f"whole-{middle}")
            meddler = Meddler(middle, 5, ask)
            try:
                quick_run(experiment(middle), home / middle, inline=True, watcher=meddler, stop=meddler.stop)
            except StoppedError:
                continue
            raise AssertionError(f"{middle} was not stopped")

    def stopped(self, seed: int) -> Outcome:
        """Damage a stopped run and resume it."""
        draw = random.Random(f"stopped {seed}")
        middle, folder = draw.choice(self._middles), self._home / "run"
        shutil.copytree(self._home / middle, folder)
        try:
            what = f"{middle}: {damage(folder, middle, draw)}"
            return replace(self._ending(middle, folder, lambda: go_on(folder, Watcher())), what=what)
        finally:
            shutil.rmtree(folder)

    def going_on(self, seed: int) -> Outcome:
        """Damage a run while it goes on; if it fails, resume it."""
        draw = random.Random(f"going on {seed}")
        middle, folder, done = draw.choice(self._middles), self._home / "run", list[str]()
        shutil.copytree(self._home / middle, folder)
        meddler = Meddler(middle, draw.randint(7, ROUNDS), lambda _: done.append(damage(folder, middle, draw)))
        try:
            outcome = self._ending(middle, folder, lambda: go_on(folder, meddler))
            # The run has ended with an algorithm that it does not look at again: one that had no summary is made anew.
            if outcome.end == "failed" or (outcome.end == "same" and self._lacks(middle, folder)):
                outcome = self._ending(middle, folder, lambda: go_on(folder, Watcher()))
            return replace(outcome, what=f"{middle}, going on: {done}")
        finally:
            shutil.rmtree(folder)

    def _lacks(self, middle: str, folder: Path) -> bool:
        """Return whether an algorithm of a finished run has no summary."""
        names = [name.removesuffix(" summary") for name in self._whole[middle] if name.endswith(" summary")]
        return not all((folder / name / "summary.json").exists() for name in names)

    def _ending(self, middle: str, folder: Path, act: Callable[[], object]) -> Outcome:
        try:
            act()
        except InputError as error:
            return Outcome("", "refused", str(error), "several lines" if "\n" in str(error) else "")
        except DamagedError as error:
            return Outcome("", "failed", str(error), "several lines" if "\n" in str(error) else "")
        except Exception as error:
            return Outcome("", "crashed", repr(error), f"{type(error).__name__} is no line for a person")
        try:
            ours = left(folder)
        except InputError as error:  # the seal of a finished algorithm tells of the damage
            return Outcome("", "refused", str(error))
        wrong = [name for name, value in self._whole[middle].items() if ours.get(name) != value]
        return Outcome("", "same", "", f"{', '.join(wrong)} differ" if wrong else "")


def left(folder: Path) -> dict[str, Any]:
    """Everything that a finished run leaves and that must not depend on what happened to it."""
    whole: dict[str, Any] = {}
    for path in sorted(folder.glob("*/summary.json")):
        summary = read_summary(path)
        own = path.parent
        whole[f"{own.name} summary"] = {key: value for key, value in summary.items() if "seconds" not in key}
        for name in ("model.safetensors", "personal.safetensors"):
            whole[f"{own.name} {name}"] = (own / name).read_bytes() if (own / name).exists() else None
        for name in ("metrics", "updates"):
            table = pq.read_table(own / f"{name}.parquet")
            timeless = [column for column in table.column_names if not column.startswith(("seconds", "machine_"))]
            # Compared as text, for an undefined number is equal to no other.
            whole[f"{own.name} {name}"] = repr(table.select(timeless).to_pydict())
    return whole


def main(first: int, last: int) -> None:
    """Print the counts of the cases from one seed to another, and each wrong case."""
    counts: Counter[str] = Counter()
    with TemporaryDirectory() as home:
        stores = Stores(Path(home))
        for seed in range(first, last):
            for kind, case in (("stopped", stores.stopped), ("going on", stores.going_on)):
                outcome = case(seed)
                counts[f"{kind}: {'WRONG' if outcome.wrong else outcome.end}"] += 1
                if outcome.wrong:
                    click.echo(f"{seed}, {kind}: {outcome}")
    click.echo(dict(counts))
    sys.exit(any("WRONG" in name for name in counts))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
