"""Files that go with a job: the experiment's file, the user's own modules, and small data files."""

from __future__ import annotations

import math
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from raysim.cluster.head import UNWANTED
from raysim.common.errors import InputError
from raysim.config.data import OWN_FILES
from raysim.config.experiment import Experiment
from raysim.fleet.ray_private import CLIENT_LIMIT, EXCLUDES, PACKAGING, STORE_LIMIT, TRAVEL
from raysim.models.keys import WEIGHTS_SUFFIX

MAX_DATA = 64 * 2**20
"""Bytes of data that may go with a job: all of it passes through the memory of the head."""

ENTRY = 76
"""Bytes of a file's entry in Ray's zip archive, beside its content and twice its name."""

NAMED_ENTRIES = 3
"""Number of largest entries that the message about a large folder names."""

JobFiles = tuple[Path, str, tuple[str, ...]]
"""Working folder of a job, the experiment's name there, and a `key.path=value` for each file that has moved."""


def checked_folder(folder: Path, config: str) -> JobFiles:
    """Return a user's folder as the files of a job.

    Raises:
        InputError: the folder is missing or too large, or the experiment's file is not in it.
    """
    if not folder.is_dir():
        raise InputError(f"--working-dir = {str(folder)!r}: must be a folder that exists; check the path")
    _check_size(folder)
    if not Path(config).is_file():
        return folder, config, ()
    file = Path(config).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise InputError(
            f"{config}: must be in --working-dir = {str(folder)!r}, the only folder that the job sees; move it there"
        )
    return folder, str(file.relative_to(folder.resolve())), ()


def _check_size(folder: Path) -> None:
    sizes, limit = _sizes(folder), _limit()
    if (size := sum(sizes.values())) >= limit:
        largest = ", ".join(f"{name} ({_mib(each)})" for name, each in sizes.most_common(NAMED_ENTRIES))
        raise InputError(
            f"--working-dir = {str(folder)!r} has {_mib(size)}: must be below Ray's limit of {_mib(limit)}; the "
            f"largest entries are {largest}; list files that the job does not need in {folder / '.rayignore'}"
        )


@contextmanager
def staged(config: str, experiment: Experiment) -> Iterator[JobFiles]:
    """Make a folder with the files that the experiment needs, for the duration of the context.

    Raises:
        InputError: a file is missing here, or the files are too large.
    """
    with TemporaryDirectory(prefix="raysim-") as name:
        folder = Path(name)
        file = Path(config)
        if file.is_file():
            shutil.copyfile(file, folder / file.name)
        for module in experiment.own_code:
            _copy(Path(next(iter(getattr(module, "__path__", ())), module.__file__ or "")), folder)
        changes = tuple(_data(experiment, folder))
        yield folder, file.name if file.is_file() else config, changes


def _data(experiment: Experiment, folder: Path) -> Iterator[str]:
    """Copy the experiment's data files from here into the folder; yield a setting for each new path."""
    data, room = experiment.data, MAX_DATA
    if data.population is not None and (path := Path(data.population)).exists():
        room = _take("data.population", path, folder / "population", room)
        yield "data.population=population"
    for part, name in (("dataset", data.dataset), ("test", data.test)):
        if isinstance(name, str) and (form := OWN_FILES.match(name)):
            named = [each.strip() for each in name[form.end() :].split(",")]
            places = [_place(each, part) for each in named]
            paths = [Path(data.root or "", Path(each).expanduser()) for each in named]
            if all(path.is_absolute() and not path.exists() for path in map(Path, named)):
                continue  # the cluster has them
            for path, place in zip(paths, places, strict=True):
                if not path.exists():
                    raise InputError(f"data.{part} = {name!r}: {path} must exist here to be sent; check the path")
                (folder / place).parent.mkdir(parents=True, exist_ok=True)
                room = _take(f"data.{part}", path, folder / place, room)
            yield f"data.{part}={form[0]}{','.join(places)}"
            yield "data.root=."
    table = None if experiment.devices is None else experiment.devices.table
    if table is not None and Path(table).is_file():
        room = _take("devices.table", Path(table), folder / "devices.parquet", room)
        yield "devices.table=devices.parquet"
    if data.text is not None and (tokenizer := Path(data.text.tokenizer)).exists():
        place = "tokenizer" if tokenizer.is_dir() else "tokenizer.json"
        room = _take("data.text.tokenizer", tokenizer, folder / place, room)
        yield f"data.text.tokenizer=./{place}"
    yield from _weights(experiment, folder, room)


