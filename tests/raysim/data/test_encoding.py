"""Tables with a text in Latin-1: every reader names the column, the row and the remedy."""

from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from partitioning import InputError, make
from raysim.cli.begin import experiment_for
from raysim.data.sources import load
from raysim.devices.source import DeviceSource

ROWS, WRONG = 40, 27


def latin(words: list[str], encoded: bool) -> pa.Array:
    """The words as a column of text, one of them in Latin-1, that Arrow has not checked."""
    raw = pa.array([word.encode() for word in words[:WRONG]] + ["Zürich".encode("latin-1")], pa.binary())
    raw = pa.concat_arrays([raw, pa.array([word.encode() for word in words[WRONG + 1 :]], pa.binary())])
    text = pa.StringArray.from_buffers(ROWS, raw.buffers()[1], raw.buffers()[2])
    if not encoded:
        return text
    backwards = pa.array(range(ROWS - 1, -1, -1), pa.int32())
    return pa.DictionaryArray.from_arrays(backwards, text.take(backwards))


def table(column: str, encoded: bool) -> pa.Table:
    words = {"label": ["p", "q"] * 20, "site": ["a", "b", "c", "d"] * 10, "text": ["hello"] * ROWS}
    columns = {name: latin(given, encoded) if name == column else pa.array(given) for name, given in words.items()}
    return pa.table({"x": [number / ROWS for number in range(ROWS)], **columns})


def message(column: str) -> str:
    return f"column '{column}', row {WRONG}, has byte 0xfc: must be text in UTF-8; .* save it in UTF-8"


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("form", ["parquet", "feather"])
@pytest.mark.parametrize("column", ["label", "site", "text"])
def test_a_table_of_another_encoding_is_refused(column: str, form: str, encoded: bool, tmp_path: Path) -> None:
    path = tmp_path / f"t.{form}"
    if form == "parquet":
        pq.write_table(table(column, encoded), path, row_group_size=10)
    else:
        feather.write_feather(table(column, encoded), path, compression="uncompressed")
    with pytest.raises(InputError, match=message(column)):
        load(f"file:{path}", dividing=("site",), without=("text",))
    with pytest.raises(InputError, match=message(column)):
        make(path, tmp_path / "made", scheme="natural", column="site")
    if column == "label":
        with pytest.raises(InputError, match=message(column)):
            experiment_for(str(path), "experiment.toml")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("encoded", [False, True])
def test_a_table_in_memory_of_another_encoding_is_refused(encoded: bool, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message("site")):
        make(table("site", encoded), tmp_path / "made", scheme="domains", domain="site")


def test_delimited_text_of_another_encoding_is_refused(tmp_path: Path) -> None:
    lines = [f"{row},{'Zürich' if row == WRONG else 'a'},{row % 2}" for row in range(ROWS)]
    (path := tmp_path / "t.csv").write_bytes("\n".join(["x,site,label", *lines]).encode("latin-1"))
    with pytest.raises(InputError, match=message("site")):
        load(f"file:{path}", without=("site",))
    with pytest.raises(InputError, match=message("site")):
        make(path, tmp_path / "made", scheme="iid", clients=3)


@pytest.mark.parametrize("encoded", [False, True])
def test_devices_of_another_encoding_are_refused(encoded: bool, tmp_path: Path) -> None:
    devices = {"device": latin(["phone"] * ROWS, encoded), "compute": [1.0] * ROWS}
    pq.write_table(pa.table(devices), tmp_path / "d.parquet")
    with pytest.raises(InputError, match=message("device")):
        list(DeviceSource(tmp_path / "d.parquet", 4).batches())
