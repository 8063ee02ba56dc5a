"""Refusal of a wrong command before torch and Ray are imported, which takes seconds."""

from collections.abc import Iterable
from pathlib import Path

from partitioning.common.text import word
from raysim.common.errors import InputError, every
from raysim.common.names import check_new, is_bare
from raysim.config.data import OWN_FILES, DataTable
from raysim.config.experiment import Experiment
from raysim.config.read import module_folders, read
from raysim.data.catalogue import check_dataset
from raysim.simulation.options import RunOptions


def check_run(
    file: str,
    changes: Iterable[str],
    out: Path | str | None,
    actors: int | None,
    inline: bool = False,
    address: str | None = None,
) -> Experiment:
    """Check a run's experiment and options, and return the experiment; the arguments are those of `raysim run`.

    Raises:
        InputError: the experiment or an option is wrong, or both are.
    """

    def experiment() -> Experiment:
        found = Experiment.of(read(file, changes), module_folders(file))
        every(
            {
                "data": lambda: _check_data(found.data, file),
                "place": lambda: RunOptions(actors, inline, address).placed(found),
                "devices": lambda: found.devices and found.devices.source,
            }
        )
        return found

    def folder() -> None:
        if isinstance(out, Path) and not (out.is_dir() and is_bare(out)):
            check_new(out)

    checked: Experiment = every({"experiment": experiment, "out": folder})["experiment"]
    return checked


def check_study(file: str, changes: Iterable[str]) -> None:
    """Check a study file; the folder of a study is checked when it is read.

    Raises:
        InputError: the study or its experiment is wrong.
    """
    from raysim.studies.file import Study, read_study

    if not Path(file).is_dir():
        Study.of(read_study(file, changes), module_folders(file))


def _check_data(data: DataTable, file: str) -> None:
    """Check that the data set's name is known, or that its file is there; likewise for a test set.

    Args:
        data: table of the experiment.
        file: path of the experiment file, or name of a recipe.
    """
    for key, dataset in (("dataset", data.dataset), ("test", data.test)):
        if not isinstance(dataset, str):
            continue
        check_dataset(dataset, f"data.{key}")
        form = OWN_FILES.match(dataset)
        for name in dataset[form.end() :].split(",") if form else ():
            path = Path(data.root or "") / Path(name.strip()).expanduser()
            if name.strip() and not path.exists():
                folder = Path(file).parent
                remedy = "check the path"
                if (folder / name.strip()).exists() and Path(file).is_file():
                    given = word(f"data.root={folder}")
                    remedy = f"a file of that name lies beside the experiment file: add --set {given}"
                raise InputError(f"data.{key} = {dataset!r}: {path} is missing; {remedy}")
