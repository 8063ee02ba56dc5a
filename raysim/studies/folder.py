"""A study's folder: made for one, or one that goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raysim.common.errors import InputError
from raysim.store.run_folder import locked, remove_created

STUDY = "study.toml"
TRIALS = "trials.parquet"


@contextmanager
def study_folder(out: Path) -> Iterator[Path]:
    """The folder of a study, new or as a study left it; it goes if the input turns out to be wrong before any trial.

    Raises:
        InputError: it holds something else, a process works on it, or it cannot be made.
    """
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        there = {path.name for path in out.iterdir()}
    except OSError as error:
        raise InputError(f"--out = {str(out)!r}: must be a folder that can be made ({error.strerror})") from None
    # A study makes its populations first. A study.toml alone is the user's, which the resolved one would replace.
    if there - {"run.log"} and not {"run.log", "populations"} <= there:
        what = "holds a run" if "config.toml" in there else "is not empty"
        raise InputError(f"--out = {str(out)!r} {what}: must be a new folder, or a study's; choose another")
    with locked(out):
        try:
            yield out
        except BaseException:
            if made and not any(out.glob("trials/*")):
                remove_created(out, made)
            raise
