"""Files of data sets: downloaded where they may be, and named in one line where they are missing."""

import contextlib
import io
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from raysim.common.errors import InputError


def fetch(download: Callable[[str], Any], root: Path, files: Sequence[str], *, archives: Sequence[str] = ()) -> None:
    """Download a data set's files unless they are there; nothing stays behind if that fails.

    Args:
        download: makes the files in the folder that it is given.
        root: the folder where they belong.
        files: their names in it.
        archives: what they are packed in; an archive that is there is unpacked instead of downloaded.

    Raises:
        InputError: a file is missing and cannot be downloaded.
    """
    missing = [name for name in files if not (root / name).is_file()]
    if not missing:
        return
    base = next(folder for folder in (root, *root.parents) if folder.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".raysim-download-", dir=base) as stage:
            for name in archives:  # torchvision unpacks an archive that is there instead of downloading it
                if (root / name).is_file():
                    (Path(stage) / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(root / name, Path(stage) / name)
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                download(stage)
            for name in missing:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(stage) / name).replace(root / name)
    except Exception as error:
        # Of any class: a download, and what unpacks it, raise what they trip over.
        reason = str(error).strip().rpartition("\n")[2] or type(error).__name__
        packed = f", or {archives[0] if len(archives) == 1 else 'the same as .gz'}," if archives else ""
        raise InputError(
            f"{', '.join(missing)} not found in {root}, and not downloaded ({reason}): "
            f"put the files{packed} there, or set data.root to the folder that holds them"
        ) from error


def missing(root: Path, what: str, source: str) -> InputError:
    """The error for files that are not there and that nobody downloads.

    Args:
        root: where they were looked for.
        what: their names.
        source: where they come from, and under which licence.
    """
    return InputError(
        f"{what} not found in {root}: get the files ({source}) and put them there, "
        "or set data.root to the folder that holds them"
    )


def damaged(path: Path, reason: str) -> InputError:
    """The error for a file that is not what its name says."""
    return InputError(f"{path} is damaged ({reason}): copy a good one there, or delete it if raysim downloaded it")


def home(root: Path, name: str, marks: Sequence[str], source: str) -> Path:
    """Return the folder that holds a data set: `root/name`, or `root` itself.

    Args:
        root: the folder of data sets, or of this one.
        name: the data set's own folder.
        marks: what that folder has, all of it.
        source: where the files come from.

    Raises:
        InputError: neither has them.
    """
    for folder in (root / name, root):
        if all((folder / mark).exists() for mark in marks):
            return folder
    # Where some of it lies in the root itself, the rest belongs there, too.
    prefix = "" if any((root / mark).exists() for mark in marks) and not (root / name).exists() else f"{name}/"
    absent = next(mark for mark in marks if not (root / prefix / mark).exists())
    raise missing(root, f"{prefix}{absent}", source)
