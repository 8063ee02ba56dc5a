"""Lines of `raysim list keys`: every key of the experiment file and of `[study]`; torch is not imported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from partitioning.common.errors import nearest
from raysim.common.errors import UnknownError
from raysim.config.reference import Group, Key, groups
from raysim.studies.file import study_groups

WIDEST = 44
"""Most characters of the column of types that all lines share; a longer type moves its own line."""

Line = tuple[str, str]


def key_lines(word: str | None) -> list[Line]:
    """Return the keys of a table, or one key, with type, default and meaning; all keys without a word.

    Args:
        word: name of a table (`local`), `top` for the keys outside tables, or `TABLE.KEY`.

    Raises:
        InputError: there is no such table or key.
    """
    found = list(_found([*groups(), *study_groups()], word))
    kinds = [(group, key, key.kind) for group, key in found]
    width = min(WIDEST, max(len(kind) for *_, kind in kinds))
    defaults = max(min(len(key.shown_default), 20) for _, key in found)
    return [
        (
            key.path,
            f"{kind:<{width}}  {key.shown_default:<{defaults}}  {key.meaning}"
            + (f" [{group.thing}]" if group.thing else ""),
        )
        for group, key, kind in kinds
    ]


def _found(known: Sequence[Group], word: str | None) -> Iterator[tuple[Group, Key]]:
    tables = dict.fromkeys(group.table for group in known)
    paths = dict.fromkeys(key.path for group in known for key in group.keys)
    if word is not None and word not in (*tables, *paths):
        near = nearest(word, [*tables, *paths])
        question = f"did you mean {near[0][0]!r}?" if near else ""
        raise UnknownError(f"table or key {word!r}", word, list(tables), question, len(tables))
    for group in known:
        for key in group.keys:
            if word is None or group.table == word or key.path == word or key.path.startswith(f"{word}."):
                yield group, key
