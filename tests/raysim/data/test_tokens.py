"""Text as tokens: with a label, and as sequences that predict their next token."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from raysim.common.errors import InputError
from raysim.data import tokens as tokens_module
from raysim.data.sources import load
from raysim.data.tokens import BATCH_ROWS, NEXT, NO_TOKEN, TOKENS, Tokenizer, _load
from tests.kit.tokenizers import write_tokenizer

TABLE = pa.table({"text": ["to be", "or not", "", "to"], "label": [0, 1, 1, 0], "speaker": ["a", "b", "b", "a"]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def test_bytes_with_a_label_are_padded_and_cut() -> None:
    table = Tokenizer(length=4)(TABLE, "label", ["speaker"], ())
    assert table.schema.names == [TOKENS, "label", "speaker"]
    assert table[TOKENS].to_pylist() == [list(b"to b"), list(b"or n"), [NO_TOKEN] * 4, [*b"to", NO_TOKEN, NO_TOKEN]]
    assert table["label"].to_pylist() == [0, 1, 1, 0]


def test_sequences_of_an_owner_predict_each_next_token() -> None:
    table = Tokenizer(length=3, predict="next-token")(TABLE, "text", ["speaker"], ())
    assert table.schema.names == [TOKENS, "speaker", NEXT] and table["speaker"].to_pylist() == [
        "a",
        "a",
        "a",
        "b",
        "b",
        "b",
    ]
    assert table.schema.field(NEXT).metadata == {b"classes": b"256"}
    x, y = (np.array(table[name].to_pylist()) for name in (TOKENS, NEXT))
    for owner, text in (("a", b"to be\nto\n"), ("b", b"or not\n\n")):
        rows = [place for place, name in enumerate(table["speaker"].to_pylist()) if name == owner]
        has_label = y[rows] != -100
        assert bytes(x[rows][has_label].tolist()) == text[:-1] and bytes(y[rows][has_label].tolist()) == text[1:]
        assert (x[rows][~has_label] == NO_TOKEN).all()


def test_without_owners_each_row_is_a_text_of_its_own() -> None:
    table = Tokenizer(length=8, predict="next-token")(TABLE.select(["text"]), "text", (), ())
    assert table.num_rows == 3  # an empty text has one token, the end, and nothing to predict
    assert bytes(each for each in table[TOKENS][0].as_py() if each >= 0) == b"to be"


def test_a_tokenizer_of_a_folder_and_of_a_file_agree(folder: Path) -> None:
    one, other = (
        Tokenizer(str(name), length=6)(TABLE, "label", (), ()) for name in (folder, folder / "tokenizer.json")
    )
    assert one.equals(other) and one[TOKENS].to_pylist()[0] == [3, 4, *[NO_TOKEN] * 4]
    pairs = Tokenizer(str(folder), ("text", "speaker"), 6)(TABLE, "label", (), ())
    assert pairs[TOKENS].to_pylist()[0][:2] == [3, 4] and pairs[TOKENS].to_pylist()[0] != one[TOKENS].to_pylist()[0]


def test_the_end_of_a_text_is_the_tokenizers(folder: Path) -> None:
    table = Tokenizer(str(folder), length=9, predict="next-token")(TABLE, "text", ["speaker"], ())
    assert [each for each in table[NEXT][0].as_py() if each >= 0] == [4, 1, 3, 1]


@pytest.mark.parametrize("predict", ["label", "next-token"])
@pytest.mark.parametrize("owners", [[], ["speaker"]])
def test_many_rows_have_the_tokens_of_each(predict: Any, owners: list[str], folder: Path) -> None:
    """Rows are encoded in batches; their number is above that of a batch, and no multiple of it."""
    rows = 2 * BATCH_ROWS + 3
    table = pa.table(
        {"text": [f"to be {row}" for row in range(rows)], "label": [0] * rows, "speaker": [*map(str, range(rows))]}
    )
    for name in ("bytes", str(folder)):
        tokenizer = Tokenizer(name, length=16, predict=predict)
        whole = tokenizer(table, "label", owners, ())
        parts = [tokenizer(table.slice(row, 1), "label", owners, ()) for row in range(0, rows, BATCH_ROWS - 1)]
        assert [
            whole.slice(row, 1).equals(part) for row, part in zip(range(0, rows, BATCH_ROWS - 1), parts, strict=True)
        ]
        assert whole.num_rows == rows


@pytest.mark.parametrize(("predict", "length"), [("label", 16), ("next-token", 128)])
def test_tokens_take_no_more_memory_than_was_checked(
    predict: Any, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[tuple[int, int]] = []
    monkeypatch.setattr(
        tokens_module,
        "check_memory",
        lambda _, needed: checked.append((needed, tracemalloc.get_traced_memory()[0])),
    )
    text = "to be or " * 100
    table = pa.table({"text": [text] * 4000, "label": [0] * 4000})
    tracemalloc.start()
    try:
        Tokenizer(length=length, predict=predict)(table, "label", (), ())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    batch = 4 * BATCH_ROWS * len(text)
    assert peak < max(needed + held for needed, held in checked) + 2 * batch
    if predict == "next-token":  # 16 bytes a token; memory that is taken already is not asked for again
        assert max(needed + held for needed, held in checked[:-1]) < 1.15 * 16 * 4000 * (len(text) + 1)
    # The first check comes before more than a batch is encoded.
    assert checked[0][1] < 2 * batch


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (Tokenizer(columns=("txt",)), r"unknown column 'txt' of data.text.column: did you mean 'text'\?"),
        (Tokenizer(columns=("label",)), "column 'label' of data.text.column is int64: must hold text"),
        (Tokenizer("./nowhere"), "data.text.tokenizer = './nowhere' cannot be loaded"),
        (Tokenizer("./nowhere.json"), "data.text.tokenizer = './nowhere.json' cannot be loaded"),
    ],
)
def test_wrong_text_is_refused_in_one_line(tokenizer: Tokenizer, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as caught:
        tokenizer(TABLE, "label", (), ())
    assert "\n" not in str(caught.value)


def test_a_text_too_long_for_one_call_of_a_tokenizer_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partitioning.common.bounds.free_memory", lambda: 10**6)
    table = pa.table({"text": ["word " * 2000], "label": [0]})
    with pytest.raises(InputError, match=r"on 1 rows of 10,000 characters needs .* give fewer or smaller samples"):
        Tokenizer(str(folder))(table, "label", [], [])


def test_names_of_added_columns_are_refused() -> None:
    table = TABLE.rename_columns(["text", "tokens", "next"])
    for tokenizer, label in ((Tokenizer(), "tokens"), (Tokenizer(predict="next-token"), "text")):
        with pytest.raises(InputError, match="rename it"):
            tokenizer(table, label, ["next"], ())


def test_text_in_a_dictionary_is_text() -> None:
    table = TABLE.set_column(0, "text", TABLE["text"].dictionary_encode())
    assert Tokenizer(length=4)(table, "label", (), ()).equals(Tokenizer(length=4)(TABLE, "label", (), ()))


def test_a_file_of_text_alone(tmp_path: Path) -> None:
    (tmp_path / "lines.csv").write_text("text,who\nto be,a\nor not,b\n")
    source = load(f"file:{tmp_path}/lines.csv", text=Tokenizer(length=4, predict="next-token"), dividing=["who"])
    assert source.label == NEXT and source.train.schema.names == [TOKENS, "who", NEXT]
    with pytest.raises(InputError, match=r"'text' is string: must be numbers .*or name 'text' in \[data.text\]"):
        load(f"file:{tmp_path}/lines.csv", label="who")


def hostile(folder: Path, **changes: Any) -> Path:
    """Write a tokenizer.json with other keys of its model or of its own."""
    file = write_tokenizer(folder) / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"] |= {key: value for key, value in changes.items() if key in content["model"]}
    file.write_text(json.dumps(content | {key: value for key, value in changes.items() if key not in content["model"]}))
    return file


@pytest.mark.parametrize("form", ["file", "folder"])
@pytest.mark.parametrize("pattern", [{"String": "a"}, {"Regex": "."}, {"Regex": ""}])
def test_a_tokenizer_that_lengthens_texts_without_end_is_refused(form: str, pattern: Any, tmp_path: Path) -> None:
    replacements = [{"type": "Replace", "pattern": pattern, "content": "a" * 32}] * 40
    nested = {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": replacements}]}
    file = hostile(tmp_path / "words", normalizer=nested)
    with pytest.raises(InputError, match=r"may make a text .*e\+\d+ times as long: must be at most 1000"):
        _load(str(file if form == "file" else file.parent))


def replaced(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def template(pieces: list[Any], ids: int = 1) -> dict[str, Any]:
    known = {"unk": {"id": "unk", "ids": [0] * ids, "tokens": ["unk"] * ids}}
    return {"type": "TemplateProcessing", "single": pieces, "pair": [], "special_tokens": known}


SPECIAL, TEXT = {"SpecialToken": {"id": "unk", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
LONG: list[tuple[dict[str, Any], str]] = [
    ({"normalizer": [{"type": "Prepend", "prepend": "a" * 10**5}, replaced("a", "b" * 900)]}, "9e.07 char"),
    ({"normalizer": [{"type": "Prepend", "prepend": "a" * 10**5}]}, "1e.05 characters or tokens longer"),
    ({"normalizer": [{"type": "ByteLevel"}] * 40}, "e.24 times"),
    ({"normalizer": [replaced("a", "\ufdfa"), {"type": "NFKD"}] * 9}, "e.11 times"),
    ({"pre_tokenizer": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}] * 40}, "e.24 times"),
    ({"post_processor": [template([SPECIAL] * 1000 + [TEXT], 1000)]}, "1e.06 characters or tokens longer"),
    ({"post_processor": [template([TEXT] * 10**5)]}, "1e.05 times as long"),
]


@pytest.mark.parametrize(("parts", "message"), LONG)
def test_no_step_of_a_tokenizer_fills_the_memory(parts: dict[str, Any], message: str, tmp_path: Path) -> None:
    inner = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors"}
    nested = {part: {"type": "Sequence", inner[part]: steps} for part, steps in parts.items()}
    with pytest.raises(InputError, match=rf"may make a text .*{message}.*: must be at most 1000; use another"):
        _load(str(hostile(tmp_path / "words", **nested)))


def test_usual_replacements_are_none_of_these(tmp_path: Path) -> None:
    replacements = [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
        {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
        {"type": "NFKD"},
        {"type": "StripAccents"},
        {"type": "Lowercase"},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ]
    _load(str(hostile(tmp_path / "words", normalizer={"type": "Sequence", "normalizers": replacements})))


def test_a_vocabulary_without_its_unknown_token_is_refused(tmp_path: Path) -> None:
    file = hostile(tmp_path / "words", vocab={"to": 0, "be": 1}, added_tokens=[])
    table = pa.table({"text": ["to be", "or not"], "label": [0, 1]})
    with pytest.raises(InputError, match=r"data.text.tokenizer = .* cannot be applied \(.*\): must be .* for all text"):
        Tokenizer(str(file), ("text",), 4)(table, "label", [], [])
