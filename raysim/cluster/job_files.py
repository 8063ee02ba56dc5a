"""Files that go with a job: the experiment's file, the user's own modules, and small data files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from raysim.cluster.head import UNWANTED
from raysim.common.errors import InputError
from raysim.config.data import OWN_FILES
from raysim.config.experiment import Experiment
from raysim.fleet.ray_private import sent_limit, sent_sizes
from raysim.models.keys import WEIGHTS_SUFFIX

MAX_DATA = 64 * 2**20  # bytes of data that may go with a job: all of it passes through the memory of the head
NAMED_ENTRIES = 3  # largest entries that the message about a large folder names

JobFiles = tuple[Path, str, tuple[str, ...]]
"""Working folder of a job, the experiment's name there, and a `key.path=value` for each file that has moved."""

Moves = Iterator[tuple[str, str, list[tuple[Path, str]]]]
"""Keys that name files of this machine, their values in the job, and the files with their places there."""


def checked_folder(folder: Path, config: str) -> JobFiles:
    """Return a user's folder as the files of a job.

    Raises:
        InputError: the folder is missing or too large, or the experiment's file is not in it.
    """
    option = f"--working-dir = {str(folder)!r}"
    if not folder.is_dir():
        raise InputError(f"{option}: must be a folder that exists; check the path")
    sizes, limit = sent_sizes(folder, UNWANTED), sent_limit()
    if (size := sum(sizes.values())) >= limit:
        largest = ", ".join(f"{name} ({_mib(each)})" for name, each in sizes.most_common(NAMED_ENTRIES))
        raise InputError(
            f"{option} has {_mib(size)}: must be below Ray's limit of {_mib(limit)}; the largest entries are "
            f"{largest}; list files that the job does not need in {folder / '.rayignore'}"
        )
    if not Path(config).is_file():
        return folder, config, ()
    file = Path(config).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise InputError(f"{config}: must be in {option}, the only folder that the job sees; move it there")
    return folder, str(file.relative_to(folder.resolve())), ()


@contextmanager
def staged(config: str, experiment: Experiment) -> Iterator[JobFiles]:
    """Make a folder with the files that the experiment needs, for the duration of the context.

    Raises:
        InputError: a file is missing here, or the files are too large.
    """
    with TemporaryDirectory(prefix="raysim-") as name:
        folder, file, room = Path(name), Path(config), MAX_DATA
        if file.is_file():
            shutil.copyfile(file, folder / file.name)
        for module in experiment.own_code:
            code = Path(next(iter(getattr(module, "__path__", ())), module.__file__ or ""))
            _copy(code, folder / code.name)
        changes = []
        for key, value, files in (*_own_data(experiment), *_own_files(experiment)):
            for path, place in files:
                size = path.stat().st_size if path.is_file() else sum(sent_sizes(path, UNWANTED).values())
                if size > room:
                    raise InputError(
                        f"{key} = {str(path)!r} has {_mib(size)}: must be at most {_mib(room)} to be sent with a job; "
                        "put it on storage that the cluster sees and name its path there, or send it by --working-dir"
                    )
                room -= size
                _copy(path, folder / place)
            changes.append(f"{key}={value}")
        yield folder, file.name if file.is_file() else config, tuple(changes)


def _own_data(experiment: Experiment) -> Moves:
    """Yield the user's own files of data; a relative path stays, and so does a name, which may be a domain's."""
    data = experiment.data
    for part, name in (("dataset", data.dataset), ("test", data.test)):
        if not isinstance(name, str) or not (form := OWN_FILES.match(name)):
            continue
        named = [each.strip() for each in name[form.end() :].split(",")]
        paths = [Path(data.root or "", Path(each).expanduser()) for each in named]
        if all(path.is_absolute() and not path.exists() for path in map(Path, named)):
            continue  # the cluster has them
        if missing := [path for path in paths if not path.exists()]:
            raise InputError(f"data.{part} = {name!r}: {missing[0]} must exist here to be sent; check the path")
        away = [Path(each).is_absolute() or ".." in Path(each).parts or each.startswith("~") for each in named]
        places = [f"{part}/{Path(each).name}" if far else each for each, far in zip(named, away, strict=True)]
        yield f"data.{part}", form[0] + ",".join(places), list(zip(paths, places, strict=True))
        yield "data.root", ".", []


def _own_files(experiment: Experiment) -> Moves:
    """Yield the other files and folders of the experiment that exist here."""
    data, model = experiment.data, experiment.model
    for key, what in (("weights", "file of weights"), ("pretrained", "trained model")):
        others = {str(getattr(table.model, key, None) or "") for table in experiment.algorithm}
        for other in sorted(others - {str(getattr(model, key, None))}):
            if other.endswith(WEIGHTS_SUFFIX) or (other and Path(other).is_dir()):
                raise InputError(
                    f"algorithm.model.{key} = {other!r}: must be left out of a job, which takes one {what}; set "
                    f"model.{key}"
                )
    tokenizer = data.text and data.text.tokenizer
    weights = model.weights if str(model.weights).endswith(WEIGHTS_SUFFIX) else None
    for key, name, place in (
        ("data.population", data.population, "population"),
        ("devices.table", experiment.devices and experiment.devices.table, "devices.parquet"),
        ("data.text.tokenizer", tokenizer, "tokenizer" if Path(tokenizer or "").is_dir() else "tokenizer.json"),
        ("model.weights", weights, f"weights{WEIGHTS_SUFFIX}"),
        ("model.pretrained", getattr(model, "pretrained", None), "pretrained"),
    ):
        if name and Path(name).exists():
            yield key, f"./{place}", [(Path(name), place)]


def _copy(path: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, place, ignore=shutil.ignore_patterns(*UNWANTED))
    else:
        shutil.copyfile(path, place)


def _mib(size: float) -> str:
    return f"{size / 2**20:,.1f} MiB"
