"""Files and folders of this machine that an experiment names, and the keys that name them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from raysim.common.errors import InputError
from raysim.config.data import OWN_FILES
from raysim.config.experiment import Experiment
from raysim.config.read import short_name
from raysim.config.topology import FILE
from raysim.models.keys import WEIGHTS_SUFFIX


@dataclass(frozen=True)
class OwnFiles:
    """Files that a key of an experiment names, and their places in a folder that holds all of them.

    Args:
        key: path of the key.
        value: its value in that folder.
        places: each file or folder, and its relative path there.
    """

    key: str
    value: str
    places: tuple[tuple[Path, str], ...] = ()


def own_files(experiment: Experiment) -> Iterator[OwnFiles]:
    """Yield the files that the experiment's keys name and this machine has.

    Raises:
        InputError: a relative path names a file that is missing, or a job has no place for the files of a key.
    """
    yield from _data(experiment)
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
            yield OwnFiles(key, f"./{place}", ((Path(name), place),))
    yield from _edges(experiment)


def _edges(experiment: Experiment) -> Iterator[OwnFiles]:
    """Yield the file of edges of each algorithm that has one; a key names algorithms by their label, or their name."""
    files: dict[str, Path] = {}
    graphs = [(table, table.topology.file if table.topology else None) for table in experiment.algorithm]
    # A name is also that of labelled tables, so their own keys come after it.
    for table, path in sorted(graphs, key=lambda each: each[0].label is not None):
        if path is not None:
            files.setdefault(table.label or short_name(table.name), path)
    for table, path in graphs:
        name = table.label if table.label in files else short_name(table.name)
        if files.get(name) != path:
            raise InputError(
                f"algorithm.topology.graph = {FILE + str(files[name])!r}: must be the same for all algorithms called "
                f"{name} in a job; set another algorithm.label in each table with a file of edges"
            )
    for name, path in files.items():
        place = f"topology/{name}/{path.name}"
        yield OwnFiles(f"algorithm.{name}.topology.graph", f"{FILE}{place}", ((path, place),))


def _data(experiment: Experiment) -> Iterator[OwnFiles]:
    """Yield the user's own data; a relative path stays, and so does a file's name, which may be a domain's."""
    data = experiment.data
    for part, name in (("dataset", data.dataset), ("test", data.test)):
        if not isinstance(name, str) or not (form := OWN_FILES.match(name)):
            continue
        named = [each.strip() for each in name[form.end() :].split(",")]
        if all(path.is_absolute() and not path.exists() for path in map(Path, named)):
            continue  # they are another machine's
        paths = [Path(data.root or "", Path(each).expanduser()) for each in named]
        if missing := [path for path in paths if not path.exists()]:
            raise InputError(f"data.{part} = {name!r}: {missing[0]} must exist here to be sent; check the path")
        away = [Path(each).is_absolute() or ".." in Path(each).parts or each.startswith("~") for each in named]
        places = [f"{part}/{Path(each).name}" if far else each for each, far in zip(named, away, strict=True)]
        yield OwnFiles(f"data.{part}", form[0] + ",".join(places), tuple(zip(paths, places, strict=True)))
        yield OwnFiles("data.root", ".")
