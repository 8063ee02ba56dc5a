"""Shakespeare by speaking role."""

from collections.abc import Callable
from pathlib import Path
from unittest import TestCase

import pyarrow as pa
import pyarrow.parquet as pq

from raysim.data.sets.shakespeare import VOCABULARY, WINDOW
from raysim.data.sources import load

LONG = "What light through yonder window breaks? It is the east, and Juliet is the sun, my lords."


def _text(row: list[int]) -> str:
    return "".join(VOCABULARY[number] for number in row)


def test_the_vocabulary_has_80_characters() -> None:
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 80
    assert VOCABULARY[0] == "\n" and VOCABULARY[1] == " " and VOCABULARY[79] == "}"


def test_windows_of_a_text(tmp_path: Path) -> None:
    first, second = LONG[:50], LONG[50:]
    play = f"Romeo:\n{first}\n\nNurse:\nMadam!\n\nRomeo:\n{second}\nAh: me$\n\nand more\n"
    (tmp_path / "shakespeare.txt").write_text(play)
    with TestCase().assertLogs("raysim", "INFO") as logs:
        table = load("shakespeare", root=str(tmp_path), dividing=["speaker"]).train
    whole = f"{first}\n{second}\nAh: me\nand more"  # "$" is beyond the vocabulary
    assert table.num_rows == len(whole) - WINDOW
    assert table.schema == pa.schema({"text": pa.list_(pa.int16(), 80), "label": pa.int64(), "speaker": pa.string()})
    for place, row in enumerate(table.to_pylist()):
        assert row["speaker"] == "Romeo"
        assert _text(row["text"]) == whole[place : place + WINDOW]
        assert VOCABULARY[row["label"]] == whole[place + WINDOW]
    assert "1 speakers; 1 with at most 80 characters and 1 characters beyond the vocabulary" in str(logs.output)


def test_windows_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "shakespeare.parquet"
    pq.write_table(pa.table({"speaker": ["b", "a", "b"], "text": [LONG, LONG, "x"]}), path)
    table = load("shakespeare", root=str(tmp_path), dividing=["speaker"]).train
    assert table["speaker"].to_pylist() == ["a"] * (len(LONG) - 80) + ["b"] * (len(LONG) - 78)
    (tmp_path / "shakespeare.parquet").unlink()
    (tmp_path / "shakespeare.csv").write_text(f'speaker,text\na,"{LONG}"\n')
    assert load("shakespeare", root=str(tmp_path)).train.schema.names == ["text", "label"]
    assert load("shakespeare", root=str(tmp_path / "shakespeare.csv")).train.num_rows == len(LONG) - 80


def test_real_text(real: Callable[[str], Path]) -> None:
    path = real("tinyshakespeare.txt")
    with TestCase().assertLogs("raysim", "INFO") as logs:
        table = load("shakespeare", root=str(path), dividing=["speaker"]).train
    speakers = table["speaker"].value_counts().to_pylist()
    assert "256 speakers; 53 with at most 80 characters and 1 characters" in str(logs.output)  # 309 together
    assert len(speakers) == 256
    assert _text(table.filter(pa.compute.equal(table["speaker"], "First Citizen"))["text"][0].as_py()).startswith(
        "Before we proceed any further, hear me speak.\nYou are all resolved"
    )
