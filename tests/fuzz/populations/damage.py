"""Damage to a population's folder, drawn: to its bytes, files and manifest; and wrong ones with right checksums."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from partitioning.common.sealing import sealed

Rng = np.random.Generator
Damage = Callable[[Path, Path, Rng], str]
"""Changes a folder, with another population's at hand; says what it did."""


def _file(folder: Path, rng: Rng) -> Path:
    return folder / str(rng.choice(sorted(path.name for path in folder.iterdir())))


def flip(folder: Path, other: Path, rng: Rng) -> str:
    path, bits = _file(folder, rng), int(rng.integers(1, 9))
    content = bytearray(path.read_bytes())
    for place in rng.integers(len(content), size=bits):
        content[place] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)
    return f"{bits} bits of {path.name}"


def truncate(folder: Path, other: Path, rng: Rng) -> str:
    path = _file(folder, rng)
    length = int(rng.integers(path.stat().st_size))
    os.truncate(path, length)
    return f"{path.name} cut to {length} bytes"


def extend(folder: Path, other: Path, rng: Rng) -> str:
    path = _file(folder, rng)
    with path.open("ab") as file:
        file.write(rng.bytes(int(rng.integers(1, 5000))))
    return f"bytes behind {path.name}"


def overwrite(folder: Path, other: Path, rng: Rng) -> str:
    path = _file(folder, rng)
    size = path.stat().st_size
    start = int(rng.integers(size))
    length = int(rng.integers(1, size - start + 1))
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(length) if rng.random() < 0.5 else rng.bytes(length))
    return f"{length} bytes of {path.name}, from {start}"


def remove(folder: Path, other: Path, rng: Rng) -> str:
    path = _file(folder, rng)
    path.unlink()
    return f"{path.name} removed"


def foreign(folder: Path, other: Path, rng: Rng) -> str:
    name = _file(other, rng).name
    shutil.copyfile(other / name, folder / name)
    return f"another population's {name}"


def exchange(folder: Path, other: Path, rng: Rng) -> str:
    one, two = _file(folder, rng), _file(folder, rng)
    content = one.read_bytes(), two.read_bytes()
    one.write_bytes(content[1])
    two.write_bytes(content[0])
    return f"{one.name} and {two.name} exchanged"


def no_file(folder: Path, other: Path, rng: Rng) -> str:
    path = _file(folder, rng)
    path.unlink()
    kind = int(rng.integers(4))
    if kind == 0:
        path.mkdir()
    elif kind == 1:
        os.mkfifo(path)
    elif kind == 2:
        path.symlink_to(path)
    else:
        path.touch()
    return f"{path.name} as {('a folder', 'a pipe', 'a link to itself', 'nothing')[kind]}"


def link(folder: Path, other: Path, rng: Rng) -> str:
    path = _file(folder, rng)
    path.unlink()
    path.symlink_to(other / path.name)
    return f"{path.name} as a link to another population's"


def unreadable_manifest(folder: Path, other: Path, rng: Rng) -> str:
    contents = (b"[" * 200_000, b'{"version": ' + b"9" * 5000 + b"}", b"\xff\xfe{}", b"{}", b'"x"', rng.bytes(500))
    (folder / "manifest.json").write_bytes(contents[int(rng.integers(len(contents)))])
    return "a manifest that is none"


STRANGE = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 10**400, 0.5, float("nan"), float("inf"), "", "x", "label", "x1", "../x"),
    *(
        "/etc/passwd",
        "..",
        ".",
        "a/b",
        "clients.parquet",
        "manifest.json",
        "\x00",
        "ß" * 300,
        [],
        [1],
        ["x"],
        {},
        {"x": 1},
    ),
)
"""Values that no place of a manifest has, or only the wrong one."""


