"""Tables to partition, and files with them."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv, feather

from partitioning.common.sealing import sealed
from partitioning.sources.opening import open_source

LABELS = np.random.default_rng(3).choice(["ant", "bee", "cat"], p=[0.5, 0.3, 0.2], size=200)


def rich_table() -> pa.Table:
    """200 rows of every form of column that users bring; row numbers identify the samples."""
    pixels = np.random.default_rng(1).integers(0, 255, 200 * 12).astype("uint8")
    image = pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(pa.array(pixels), 4), 3)
    tensor = pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), [2, 3]),
        pa.FixedSizeListArray.from_arrays(pa.array(np.arange(1200, dtype="float32")), 6),
    )
    encoded = pa.StructArray.from_arrays(
        [pa.array([bytes([row]) * (row % 7) for row in range(200)]), pa.nulls(200, pa.string())],
        names=["bytes", "path"],
    )
    columns = {
        "image": image,
        "tensor": tensor,
        "encoded": encoded,
        "kind": pa.array(LABELS).dictionary_encode(),
        "label": pa.array(LABELS),
        "row": pa.array(np.arange(200)),
    }
    return pa.table(columns).replace_schema_metadata({"origin": "tests"})


def flat_table(rows=300):
    random = np.random.default_rng(5)
    return pa.table(
        {
            "x": random.normal(size=rows),
            "name": [f"sample {row}" for row in range(rows)],
            "label": random.integers(0, 4, rows),
            "row": np.arange(rows),
        }
    )


def archive_columns(rows=300):
    random = np.random.default_rng(6)
    return {
        "image": random.integers(0, 255, (rows, 3, 4)).astype(np.uint8),
        "columns": np.asfortranarray(random.normal(size=(rows, 5)).astype(np.float32)),
        "big": np.arange(rows, dtype=">i4"),
        "flag": random.random(rows) < 0.5,
        "label": random.choice(["ant", "bee"], rows),
        "row": np.arange(rows),
    }


def write_images(folder, counts):
    for label, count in counts.items():
        (folder / label).mkdir(parents=True)
        for number in range(count):
            (folder / label / f"{number:03d}.png").write_bytes(f"{label} {number}".encode() * 40)
    return folder


def write_stream(table, path):
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=37)


def write_file(table, path):
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=41)


WRITE = {
    "a.parquet": lambda path: pq.write_table(rich_table(), path, row_group_size=60),
    "b.pq": lambda path: pq.write_table(rich_table(), path),
    "c.arrow": lambda path: write_file(rich_table(), path),
    "d.ipc": lambda path: write_stream(rich_table(), path),
    "e.feather": lambda path: feather.write_feather(rich_table(), path, chunksize=50, compression="lz4"),
    "f.csv": lambda path: csv.write_csv(flat_table(), path),
    "g.tsv": lambda path: csv.write_csv(flat_table(), path, csv.WriteOptions(delimiter="\t")),
    "h.npz": lambda path: np.savez(path, **archive_columns()),
    "i.npz": lambda path: np.savez_compressed(path, **archive_columns()),
    "images": lambda path: write_images(path, {"wasp": 40, "ant": 70, "bee": 30}),
}
"""A source of each kind, by its name."""


def write(folder, name):
    WRITE[name](folder / name)
    return open_source(folder / name)


def edit_table(folder, name, change):
    """Store a changed Parquet file, with a manifest that knows it."""
    path = folder / name
    pq.write_table(change(pq.read_table(path)), path)
    manifest = json.loads((folder / "manifest.json").read_text())
    entry = manifest[name.removesuffix(".parquet")]
    entry.update(bytes=path.stat().st_size, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    (folder / "manifest.json").write_bytes(sealed(manifest))


def with_column(name, values):
    def change(table):
        field = table.schema.field(name)
        return table.set_column(table.column_names.index(name), field, pa.array(values, field.type))

    return change
