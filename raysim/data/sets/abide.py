"""ABIDE I: connectomes of windows of brain activity, at the four largest sites."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.common.bounds import check_memory
from partitioning.common.columns import repeated
from partitioning.sources.arrays import nested
from partitioning.sources.memory import Tables
from raysim.common.errors import InputError
from raysim.common.log import LOG
from raysim.data.reading import LARGEST_FLOAT, home, text_of, words_of

SITES = {"NYU": "NYU", "UM_1": "UM", "USM": "USM", "UCLA_1": "UCLA"}
"""Names of the sites in the table, and in FedBN."""

FRAMES = 32
"""Frames of a window; the next window begins one frame later."""

PHENOTYPES = "Phenotypic_V1_0b_preprocessed1.csv"
SUFFIX = "_rois_ho.1D"

GROUPS = {"1": 1, "2": 0}
"""Labels of the table's groups: 1 is autism, 2 is control."""

LEAST_REGIONS = 2
"""Regions needed for one connection."""

Floats = npt.NDArray[np.float64]


def read_abide(root: Path) -> Tables:
    """Return ABIDE's connectomes: one row per window of 32 frames, the windows one frame apart.

        x = (corr(r_i, r_j))_{i < j}   of the frames t, ..., t + 31 of regions r;   110 * 109 / 2 = 5,995 values

    Regions that are constant in every file, for example because they have no voxels, are dropped. Harvard-Oxford's
    files have 111 columns, and FedBN's 5,995 values come from 110. The correlation with a region that is constant in a
    window is 0. The log counts the regions and these windows.

    Args:
        root: folder of `Phenotypic_V1_0b_preprocessed1.csv` (columns `SITE_ID`, `FILE_ID`, `DX_GROUP`), and in it or
            below `FILE_ID_rois_ho.1D` of each subject; or parent of a folder `abide/` with these files.

    Returns:
        `connectome`, float32 [5995], `label` (1: autism, 0: control), `site`, `subject`. There is no test part.

    Raises:
        InputError: files are missing, double, damaged or too short for a window, or the table is wrong.

    Paper: Di Martino et al., Molecular Psychiatry 19, 2014; FedBN, section 5.2 and appendix D.4.

    Deviations:
        The text does not name the measure of connection. This reader uses Pearson's correlation.
    """
    source = (
        "preprocessed-connectomes-project.org/abide: pipeline cpac, derivative rois_ho, of sites "
        f"{', '.join(SITES)}; CC BY-NC-SA 3.0"
    )
    folder = home(root, "abide", (PHENOTYPES,), source)
    subjects = _subjects(folder / PHENOTYPES)
    files = _files(folder, [name for name, _, _ in subjects], source)
    series = {name: _series(path) for name, path in files.items()}
    varying = _varying(series)
    windows = sum(len(each) - FRAMES + 1 for each in series.values())
    check_memory(f"{folder}: {windows:,} windows", windows * 2 * int(varying.sum()) ** 2)
    idle = 0
    tables = []
    for name, site, label in subjects:
        values, constant = connectomes(series[name][:, varying])
        idle += constant
        rows = len(values)
        columns = [nested(values), np.full(rows, label), pa.array([site] * rows), pa.array([name] * rows)]
        tables.append(pa.table(columns, names=["connectome", "label", "site", "subject"]))
    LOG.info("abide: %d of %d regions vary; %d are constant in a window", varying.sum(), len(varying), idle)
    return pa.concat_tables(tables), None


