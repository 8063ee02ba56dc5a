"""Files that go with a job: the experiment's file, the user's own modules, and small data files."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from raysim.cluster.head import UNWANTED
from raysim.common.errors import InputError
from raysim.config.experiment import Experiment
from raysim.config.own_files import own_files
from raysim.fleet.ray_private import sent_limit, sent_sizes

MAX_DATA = 64 * 2**20  # bytes of data that may go with a job: all of it passes through the memory of the head
NAMED_ENTRIES = 3  # largest entries that the message about a large folder names

JobFiles = tuple[Path, str, tuple[str, ...]]
"""Working folder of a job, the experiment's name there, and a `key.path=value` for each file that has moved."""


def checked_folder(folder: Path, config: str) -> JobFiles:
    """Return a user's folder; raise InputError if it is missing or too large, or lacks the experiment's file."""
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
    """Yield a new folder with the files that the experiment needs; raise InputError if one is missing or too large."""
    with TemporaryDirectory(prefix="raysim-") as name:
        folder, file, room = Path(name), Path(config), MAX_DATA
        if file.is_file():
            shutil.copyfile(file, folder / file.name)
        for module in experiment.own_code:
            code = Path(next(iter(getattr(module, "__path__", ())), module.__file__ or ""))
            _copy(code, folder / code.name)
        changes = []
        for own in own_files(experiment):
            for path, place in own.places:
                size = path.stat().st_size if path.is_file() else sum(sent_sizes(path, UNWANTED).values())
                if size > room:
                    raise InputError(
                        f"{own.key} = {str(path)!r} has {_mib(size)}: must be at most {_mib(room)} to be sent with a "
                        "job; put it on storage that the cluster sees and name its path there, or send it by "
                        "--working-dir"
                    )
                room -= size
                _copy(path, folder / place)
            changes.append(f"{own.key}={own.value}")
        yield folder, file.name if file.is_file() else config, tuple(changes)


def _copy(path: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, place, ignore=shutil.ignore_patterns(*UNWANTED))
    else:
        shutil.copyfile(path, place)


def _mib(size: float) -> str:
    return f"{size / 2**20:,.1f} MiB"