def _leaves(record: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = record.keys() if isinstance(record, dict) else range(len(record)) if isinstance(record, list) else ()
    return [place for key in keys for place in ((*path, key), *_leaves(record[key], (*path, key)))]


def _edited(folder: Path, rng: Rng) -> tuple[dict[str, Any], str]:
    record = json.loads((folder / "manifest.json").read_text())
    places = _leaves(record)
    # Most leaves are numbers of columns and files: the shallow ones have the same chance together.
    shallow = [place for place in places if len(place) == 1]
    chosen = shallow if rng.random() < 0.4 else places
    *way, last = chosen[int(rng.integers(len(chosen)))]
    owner = record
    for key in way:
        owner = owner[key]
    kind = int(rng.integers(4))
    if kind == 0:
        del owner[last]
    elif kind == 1 and isinstance(owner, list):
        owner.append(owner[last])
    elif kind == 2 and isinstance(owner[last], int | float):
        owner[last] += int(rng.integers(-2, 3))
    else:
        owner[last] = STRANGE[int(rng.integers(len(STRANGE)))]
    return record, f"{'.'.join(map(str, (*way, last)))} of the manifest"


def edit(folder: Path, other: Path, rng: Rng) -> str:
    record, what = _edited(folder, rng)
    (folder / "manifest.json").write_text(json.dumps(record))
    return what


def version(folder: Path, other: Path, rng: Rng) -> str:
    record = json.loads((folder / "manifest.json").read_text())
    record["version"] += int(rng.integers(1, 5)) * int(rng.choice([-1, 1]))
    (folder / "manifest.json").write_bytes(sealed(record))
    return f"version {record['version']}"


def escape(folder: Path, other: Path, rng: Rng) -> str:
    """Name a good file that is elsewhere."""
    record = json.loads((folder / "manifest.json").read_text())
    entries = [record["clients"], record["rows"], *record["shards"], *(test["file"] for test in record["tests"])]
    entry = entries[int(rng.integers(len(entries)))]
    outside = folder.parent / f"outside-{entry['name']}"
    shutil.copyfile(folder / entry["name"], outside)
    entry["name"] = f"../{outside.name}" if rng.random() < 0.5 else str(outside)
    (folder / "manifest.json").write_bytes(sealed(record))
    return f"the path {entry['name']}"


def edit_sealed(folder: Path, other: Path, rng: Rng) -> str:
    record, what = _edited(folder, rng)
    try:
        (folder / "manifest.json").write_bytes(sealed(record))
    except (TypeError, ValueError):
        (folder / "manifest.json").write_text(json.dumps(record))
    return f"{what}, sealed"


def _reseal(folder: Path, name: str) -> None:
    record = json.loads((folder / "manifest.json").read_text())
    content = (folder / name).read_bytes()
    record[name.removesuffix(".parquet")].update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    (folder / "manifest.json").write_bytes(sealed(record))


def clients_table(folder: Path, other: Path, rng: Rng) -> str:
    """A table of the clients that is wrong in one column, and has the right checksum."""
    path = folder / "clients.parquet"
    table = pq.read_table(path)
    name = str(rng.choice(table.column_names))
    place, row = table.column_names.index(name), int(rng.integers(len(table)))
    values = table[name].to_pylist()
    wrong = {"duplicate": values[(row + 1) % len(values)], "none": None, "zero": 0, "negative": -3, "huge": 2**62}
    kind = str(rng.choice([*wrong, "gone", "twice", "text", "lists"]))
    if kind == "gone":
        table = table.drop_columns(name)
    elif kind == "twice":
        table = table.append_column(name, table[name])
    elif kind == "text":
        table = table.set_column(place, name, pa.array(["../x"] * len(values)))
    elif kind == "lists":
        table = table.set_column(place, name, pa.array([[1, None]] * len(values), pa.list_(pa.int64())))
    else:
        values[row] = wrong[kind]
        try:
            table = table.set_column(place, table.field(name), pa.array(values, table.field(name).type))
        except (pa.ArrowException, TypeError, OverflowError):
            table = table.set_column(place, name, pa.array([str(value) for value in values]))
    pq.write_table(table, path)
    _reseal(folder, path.name)
    return f"clients.parquet, column {name}: {kind}, sealed"


def garbage_sealed(folder: Path, other: Path, rng: Rng) -> str:
    """Bytes that are no table, or another population's, with the right checksum."""
    names = [path.name for path in folder.glob("*.parquet")]
    path = folder / str(rng.choice(sorted(names)))
    path.write_bytes(rng.bytes(300) if rng.random() < 0.5 else (other / path.name).read_bytes())
    _reseal(folder, path.name)
    return f"{path.name} of other bytes, sealed"


HARMFUL: Mapping[str, Damage] = {
    "bits flipped": flip,
    "truncated": truncate,
    "extended": extend,
    "overwritten": overwrite,
    "removed": remove,
    "foreign": foreign,
    "exchanged": exchange,
    "no file": no_file,
    "linked": link,
    "manifest that is none": unreadable_manifest,
    "manifest edited": edit,
    "other version": version,
    "path that leaves": escape,
}
"""What happens to a population: it is refused, or gives what it gave before."""

SEALED: Mapping[str, Damage] = {
    "manifest edited, sealed": edit_sealed,
    "clients edited, sealed": clients_table,
    "garbage, sealed": garbage_sealed,
}
"""What somebody writes with right checksums: another population, or none; it is refused, or it can be trained on."""
