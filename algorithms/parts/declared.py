"""Declarations of a user's own option: its names, its settings and their conflicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from algorithms.core.errors import InputError
from algorithms.core.returned import encodes, is_own, names_of
from algorithms.parts.conflicts import LATER, PAIRS
from algorithms.parts.option import Conflict, Option, Parts
from algorithms.parts.settings import SETTINGS


def check_declared(parts: Parts) -> None:
    """Raise InputError for the first declaration of a user's own option that is not of its kind, or never counts."""
    for option in filter(is_own, parts.folded):
        names_of(option, "columns")
        _check_texts(option)
        paired = {name for each in (*PAIRS, *LATER, *_conflicts(_kinds(Option))) for name in each[:2]}
        for name in option.settings.keys() - paired - {option.name}:
            raise _unknown(option, "settings", name, "its `name`, or a setting of a pair", paired)
        ours = {name for each in (*PAIRS, *LATER, *_conflicts(_ours())) for name in each[:2]}
        known = {*SETTINGS, *ours, *filter(encodes, (kind.name for kind in _kinds(Option)))}
        known |= {name for each in parts.folded for name in each.settings}
        for name in (name for each in option.conflicts for name in each[:2] if name not in known):
            raise _unknown(option, "conflicts", name, "a setting that parts or options have", known)


def _kinds(kind: type[Option]) -> Iterator[type[Option]]:
    """Yield the classes derived from one, and those derived from them."""
    for each in kind.__subclasses__():
        yield each
        yield from _kinds(each)


def _ours() -> Iterator[type[Option]]:
    return (kind for kind in _kinds(Option) if kind.__module__.startswith("algorithms."))


def _conflicts(kinds: Iterable[type[Option]]) -> Iterator[Conflict]:
    """Yield the pairs that some classes declare; one of another option may be no pair, which is refused there."""
    for kind in kinds:
        if isinstance(kind.conflicts, tuple):
            yield from filter(_is_pair, kind.conflicts)


def _is_pair(conflict: object) -> bool:
    return isinstance(conflict, tuple) and len(conflict) == len(Conflict._fields) and all(map(encodes, conflict))


def _check_texts(option: Option) -> None:
    pairs, settings = option.conflicts, option.settings
    if not isinstance(pairs, tuple | list) or not all(map(_is_pair, pairs)):
        wrong = next((each for each in pairs if not _is_pair(each)), "") if isinstance(pairs, tuple | list) else pairs
        raise InputError(
            f"option {option}: its `conflicts` must be a tuple of Conflict(one, other, must, remedy), each a text, and "
            f"has {wrong!r:.80}; correct it"
        )
    if not isinstance(settings, Mapping) or not all(map(encodes, settings)):
        raise InputError(f"option {option}: its `settings` must be texts by name, and are {settings!r:.80}; correct it")
    for name, text in settings.items():
        if not callable(text) and not encodes(text):
            raise InputError(
                f"option {option}: its `settings` must be texts, or functions of (parts, devices) that return one, and "
                f"{name!r} is {text!r:.80}; correct it"
            )


def _unknown(option: Option, what: str, name: str, allowed: str, known: set[str]) -> InputError:
    near = get_close_matches(name, sorted(known), 1)
    remedy = f"did you mean {near[0]!r}?" if near else "see `algorithms.parts.settings.SETTINGS`"
    return InputError(f"option {option}: its `{what}` names {name!r}: must be {allowed}; {remedy}")
