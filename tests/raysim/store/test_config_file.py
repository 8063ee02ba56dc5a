"""The stored configuration of a run: edits that keep its values pass, others are refused by the key's name."""

import tomllib
from pathlib import Path

import pytest

from raysim.common.errors import InputError
from raysim.store.config_file import check_config, config_text, write_config

TEXT = config_text({"seed": 5, "checkpoint": {"every": 1}, "local": {"lr": 0.1}})


def check(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="")
    check_config(path, tomllib.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"# a note\n{TEXT}# another one\n\n",
        TEXT.replace("\n", "\r\n"),
        TEXT.replace("seed = 5", "seed=5 # a note"),
        TEXT.replace("every = 1", "every = 20"),
    ],
)
def test_comments_layout_and_free_keys_may_be_edited(tmp_path: Path, text: str) -> None:
    check(tmp_path / "config.toml", text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT.replace("0.1", "0.2"), "local was changed"),
        (TEXT.replace("seed = 5\n", ""), "seed was changed"),
        (TEXT.replace("# checksums", "# sums"), "has no line of checksums"),
        (TEXT.replace("# checksums {", "# checksums "), "has no line of checksums"),
    ],
)
def test_another_edit_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check(tmp_path / "config.toml", text)


def test_a_file_that_holds_the_values_keeps_its_comments(tmp_path: Path) -> None:
    path, config = tmp_path / "config.toml", tomllib.loads(TEXT)
    path.write_text(f"# a note\n{TEXT}# another one\n", encoding="utf-8")
    write_config(path, config)
    assert path.read_text(encoding="utf-8") == f"# a note\n{TEXT}# another one\n"
    for text in (TEXT.replace("every = 1", "every = 2"), TEXT.replace("# checksums", "# sums"), "seed ="):
        path.write_text(text, encoding="utf-8")
        write_config(path, config)
        assert path.read_text(encoding="utf-8") == TEXT
