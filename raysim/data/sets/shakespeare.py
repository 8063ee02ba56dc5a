"""Shakespeare by speaking role: 80 characters, and the next one as the label."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from partitioning.common.bounds import check_memory
from partitioning.sources.arrays import nested
from partitioning.sources.memory import Tables
from raysim.common.errors import InputError
from raysim.common.log import LOG
from raysim.data.reading import missing, text_of, words_of

VOCABULARY = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters; a character's number is its place: line feed 0, space 1, ..., "}" 79."""

WINDOW = 80

FILES = ("shakespeare.txt", "tinyshakespeare.txt", "shakespeare.parquet", "shakespeare.csv")

_ROLE = re.compile(r"[^:\s][^:]*:")


def read_shakespeare(root: Path) -> Tables:
    """Return all windows of every speaking role's text.

        x_i = text[i : i + 80],  y_i = text[i + 80]   for i = 0, 1, ..., len(text) - 81

    A role's text is its lines, in order, joined by line feeds. Characters beyond the vocabulary and roles of at most 80
    characters are dropped; the log counts both.

    Args:
        root: folder with one of `FILES`, or such a file. In a text, a line `Name:` after an empty one begins a speech.
            A table has the columns `speaker` and `text`, and each row is a speech.

    Returns:
        `text`, 80 int16 numbers of characters; `label`, int64, the number of the next; `speaker`. There is no test
        part.

    Raises:
        InputError: there is no such file, or it has no speaker with more than 80 characters.

    Paper: RADFed, section IV-B; the vocabulary is that of LEAF (Caldas et al., arXiv:1812.01097).
    """
    path, speeches = _speeches(root)
    texts: dict[str, list[str]] = {}
    for speaker, text in speeches:
        texts.setdefault(speaker.strip(), []).extend([text] if text else [])
    numbers = {speaker: _numbers("\n".join(parts)) for speaker, parts in sorted(texts.items())}
    unknown = sum(len("\n".join(parts)) for parts in texts.values()) - sum(map(len, numbers.values()))
    long_enough = {speaker: text for speaker, text in numbers.items() if len(text) > WINDOW}
    LOG.info(
        "%s: %d speakers; %d with at most %d characters and %d characters beyond the vocabulary are dropped",
        path.name,
        len(long_enough),
        len(numbers) - len(long_enough),
        WINDOW,
        unknown,
    )
    if not long_enough:
        raise InputError(f"{path} has no speaker with more than {WINDOW} characters: give a longer text")
    held = sum(text.nbytes * WINDOW for text in long_enough.values())
    check_memory(f"{path}, in windows of {WINDOW} characters,", held)
    return pa.concat_tables([_windows(speaker, text) for speaker, text in long_enough.items()]), None


def read_speeches(root: Path) -> Tables:
    """Return all speeches with a text: `text` and `speaker`; there is no test part.

    Args:
        root: as in `read_shakespeare`.

    Raises:
        InputError: there is no such file, or nobody speaks in it.
    """
    path, speeches = _speeches(root)
    spoken = [(speaker.strip(), text) for speaker, text in speeches if text]
    if not spoken:
        raise InputError(f"{path} has no speech: give a longer text")
    speakers, texts = zip(*spoken, strict=True)
    return pa.table({"text": pa.array(texts, pa.string()), "speaker": pa.array(speakers, pa.string())}), None


def _speeches(root: Path) -> tuple[Path, Iterable[tuple[str, ...]]]:
    path = next((path for path in (root, *(root / name for name in FILES)) if path.is_file()), None)
    if path is None:
        raise missing(root, " or ".join(FILES), "gutenberg.org/ebooks/100, public domain")
    return path, _spoken(path) if path.suffix.lower() == ".txt" else words_of(path, "speaker", "text")


def _spoken(path: Path) -> Iterator[tuple[str, str]]:
    # The first line of a paragraph may name its speaker; otherwise the speaker before goes on.
    speaker = None
    for paragraph in re.split(r"\n\s*\n", text_of(path).strip()):
        first, _, rest = paragraph.partition("\n")
        named = _ROLE.fullmatch(first.strip())
        if named:
            speaker = first.strip()[:-1]
        text = rest if named else paragraph
        if speaker is not None:
            yield speaker, text
    if speaker is None:
        raise InputError(f'{path} has no line that is "Name:" and begins a speech: mark who speaks')


def _numbers(text: str) -> np.ndarray:
    known = {character: place for place, character in enumerate(VOCABULARY)}
    return np.array([known[character] for character in text if character in known], dtype=np.int16)


def _windows(speaker: str, text: np.ndarray) -> pa.Table:
    windows = np.lib.stride_tricks.sliding_window_view(text, WINDOW)[:-1]
    names = pa.array([speaker] * len(windows), pa.string())
    return pa.table({"text": nested(windows), "label": text[WINDOW:].astype(np.int64), "speaker": names})
