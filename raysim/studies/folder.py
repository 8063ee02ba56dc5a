"""Creation and locking of a study's folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partitioning.store.writing import remove_population
from raysim.common.errors import InputError
from raysim.common.names import CONFIG, DRAFTS, RUN_LOG
from raysim.common.surface import assigned
from raysim.store.run_folder import locked, remove_empty, remove_made

STUDY = "study.toml"
TRIALS = "trials.parquet"
POPULATIONS = "populations"

VIRTUAL_TIME = "virtual_seconds_to_"
"""Beginning of a column of `trials.parquet`: the virtual time to a target, whose column follows."""

LOST = "raysim.lost"
"""Metadata of `trials.parquet`: data set, algorithm and a sentence, for each algorithm without a winner, as JSON."""


@contextmanager
def study_folder(out: Path) -> Iterator[Path]:
    """Lock a study's folder, new or existing; remove a new one if an error occurs before any trial.

    Raises:
        InputError: the folder holds something else, another process uses it, or it cannot be made.
    """
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        there = {path.name for path in out.iterdir()}
    except OSError as error:
        raise InputError(
            f"{assigned('out', str(out))}: must be a folder that raysim can create ({error.strerror}); choose another"
        ) from None
    # A study makes its populations first. A study.toml alone is the user's, and the resolved one would replace it.
    if there - {RUN_LOG} and not {RUN_LOG, POPULATIONS} <= there:
        content = "holds a run" if CONFIG in there else "is not empty"
        raise InputError(f"{assigned('out', str(out))} {content}: must be a new folder, or a study's; choose another")
    with locked(out):
        try:
            yield out
        except BaseException:
            if made and not any(out.glob("trials/*")):
                for path in (out / POPULATIONS).glob("*"):
                    remove_population(path)
                remove_made(out, (POPULATIONS, "trials", STUDY, TRIALS, RUN_LOG, DRAFTS))
                remove_empty(made)
            raise
