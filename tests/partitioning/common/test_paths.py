"""Paths of a user: wrong texts are refused in one line, and only regular files are opened, without waiting."""

import os
import random
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from partitioning.common.errors import InputError
from partitioning.common.paths import check_path, open_regular, read_bytes, read_text, regular

WRONG = ["", "a\0b", "\udcff", "\ud800.csv", "x" * 256, "é" * 128, "/".join(["x" * 200] * 30)]


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_wrong_texts_are_refused_with_the_key_in_one_short_line(text: str) -> None:
    with pytest.raises(InputError, match=r"data\.root = .*: must be a path, and .*; correct it") as error:
        check_path("data.root", text)
    assert len(str(error.value)) < 200 and str(error.value).isascii()


@pytest.mark.parametrize("text", ["a", ".", "/", "x" * 255, "é" * 127, "a b\n", "/".join(["x" * 99] * 40), "~"])
def test_any_other_text_is_a_path(text: str) -> None:
    assert check_path("data.root", text) == Path(text)


def _socket(path: Path) -> None:
    socket.socket(socket.AF_UNIX).bind(str(path))


MAKERS: dict[str, Callable[[Path], object]] = {
    "named pipe": os.mkfifo,
    "socket": _socket,
    "folder": Path.mkdir,
    "loop": lambda path: path.symlink_to(path),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link to nothing": lambda path: path.symlink_to(path.with_name("nothing")),
    "missing": lambda path: None,
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.filterwarnings("ignore:unclosed")
def test_nothing_but_regular_files_is_opened_and_nothing_waits(kind: str, tmp_path: Path) -> None:
    MAKERS[kind](path := tmp_path / "x")
    for opened in (open_regular, regular, read_bytes, read_text):
        with pytest.raises(OSError, match=r"it is a|Too many levels|No such file|No such device"):
            opened(path)


def test_names_that_are_no_paths_are_errors_of_the_system() -> None:
    for text in ("a\0b", "\ud800"):
        with pytest.raises(OSError, match="its name is no path"):
            open_regular(text)


def test_a_file_exchanged_for_a_pipe_is_never_waited_for(tmp_path: Path) -> None:
    path, draw, done = tmp_path / "x", random.Random(0), threading.Event()

    def exchange() -> None:
        while not done.is_set():
            (aside := tmp_path / "aside").unlink(missing_ok=True)
            aside.write_bytes(b"sound") if draw.random() < 0.5 else os.mkfifo(aside)
            aside.replace(path)

    (thread := threading.Thread(target=exchange, daemon=True)).start()
    seen = set()
    for number in range(1_000_000):
        try:
            seen.add(read_bytes(path))
        except OSError as error:
            seen.add(type(error).__name__)
        if number >= 2_000 and b"sound" in seen:  # On a busy machine the thread may begin late.
            break
    done.set()
    thread.join()
    assert b"sound" in seen and seen <= {b"sound", "OSError", "FileNotFoundError"}


def test_a_text_is_read_with_line_feeds(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes("\ufeffä\r\nb\rc\n".encode())
    assert read_text(tmp_path / "x", "utf-8-sig") == "ä\nb\nc\n"
    assert regular(tmp_path / "x") == tmp_path / "x"
