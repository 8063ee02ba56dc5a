"""Schemes with a given number of classes per client, or of samples per class."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from partitioning.common.checks import Integers, encode, floor_share, read_seed, whole
from partitioning.common.errors import InputError, listing
from partitioning.common.paths import read_text
from partitioning.common.streams import Purpose, generator
from partitioning.schemes.parts import ClassTable, Parts, deal_by_table, even


def labels_per_client(
    labels: npt.ArrayLike, *, clients: int, classes_per_client: int | float = 2, seed: int = 0
) -> Parts:
    """Give each client samples of exactly L classes.

    Class k is cut into P_k parts of equal size, with sum P_k = K L and P_k = floor or ceil of K L / C. A client gets
    one part of each of L classes. FedMMB, section 4 (Non-IID-L, K a multiple of C); FixBN, section 4.1 ("Shards": 20 %
    of the classes). Deviation: if C does not divide K L, classes with more samples have one part more.

    Args:
        labels: one label per sample [N].
        clients: number of clients K.
        classes_per_client: classes per client, L: a number, or a share of the classes below 1.
        seed: key of every draw.

    Returns:
        K ascending int64 arrays of indices into `labels`.

    Raises:
        InputError: L is above C, K L is below C (a class lacks a client), or a class has fewer samples than parts.
    """
    codes, columns = encode(labels)
    clients, seed = whole("clients", clients, least=1), read_seed(seed)
    each, fewest = _classes(classes_per_client, columns.size), -(-columns.size // clients)
    if not fewest <= each <= columns.size:
        raise InputError(
            f"classes_per_client is {classes_per_client!r}, which makes {each} of {columns.size} classes on each of "
            f"{clients} clients: give a number from {fewest}, so that every class has a client, to {columns.size}"
        )
    parts = np.empty_like(columns)
    parts[np.argsort(-columns, kind="stable")] = even(clients * each, columns.size)
    if (short := np.flatnonzero(columns < parts)).size:
        raise InputError(
            f"class number {short[0]}, in sorted order from 0, has {columns[short[0]]} samples, too few for "
            f"{parts[short[0]]} parts: ask for fewer clients or a smaller classes_per_client"
        )
    owners = _choose(parts, clients, each, generator(seed, Purpose.LABELS))
    table = np.zeros((clients, columns.size), np.int64)
    for column in range(columns.size):
        table[owners[column], column] = even(int(columns[column]), int(parts[column]))
    return Parts(deal_by_table(codes, table, generator(seed, Purpose.DEAL)))


def _classes(value: object, classes: int) -> int:
    # A share of the classes is at least one class.
    share = value if isinstance(value, float) and 0 < value < 1 else None
    return whole("classes_per_client", value, least=1) if share is None else max(1, int(floor_share(share, classes)))


def _choose(parts: Integers, clients: int, each: int, random: np.random.Generator) -> list[list[int]]:
    # Clients of each class. Each client in turn takes the classes with the most parts left, ties at random; this always
    # ends with all parts taken.
    left = parts.copy()
    owners: list[list[int]] = [[] for _ in range(parts.size)]
    for client in range(clients):
        order = random.permutation(parts.size)
        for column in order[np.argsort(-left[order], kind="stable")][:each].tolist():
            owners[column].append(client)
            left[column] -= 1
    return owners


def counts(labels: npt.ArrayLike, *, table: ClassTable, seed: int = 0) -> Parts:
    """Give each client the numbers of samples per class in a table (FedMMB, section 4.3, HAM-Non-IID).

        n_tk = table_tk, drawn at random

    The remaining samples are on no client.

    Args:
        labels: one label per sample [N].
        table: samples per client and class: K lists of C numbers, in sorted order of the labels. The command line and
            files also take the name of a CSV, Parquet or TOML file with the labels as columns.
        seed: key of the draw.

    Returns:
        K ascending int64 arrays of indices into `labels`.

    Raises:
        InputError: the table does not have one column per class, or asks for more samples of a class than there are.
    """
    codes, columns = encode(labels)
    numbers = _read_table(table, columns.size)
    if numbers.max(initial=0) > codes.size:
        raise InputError(f"table has the number {numbers.max()} and there are {codes.size} samples: lower it")
    if (short := np.flatnonzero(numbers.sum(axis=0) > columns)).size:
        raise InputError(
            f"table asks for {numbers.sum(axis=0)[short[0]]} samples of class number {short[0]}, in sorted order "
            f"from 0, which has {columns[short[0]]}: lower that column"
        )
    return Parts(deal_by_table(codes, numbers, generator(read_seed(seed), Purpose.DEAL)))


def read_counts(path: Path, classes: Sequence[Any]) -> list[list[int]]:
    """Read a table for `counts`: one row per client, one column per label in any order; absent labels count 0.

    Args:
        path: `.csv`, `.tsv` or `.parquet` file with labels as column names, or `.toml` file with tables `[[client]]`
            and labels as keys.
        classes: labels in sorted order.

    Raises:
        InputError: the file cannot be read, a column is no label, or a value is no whole number.
    """
    rows = _read_toml(path) if path.suffix.lower() == ".toml" else _read_rows(path)
    names = [str(label) for label in classes]
    if unknown := next((name for row in rows for name in row if name not in names), None):
        raise InputError(f"{path} has a column {unknown!r}, which is no label: the labels are {listing(names)}")
    table = [[row.get(name, 0) for name in names] for row in rows]
    wrong = [n for row in table for n in row if isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < 2**63]
    if wrong:
        raise InputError(f"{path} has the value {wrong[0]!r}: give whole numbers, 0 or more, in every cell")
    if not table:
        raise InputError(f"{path} has no rows: give one per client")
    return table


def _read_rows(path: Path) -> list[dict[str, Any]]:
    from partitioning.sources.opening import open_source
    from partitioning.sources.source import read_columns

    rows: list[dict[str, Any]] = read_columns(open_source(path)).to_pylist()
    return rows


def _read_toml(path: Path) -> list[dict[str, Any]]:
    try:
        rows = tomllib.loads(read_text(path)).get("client")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as TOML ({error}): mend it") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path} has no tables [[client]]: write one per client, with label = number")
    return rows


def _read_table(table: ClassTable, classes: int) -> Integers:
    try:
        numbers = np.asarray(table)
    except ValueError:  # ragged
        numbers = np.empty(0)
    fits = numbers.ndim == 2 and numbers.shape[1] == classes and numbers.dtype.kind in "iu"
    if not fits or numbers.min(initial=0) < 0 or numbers.max(initial=0) >= 2**63:
        raise InputError(
            f"table is of shape {list(numbers.shape)} and type {numbers.dtype}: give {classes} whole numbers, from 0 "
            "and below 2^63, for each client, one per class in sorted order"
        )
    return numbers.astype(np.int64)
