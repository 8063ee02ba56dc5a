"""Covertype, eICU and ABIDE."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import TestCase

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from partitioning import InputError
from raysim.data.reading import read_delimited, table_of
from raysim.data.sets.abide import connectomes
from raysim.data.sets.tabular import COVERTYPE, TableUse, read_tables
from raysim.data.sources import load

UCI_ROW = "2596,51,3,258,0,510,221,232,148,6279,1,0,0,0," + ",".join(["0"] * 28 + ["1"] + ["0"] * 11) + ",5"


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_values_in_quotes_may_have_line_breaks_at_the_end_of_a_block(tmp_path: Path, suffix: str) -> None:
    notes, mark = ["line\n" * (40_000 + row) for row in range(9)], "\t" if suffix == ".tsv" else ","
    lines = (f'"{note}"{mark}{row}\n' for row, note in enumerate(notes))
    (tmp_path / f"x{suffix}").write_text(f"note{mark}label\n" + "".join(lines))
    (table,) = read_tables([tmp_path / f"x{suffix}"], TableUse("label"))
    assert table.to_pydict() == {"note": notes, "label": [*range(9)]}


def test_uci_file_of_covertype(tmp_path: Path) -> None:
    (tmp_path / "covtype.data.gz").write_bytes(gzip.compress(f"{UCI_ROW}\n{UCI_ROW[:-1]}2\n".encode()))
    table = load("covertype", root=str(tmp_path)).train
    assert table.schema.names == [*COVERTYPE, "label"]
    assert table["label"].to_pylist() == [5, 2]
    assert table["Elevation"].to_pylist() == [2596, 2596]
    assert table["Soil_Type29"].to_pylist() == [1, 1]
    (tmp_path / "covtype.data.gz").write_bytes(gzip.compress(b"2596,51\n"))
    with pytest.raises(InputError, match=r"covtype.data.gz is damaged") as error:
        load("covertype", root=str(tmp_path))
    assert "\n" not in str(error.value)


def test_real_covertype(real: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "covertype.parquet").symlink_to(real("covtype-20k.parquet").resolve())
    table = load("covertype", root=str(tmp_path)).train
    assert table.num_rows == 20_000
    assert table.schema.names == [*COVERTYPE, "label"]
    assert sorted(set(table["label"].to_pylist())) == [1, 2, 3, 4, 5, 6, 7]


def _admissions(died: dict[int, tuple[int, int]]) -> pa.Table:
    hospitals = np.repeat(list(died), [size for size, _ in died.values()])
    labels = np.concatenate([np.arange(size) < deaths for size, deaths in died.values()]).astype(np.int64)
    return pa.table({"hospital": hospitals, "age": np.arange(len(labels)) / 2, "label": labels})


def test_hospitals_of_eicu(tmp_path: Path) -> None:
    # 100 are too few, 21 of 101 and 31 of 150 too many; 30 of 150 are just 20 %.
    table = _admissions({1: (100, 5), 2: (101, 20), 3: (101, 21), 4: (150, 30), 5: (150, 31)})
    pyarrow.csv.write_csv(table, tmp_path / "eicu.csv")
    with TestCase().assertLogs("raysim", "INFO") as logs:
        source = load("eicu", root=str(tmp_path), dividing=["hospital"])
    assert source.train.schema.names == ["age", "label", "hospital"]
    assert np.unique(source.train["hospital"].to_numpy(), return_counts=True)[1].tolist() == [101, 150]
    assert set(source.train["hospital"].to_pylist()) == {2, 4}
    assert "2 of 5 hospitals" in str(logs.output)
    assert load("eicu", root=str(tmp_path)).train.schema.names == ["age", "label"]


def _write_abide(root: Path, series: dict[str, Any]) -> None:
    lines = ["SUB_ID,SITE_ID,FILE_ID,DX_GROUP"]
    sites = {"NYU_1": ("NYU", 1), "UM_1_2": ("UM_1", 2), "UM_1_3": ("UM_1", 1)}
    lines += [f"0,{site},{name},{group}" for name, (site, group) in sites.items()]
    lines += ["0,NYU,no_filename,1", "0,PITT,Pitt_7,1"]
    (root / "abide" / "rois_ho").mkdir(parents=True)
    (root / "abide" / "Phenotypic_V1_0b_preprocessed1.csv").write_text("\n".join(lines) + "\n")
    for name, values in series.items():
        header = "\t".join(f"#{i}" for i in range(values.shape[1]))
        np.savetxt(
            root / "abide" / "rois_ho" / f"{name}_rois_ho.1D", values, delimiter="\t", header=header, comments=""
        )


def _series(*lengths: int, regions: int = 5) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    names = ("NYU_1", "UM_1_2", "UM_1_3")
    series = {name: draw.normal(size=(length, regions)) for name, length in zip(names, lengths, strict=True)}
    for values in series.values():
        values[:, 2] = 0  # no voxels
    return series


def test_connectomes_of_abide(tmp_path: Path) -> None:
    series = _series(34, 32, 33)
    series["UM_1_2"][:, 4] = 1.5
    _write_abide(tmp_path, series)
    with TestCase().assertLogs("raysim", "INFO") as logs:
        table = load("abide", root=str(tmp_path), dividing=["site", "subject"]).train
    assert table["site"].to_pylist() == ["NYU"] * 3 + ["UM"] * 3
    assert table["subject"].to_pylist() == ["NYU_1"] * 3 + ["UM_1_2"] + ["UM_1_3"] * 2
    assert table["label"].to_pylist() == [1, 1, 1, 0, 1, 1]
    kept = series["NYU_1"][:, [0, 1, 3, 4]]
    for start in range(3):
        expected = np.corrcoef(kept[start : start + 32].T)[np.triu_indices(4, 1)]
        assert np.abs(np.asarray(table["connectome"][start].as_py()) - expected).max() < 1e-6
    # Values 2, 4 and 5 of the upper triangle are of the region that is constant in one subject.
    assert np.asarray(table["connectome"][3].as_py())[[2, 4, 5]].tolist() == [0, 0, 0]
    assert "4 of 5 regions vary; 1 are constant in a window" in str(logs.output)


def test_110_regions_have_5995_connections() -> None:
    values, constant = connectomes(np.random.default_rng(0).normal(size=(33, 110)))
    assert (values.shape, values.dtype, constant) == ((2, 5995), np.float32, 0)


@pytest.mark.parametrize("name", ["late.csv", "late.csv.gz"])
def test_the_types_of_columns_come_from_all_rows(tmp_path: Path, name: str) -> None:
    """Arrow reads a megabyte at once; whole numbers and blanks may come before other values."""
    early, late = [f"{row},1,\n" for row in range(150_000)], "1,1.5,x\n"
    with (gzip.open if name.endswith(".gz") else open)(tmp_path / name, "wt", encoding="utf-8") as file:
        file.write("".join(["row,number,text\n", *early, late]))
    table = table_of(tmp_path / name)
    assert table["number"][-1].as_py() == 1.5 and table["text"][-1].as_py() == "x" and len(table) == 150_001


def test_delimited_text_has_a_largest_number_of_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a\n" + "1\n" * 9)
    assert len(read_delimited(tmp_path / "rows.csv", 9)) == 9
    with pytest.raises(InputError, match=r"rows\.csv has more than 8 rows"):
        read_delimited(tmp_path / "rows.csv", 8)


def test_images_with_dictionaries_may_stand_in_several_row_groups(tmp_path: Path) -> None:
    images = [index.to_bytes(2, "little") * 2500 for index in range(1000)]
    encoded = pa.StructArray.from_arrays([pa.array(images), pa.array([None] * 1000, pa.string())], ["bytes", "path"])
    table = pa.table({"image": encoded, "label": range(1000)})
    pq.write_table(table, tmp_path / "data.parquet", row_group_size=500)
    assert table_of(tmp_path / "data.parquet").equals(table)