def connectomes(series: Floats, frames: int = FRAMES) -> tuple[npt.NDArray[np.float32], int]:
    """Return the correlations of all pairs of regions in every window, and the number of constant regions.

    Args:
        series: [T, R] activity.
        frames: frames of a window.

    Returns:
        float32 [T - frames + 1, R (R - 1) / 2], in the order of the upper triangle's rows; and the number of pairs of
        a window and a region that is constant in it.
    """
    windows = np.lib.stride_tricks.sliding_window_view(series, frames, axis=0)
    upper = np.triu_indices(series.shape[1], k=1)
    values = np.empty((len(windows), len(upper[0])), dtype=np.float32)
    constant = 0
    for place, window in enumerate(windows):  # one at a time: together they would take a gigabyte
        centred = window - window.mean(axis=1, keepdims=True)
        lengths = np.linalg.norm(centred, axis=1)
        # Rounding may give a constant region a length, and an almost constant one none.
        flat = (np.ptp(window, axis=1) == 0) | (lengths == 0)
        unit = np.where(flat[:, None], 0, centred / np.where(flat, 1, lengths)[:, None])
        values[place] = np.clip(unit @ unit.T, -1, 1)[upper]
        constant += int(flat.sum())
    return values, constant


def _subjects(path: Path) -> list[tuple[str, str, int]]:
    """Return file name, site and label of each subject of the four sites with a file, in the table's order."""
    rows = [[word.strip() for word in row] for row in words_of(path, "FILE_ID", "SITE_ID", "DX_GROUP")]
    found = [(name, site, group) for name, site, group in rows if site in SITES and name != "no_filename"]
    if not found:
        raise InputError(f"{path} has no subject with a file at {', '.join(SITES)}: copy it again")
    if (twice := repeated(name for name, _, _ in found)) is not None:
        raise InputError(f"{path} names the subject {twice} twice: must be once; drop a row")
    odd = next((row for row in found if row[2] not in GROUPS), None)
    if odd is not None:
        raise InputError(f"{path} has DX_GROUP = {odd[2]} for {odd[0]}: must be 1 (autism) or 2 (control); correct it")
    return [(name, SITES[site], GROUPS[group]) for name, site, group in found]


def _files(folder: Path, names: Sequence[str], source: str) -> dict[str, Path]:
    """Return the file of each subject, in its folder or below; two pipelines' files have the same name."""
    found: dict[str, list[Path]] = {name: [] for name in names}
    for path in sorted(folder.rglob(f"*{SUFFIX}")):
        found.get(path.name.removesuffix(SUFFIX), []).append(path)
    absent = [name for name, paths in found.items() if not paths]
    if absent:
        raise InputError(
            f"{absent[0]}{SUFFIX} not found in {folder}, nor {len(absent) - 1} others that {PHENOTYPES} names: "
            f"get them ({source})"
        )
    several = next((paths for paths in found.values() if len(paths) > 1), None)
    if several is not None:
        raise InputError(f"{several[0]} and {several[1]} are files of one subject: keep those of one pipeline")
    return {name: path for name, (path,) in found.items()}


def _series(path: Path) -> Floats:
    lines = [line for line in text_of(path).splitlines() if line.strip() and not line.startswith("#")]
    try:
        series = np.loadtxt(lines, ndmin=2) if lines else np.empty((0, 0))
    except ValueError as error:
        raise InputError(f"{path} is not a table of numbers ({str(error)[:80]}): copy the file again") from error
    if not (np.abs(series) <= LARGEST_FLOAT).all():
        raise InputError(f"{path} has a number that is not finite, or beyond {LARGEST_FLOAT:.1e}: copy the file again")
    if len(series) < FRAMES:
        raise InputError(
            f"{path} has {len(series)} frames: must be {FRAMES} or more; remove the subject from the table"
        )
    return series


def _varying(series: dict[str, Floats]) -> npt.NDArray[np.bool_]:
    widths = {name: values.shape[1] for name, values in series.items()}
    first = next(iter(widths))
    other = next((name for name in widths if widths[name] != widths[first]), None)
    if other is not None:
        raise InputError(
            f"{other}{SUFFIX} has {widths[other]} regions, but {first}{SUFFIX} has {widths[first]}: use one atlas"
        )
    varying: npt.NDArray[np.bool_] = np.any([np.ptp(values, axis=0) > 0 for values in series.values()], axis=0)
    if varying.sum() < LEAST_REGIONS:
        raise InputError(
            f"{varying.sum()} regions vary in the files, {first}{SUFFIX} and others: must be {LEAST_REGIONS}"
        )
    return varying
