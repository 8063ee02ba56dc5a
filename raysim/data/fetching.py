"""Files of data sets: download those with a public source, and name the missing ones in one line."""

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
    """Download a data set's files unless they exist; a failed download leaves nothing behind.

    Args:
        download: function that writes the files into the given folder.
        root: folder of the files.
        files: names of the files in it.
        archives: packed files; an existing archive is unpacked instead of downloaded.

    Raises:
        InputError: a file is missing and cannot be downloaded.
    """
    missing = [name for name in files if not (root / name).is_file()]
    if not missing:
        return
    base = next(folder for folder in (root, *root.parents) if folder.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".raysim-download-", dir=base) as stage:
            for name in archives:  # torchvision unpacks an existing archive instead of downloading it
                if (root / name).is_file():
                    (Path(stage) / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(root / name, Path(stage) / name)
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                download(stage)
            for name in missing:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(stage) / name).replace(root / name)
    except Exception as error:  # a download or its unpacking may raise anything
        reason = str(error).strip().rpartition("\n")[2] or type(error).__name__
        packed = f", or {archives[0] if len(archives) == 1 else 'the same as .gz'}," if archives else ""
        raise InputError(
            f"{', '.join(missing)} not found in {root}, and not downloaded ({reason}): "
            f"put the files{packed} there, or set data.root to the folder that holds them"
        ) from error


def missing(root: Path, what: str, source: str) -> InputError:
    """Return the error for missing files that raysim cannot download.

    Args:
        root: folder that should have them.
        what: names of the files.
        source: origin and licence of the files.
    """
    return InputError(
        f"{what} not found in {root}: get the files ({source}) and put them there, "
        "or set data.root to the folder that holds them"
    )


def damaged(path: Path, reason: str) -> InputError:
    """Return the error for a file with wrong contents."""
    return InputError(f"{path} is damaged ({reason}): copy a good one there, or delete it if raysim downloaded it")


def home(root: Path, name: str, marks: Sequence[str], source: str) -> Path:
    """Return the folder that holds a data set: `root/name`, or `root` itself.

    Args:
        root: folder of data sets, or of this one.
        name: name of the data set's own folder.
        marks: files and folders that it must have.
        source: origin of the files.

    Raises:
        InputError: neither folder has all of them.
    """
    for folder in (root / name, root):
        if all((folder / mark).exists() for mark in marks):
            return folder
    # If some files lie in the root itself, the others belong there, too.
    prefix = "" if any((root / mark).exists() for mark in marks) and not (root / name).exists() else f"{name}/"
    absent = next(mark for mark in marks if not (root / prefix / mark).exists())
    raise missing(root, f"{prefix}{absent}", source)
