"""Lines of `raysim list keys`: every key of the experiment file and of `[study]`; torch is not imported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from raysim.common.errors import UnknownError
from raysim.config.check import UnknownKeyError
from raysim.config.reference import Group, Key, groups
from raysim.studies.keys import study_groups

WIDEST = 44
"""Most characters of the column of types that all lines share; a longer type moves its own line."""

Line = tuple[str, str]


def key_lines(word: str | None) -> list[Line]:
    """Return the keys of a table, or one key, with type, default and meaning; all keys without a word.

    Args:
        word: name of a table (`local`), `top` for the keys outside tables, `TABLE.KEY`, or `TABLE.NAME` for the keys
            that a named thing adds to its table (`algorithm.fedprox`).

    Raises:
        InputError: there is no such table, key or thing.
    """
    known = [*groups(), *study_groups()]
    found = list(_found(known, word))
    if not found:
        named = next((group for group in known if word == group.path), None)
        if named is None:
            raise _unknown(known, word or "")
        return [(named.path, f"no keys of its own; see `raysim list keys {named.table}`")]
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
    for group in known:
        for key in group.keys:
            if word in (None, group.table, group.path, key.path) or key.path.startswith(f"{word}."):
                yield group, key


def _unknown(known: Sequence[Group], word: str) -> UnknownError:
    """Return the error about a word; it compares a key of a known table with the keys of this table alone."""
    tables = dict.fromkeys(group.table for group in known)
    table, _, key = word.rpartition(".")
    if table in tables:
        own = [group for group in known if group.table == table]
        names = [each.name for group in own for each in group.keys] + [group.name for group in own if group.name]
        return UnknownKeyError(table, key, names)
    return UnknownError(f"table or key {word!r}", word, list(tables), most=len(tables))
