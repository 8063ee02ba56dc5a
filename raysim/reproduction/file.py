"""File of a reproduction: a study in the paper's setting, its reduction, the paper's figures and claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from partitioning.common.paths import check_path
from raysim.common.errors import InputError, check_known
from raysim.config.check import ConfigTable, checked, flat, part
from raysim.config.read import Change, algorithm_names, algorithm_tables, apply, changed, read_toml
from raysim.reproduction.claim import Claim
from raysim.reproduction.figure import Figure


class About(ConfigTable):
    """`[reproduction]`: the paper, the table or figure, and a note on the setting.

    Args:
        paper: the paper, or the project that publishes the numbers.
        place: table or figure.
        note: note on the setting.
        judge: short name of the publisher, if the file compares published cells one by one.
    """

    paper: str
    place: str
    note: str = ""
    judge: str = ""


class Reduced(ConfigTable):
    """`[reduced]`: the default setting; `[reduced.set]` has the keys that differ from the paper's.

    Args:
        datasets: data sets to run; default: all.
        algorithms: algorithms to run; default: all.
        without: keys of the paper's setting to remove before others are set.
        note: differences from the paper in words.
        found: findings of the run, such as the reason why a claim does not hold.
    """

    datasets: tuple[str, ...] | None = None
    algorithms: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    note: str = ""
    found: str = ""


@dataclass(frozen=True)
class Reproduction:
    """Reproduction of a paper's table or figure.

    Args:
        name: name of its file.
        about: paper, table or figure, and a note.
        claims: the paper's claims.
        full: tables of the study in the paper's setting.
        reduced: the reduction.
        settings: keys that the reduced setting changes, with their values.
        figures: the paper's figures.
    """

    name: str
    about: About
    claims: tuple[Claim, ...]
    full: Mapping[str, Any]
    reduced: Reduced
    settings: Mapping[str, Any]
    figures: tuple[Figure, ...] = ()

    @classmethod
    def of(cls, raw: Mapping[str, Any], name: str) -> Reproduction:
        """Check the tables of a file; raise InputError if they are wrong."""
        given = part(raw, "reduced")
        reduced = checked(Reduced, given, "reduced", besides=("set",))
        study = {key: value for key, value in raw.items() if key not in ("reproduction", "reduced", "claim", "figure")}
        claims = _claims(raw.get("claim", []), study, name)
        about = checked(About, part(raw, "reproduction"), "reproduction")
        figures = _figures(raw.get("figure", []), study)
        return cls(name, about, claims, study, reduced, dict(flat(part(given, "set"))), figures)

    def study(self, full: bool, changes: Iterable[str] = ()) -> dict[str, Any]:
        """Return the tables of the study.

        Args:
            full: use the paper's setting, not the reduced one.
            changes: `key.path=value` each.
        """
        raw = deepcopy(dict(self.full))
        if not full:
            _only(raw, self.reduced)
            for path in self.reduced.without:
                _leave_out(raw, path)
            apply(raw, (Change(path, value, f"reduced.set.{path}") for path, value in self.settings.items()))
        return changed(raw, changes)

    @property
    def is_full_alone(self) -> bool:
        """Whether a bundled reproduction has no reduced setting."""
        return self._has_one_setting and not self.name.endswith("-quick")

    @property
    def is_quick_alone(self) -> bool:
        """Whether a bundled reproduction has no setting of the paper."""
        return self._has_one_setting and self.name.endswith("-quick")

    @property
    def _has_one_setting(self) -> bool:
        reduced = self.reduced
        is_less = bool(self.settings or reduced.datasets or reduced.algorithms or reduced.without)
        return self.name in reproductions() and not is_less

    def words(self, full: bool, as_it_comes: bool = True) -> dict[str, Any]:
        """Return the texts for readers. Findings belong to the unchanged setting that is run by default."""
        is_default = not full or self.is_full_alone
        return {
            "about": self.about.model_dump(),
            "note": "" if full else self.reduced.note,
            "found": self.reduced.found if as_it_comes and is_default else "",
        }


def _claims(given: Any, study: Mapping[str, Any], name: str) -> tuple[Claim, ...]:
    if not isinstance(given, list) or not given or not all(isinstance(each, dict) for each in given):
        raise InputError(f"reproduction {name}: must have at least one [[claim]]; add one")
    claims = tuple(checked(Claim, each, "claim") for each in given)
    # A study without [study.datasets] has a single data set under its own name.
    datasets, algorithms = part(part(study, "study"), "datasets"), list(_by_name(study))
    for claim in claims:
        claim.check()
        claim.check_names(datasets, algorithms)
    return claims


def _figures(given: Any, study: Mapping[str, Any]) -> tuple[Figure, ...]:
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise InputError(f"figure = {given!r}: must be tables; write [[figure]] and its keys below")
    datasets = part(part(study, "study"), "datasets")
    return tuple(Figure.of(each, datasets, list(_by_name(study))) for each in given)


def _by_name(study: Mapping[str, Any]) -> dict[str, Any]:
    tables = algorithm_tables(study)
    if not all(isinstance(table, dict) for table in tables):
        raise InputError(f"algorithm = {study['algorithm']!r}: must be a table; write [algorithm] and its keys below")
    return dict(zip(algorithm_names(tables), tables, strict=True))


def _only(raw: dict[str, Any], reduced: Reduced) -> None:
    """Keep only the data sets and algorithms that the reduction names."""
    if reduced.datasets is not None:
        there = part(part(raw, "study"), "datasets")
        raw["study"]["datasets"] = {name: _known(name, there, "data set") for name in reduced.datasets}
    if reduced.algorithms is not None:
        by_name = _by_name(raw)
        raw["algorithm"] = chosen = [_known(name, by_name, "algorithm") for name in reduced.algorithms]
        if (names := algorithm_names(chosen)) != list(reduced.algorithms):
            raise InputError(
                f"reduced.algorithms = {list(reduced.algorithms)}: "
                f"must keep their folder names, and would become {names}; name the first algorithm of that name, too"
            )


def _leave_out(raw: dict[str, Any], path: str) -> None:
    """Remove a key from nested tables; raise InputError if it is missing."""
    *above, last = path.split(".")
    table: Any = raw
    for key in above:
        table = table.get(key) if isinstance(table, dict) else None
    if not isinstance(table, dict) or last not in table:
        raise InputError(f"reduced.without: {path!r} must be a key of the file; correct it")
    del table[last]


def _known(name: str, there: Mapping[str, Any], what: str) -> Any:
    check_known(f"reduced: {what} {name!r}", name, there)
    return there[name]


def reproductions() -> dict[str, Path]:
    """Return the paths of the bundled reproductions by name."""
    folder = Path(str(files("raysim") / "recipes" / "papers"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_reproduction(name: str) -> Reproduction:
    """Read a reproduction by its name or its file's path.

    Raises:
        InputError: the reproduction does not exist, or its file is wrong.
    """
    path = check_path("the reproduction", name)
    if path.suffix != ".toml":
        check_known(f"reproduction {name!r}", name, reproductions())
        path = reproductions()[name]
    return Reproduction.of(read_toml(path, f"reproduction {name!r}"), path.stem)


def differences(reproduction: Reproduction) -> Sequence[tuple[str, Any, Any]]:
    """Return the reduced setting's changes: key, the paper's value, ours; None for a missing value."""
    before = dict(flat(dict(reproduction.full)))
    left_out = [(path, before.get(path), None) for path in reproduction.reduced.without]
    return left_out + [(path, before.get(path), value) for path, value in reproduction.settings.items()]
