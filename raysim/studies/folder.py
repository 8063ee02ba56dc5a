"""Creation and locking of a study's folder."""

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
    """Lock a study's folder, new or existing; remove a new one if an error occurs before any trial.

    Raises:
        InputError: the folder holds something else, another process uses it, or it cannot be made.
    """
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        there = {path.name for path in out.iterdir()}
    except OSError as error:
        raise InputError(f"--out = {str(out)!r}: must be a folder that can be made ({error.strerror})") from None
    # A study makes its populations first. A study.toml alone is the user's, and the resolved one would replace it.
    if there - {"run.log"} and not {"run.log", "populations"} <= there:
        content = "holds a run" if "config.toml" in there else "is not empty"
        raise InputError(f"--out = {str(out)!r} {content}: must be a new folder, or a study's; choose another")
    with locked(out):
        try:
            yield out
        except BaseException:
            if made and not any(out.glob("trials/*")):
                remove_created(out, made)
            raise
