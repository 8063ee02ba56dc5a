"""The harness of broken data: `python -m tests.fuzz populations FIRST STOP` runs the cases of these seeds.

A case copies a sound population, damages it as its seed says, opens, reads, verifies and trains on it. It holds where
each of these gives what the sound one gave, or refuses it in one line that names the file. Nothing else: no other
error, no other number, no end of the process, nothing that takes minutes.
"""

import json
import os
import re
import shutil
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

import partitioning
from partitioning import InputError
from tests.fuzz.populations import sound as populations
from tests.fuzz.populations.damage import HARMFUL, SEALED
from tests.fuzz.populations.sound import Sound
from tests.kit.runs import quick_resume

SECONDS = 120
"""What a case may take on a busy machine; a sound one takes one or two."""


class WrongError(AssertionError):
    """A case did not hold."""


@dataclass(frozen=True)
class Workplace:
    """The sound populations, and what they give.

    Args:
        root: a folder for all.
        sounds: the populations.
        expected: by name, what is read of each, and what a run on it comes to.
    """

    root: Path
    sounds: Sequence[Sound]
    expected: dict[str, tuple[str, str]]

    @classmethod
    def at(cls, root: Path) -> "Workplace":
        """Make them in a folder."""
        sounds = populations.make_all(root / "sound")
        expected = {}
        with cache(root / "cache"):
            for sound in sounds:
                trained = populations.run(sound.folder, sound.experiment, root / f"run-{sound.name}")
                expected[sound.name] = populations.read(sound.folder), trained
        return cls(root, sounds, expected)


@dataclass(frozen=True)
class Case:
    """What came of a seed: the kind of damage, what it did, and how it ended: "refused" or "unharmed"."""

    kind: str
    what: str
    end: str


@contextmanager
def cache(folder: Path) -> Iterator[None]:
    """Within, raysim keeps decoded images there."""
    before = os.environ.get("RAYSIM_CACHE")
    os.environ["RAYSIM_CACHE"] = str(folder)
    try:
        yield
    finally:
        del os.environ["RAYSIM_CACHE"]
        if before is not None:
            os.environ["RAYSIM_CACHE"] = before


def check(seed: int, place: Workplace) -> Case:
    """Do the case of a seed.

    Raises:
        WrongError: it does not hold.
    """
    rng = np.random.default_rng(seed)
    sound = place.sounds[int(rng.integers(len(place.sounds)))]
    kinds = {**HARMFUL, **SEALED}
    kind = list(kinds)[seed % len(kinds)]
    folder = place.root / f"case-{seed}"
    shutil.copytree(sound.folder, folder / "population")
    shutil.copytree(place.root / "cache", folder / "cache", dirs_exist_ok=True)
    broken = folder / "population"
    decoded = sorted((folder / "cache" / "decoded").glob("[!.]*"))
    if sound.name == "images" and kind in HARMFUL and rng.random() < 0.4:
        broken = decoded[0]
    elif rng.random() < 0.7:
        shutil.rmtree(folder / "cache" / "decoded")
    other = sound.other if broken.name == "population" else sound.folder
    what = f"{sound.name}: {kinds[kind](broken, other, rng)}{'' if broken.name == 'population' else ', in the cache'}"
    try:
        with _in_time(), cache(folder / "cache"), warnings.catch_warnings():
            warnings.simplefilter("error")
            ends = _ends(sound, folder, place.expected[sound.name], other_is_fine=kind in SEALED)
    except WrongError as error:
        raise WrongError(f"seed {seed}, {what}: {error}") from error.__cause__
    shutil.rmtree(folder)
    return Case(kind, what, "refused" if "refused" in ends else "unharmed")


def _ends(sound: Sound, folder: Path, expected: tuple[str, str], other_is_fine: bool) -> list[str]:
    path = folder / "population"
    read = _end("reading", folder, lambda: populations.read(path))
    verified = _end("verify", folder, lambda: "\n".join(partitioning.verify(path)))
    train = partial(populations.run, path, sound.experiment, folder / "run")
    trained = _end("training", folder, train, other_is_fine)
    if trained is None and (folder / "run").exists():
        _resumed(sound, folder, expected[1], other_is_fine)
    for name, found, wanted in zip(("reading", "training"), (read, trained), expected, strict=True):
        if found not in (None, wanted) and not other_is_fine:
            raise WrongError(f"{name} gave something else than before")
    if read is None and verified == "":
        raise WrongError("verify found nothing, and reading was refused")
    return ["unharmed" if end is not None else "refused" for end in (read, trained)]


def _resumed(sound: Sound, folder: Path, expected: str, is_other: bool) -> None:
    """Resume a run on the sound population, decoded anew; damage is found where it is first read, rounds are kept.

    A run that was begun on a sealed one, which has another digest, is refused there.
    """
    if not [path for path in (folder / "run").glob("*/*.journal") if path.stat().st_size]:
        raise WrongError("a run that was refused left a folder without a round")
    shutil.rmtree(folder / "population")
    shutil.copytree(sound.folder, folder / "population")
    shutil.rmtree(folder / "cache" / "decoded", ignore_errors=True)  # the damage may be there
    try:
        found = populations.digest_of(quick_resume(folder / "run", inline=True))
    except InputError as error:
        if is_other and "was begun with population = " in str(error):
            return
        raise WrongError(f"a run was not resumed on the sound population: {error}") from error
    if found != expected:
        raise WrongError("a run that was resumed on the sound population gave something else")


def _end(name: str, folder: Path, act: Callable[[], str], is_other: bool = False) -> str | None:
    """Return the result of an act; None where it was refused as it should be.

    Another population that is sound may not fit the experiment, whose key is then named in place of a file.
    """
    try:
        return act()
    except InputError as error:
        text = str(error)
        of_key = is_other and re.match(r"(\w+: )?[a-z]+\.[a-z_]+ ", text)
        if "\n" in text or not (of_key or str(folder) in text or ".parquet" in text or "client " in text):
            raise WrongError(f"{name} was refused by {text!r}, which is not one line that names a file") from error
        return None
    except Exception as error:
        raise WrongError(f"{name} ended with {type(error).__name__}: {error}") from error


@contextmanager
def _in_time() -> Iterator[None]:
    def late(*_: object) -> None:
        raise WrongError(f"it took more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def main(first: int, stop: int) -> int:
    """Do some cases; print how they ended, by kind, as JSON, and what did not hold on the error stream."""
    ended: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as root:
        place = Workplace.at(Path(root))
        for seed in range(first, stop):
            try:
                case = check(seed, place)
            except WrongError as error:
                print(error, file=sys.stderr, flush=True)  # noqa: T201  a command's output
                ended["wrong"] += 1
            else:
                ended[f"{case.kind}: {case.end}"] += 1
    print(json.dumps(ended))  # noqa: T201
    return int(ended["wrong"] > 0)