def _weights(experiment: Experiment, folder: Path, room: int) -> Iterator[str]:
    """Copy the experiment's file of weights and its pretrained folder; yield the settings of their new paths."""
    weights, pretrained = experiment.model.weights, getattr(experiment.model, "pretrained", "")
    for table in experiment.algorithm:
        if table.model and (other := table.model.weights or weights) != weights and str(other).endswith(WEIGHTS_SUFFIX):
            raise InputError(
                f"algorithm.model.weights = {other!r}: must be left out of a job, which takes one file of weights; "
                "set model.weights"
            )
    if weights is not None and weights.endswith(WEIGHTS_SUFFIX) and Path(weights).is_file():
        room = _take("model.weights", Path(weights), folder / f"weights{WEIGHTS_SUFFIX}", room)
        yield f"model.weights=weights{WEIGHTS_SUFFIX}"
    for table in experiment.algorithm:
        other = getattr(table.model, "pretrained", "")
        if other not in ("", pretrained) and Path(other).is_dir():
            raise InputError(
                f"algorithm.model.pretrained = {other!r}: must be left out of a job, which takes one trained model; "
                "set model.pretrained"
            )
    if pretrained and Path(pretrained).is_dir():
        _take("model.pretrained", Path(pretrained), folder / "pretrained", room)
        yield "model.pretrained=./pretrained"


def _place(named: str, part: str) -> str:
    """Return the path of a file in the folder: its own if it is relative; the name stays, because it names a domain."""
    path = Path(named)
    below = not path.is_absolute() and ".." not in path.parts and not named.startswith("~")
    return named if below else f"{part}/{path.name}"


def _take(key: str, path: Path, place: Path, room: int) -> int:
    """Copy a file or folder, and return the bytes that may still follow."""
    size = path.stat().st_size if path.is_file() else sum(_sizes(path).values())
    if size > room:
        raise InputError(
            f"{key} = {str(path)!r} has {_mib(size)}: must be at most {_mib(room)} to be sent with a job; put it on "
            "storage that the cluster sees and name its path there, or send it by --working-dir"
        )
    if path.is_file():
        shutil.copyfile(path, place)
    else:
        shutil.copytree(path, place)
    return room - size


def _copy(module: Path, folder: Path) -> None:
    if module.is_dir():
        shutil.copytree(module, folder / module.name, ignore=shutil.ignore_patterns(*UNWANTED))
    else:
        shutil.copyfile(module, folder / module.name)


def _sizes(folder: Path) -> Counter[str]:
    """Return the bytes that Ray would send of each entry of a folder."""
    sizes: Counter[str] = Counter()

    def count(path: Path) -> None:
        if path.is_file():
            place = path.relative_to(folder)
            sizes[place.parts[0]] += path.stat().st_size + ENTRY + 2 * len(os.fsencode(place))

    travel, excludes = TRAVEL.find(), EXCLUDES.find()
    if travel and excludes:
        heeds = os.environ.get("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "0") != "1"
        travel(folder, [excludes(folder, UNWANTED)], count, include_gitignore=heeds)
    else:
        for path in folder.rglob("*"):
            count(path)
    return sizes


def _limit() -> float:
    """Return the bytes that Ray's job server accepts for a folder; infinity if only Ray itself can count them."""
    found = [part.find() for part in PACKAGING]
    return math.inf if None in found else min(STORE_LIMIT.find(), CLIENT_LIMIT.find())


def _mib(size: float) -> str:
    return f"{size / 2**20:,.1f} MiB"
