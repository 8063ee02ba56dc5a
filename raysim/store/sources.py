"""Files of the user's own code behind a run: their hashes, and the modules whose values a checkpoint may hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from partitioning.store.files import sha256
from raysim.config import own
from raysim.config.experiment import Experiment


@dataclass(frozen=True)
class OwnSources:
    """The user's modules in this process.

    Args:
        modules: names of the modules that the experiment names, and of those beside them.
        folders: folders that contain them.
        files: sha256 of their files, by path relative to such a folder.
    """

    modules: frozenset[str] = frozenset()
    folders: tuple[Path, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, experiment: Experiment) -> OwnSources:
        """Return the modules of an experiment as far as they are loaded."""
        tops = {name.partition(":")[0].partition(".")[0] for name in experiment.named if ":" in name}
        names = frozenset(tops | {module.__name__ for module in experiment.own_code})
        return cls(names, tuple(map(Path, own.source_folders(experiment.named))), source_files(experiment.own_code))

    def digests(self, names: Iterable[str]) -> dict[str, str]:
        """Return the sha256 of files, also of those that this process has not loaded; missing ones are left out."""
        there = {name: folder / name for name in names for folder in self.folders if (folder / name).is_file()}
        return {name: self.files.get(name) or sha256(path) for name, path in there.items()}


def source_files(modules: Iterable[ModuleType]) -> dict[str, str]:
    """Return the sha256 of the files of modules and packages, by path relative to the folder that contains them."""
    files: dict[str, Path] = {}
    for module in modules:
        # A script from standard input has the name of a file, and none.
        if module.__file__ and Path(module.__file__).exists():
            path = Path(module.__file__).resolve()
            is_package = path.stem == "__init__"
            base = path.parent.parent if is_package else path.parent
            paths = path.parent.rglob("*.py") if is_package else [path]
            files |= {str(each.relative_to(base)): each for each in paths}
    return {name: sha256(path) for name, path in sorted(files.items())}
