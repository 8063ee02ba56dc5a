"""The file of a reproduction: a study with the paper's setting, what is less where it is reduced, and the claims."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from raysim.config.check import Table, checked, part
from raysim.config.read import assign, changed
from raysim.errors import InputError, unknown
from raysim.folder import algorithm_names
from raysim.reproduction.figure import Figure
from raysim.studies.grid import flat

Reach = Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)]
"""A round, or a share of them all."""


class About(Table):
    """`[reproduction]`: what of which paper it is, and what a reader must know of the setting."""

    paper: str
    place: str
    note: str = ""


class Reduced(Table):
    """`[reduced]`: what is run where nothing is said; `[reduced.set]` has the keys that differ from the paper's."""

    datasets: tuple[str, ...] | None = None
    algorithms: tuple[str, ...] | None = None
    note: str = ""


class Claim(Table):
    """`[[claim]]`: a number of the paper, where its counterpart is, and what would bear it out.

    Args:
        says: the claim, in words.
        dataset: of the study.
        algorithm: its folder.
        column: of the results, or of `metrics.parquet`.
        take: what of the column: the chosen model's value ("final"), the last, largest, smallest or mean value over the
            rounds, the standard deviation of its changes from one evaluated round to the next ("jitter"), or the first
            round at `level` ("reached").
        level: see `take`.
        since: the first of the rounds that count, as a number or as a share of all; not with "final".
        until: likewise the last one.
        minus: the algorithm that is subtracted; with `minus_dataset` also, or only, on another data set.
        minus_dataset: see `minus`.
        relative: whether the difference is in parts of what is subtracted.
        than_dataset: a data set whose difference between the two algorithms is subtracted from that of `dataset`.
        paper: the paper's number.
        above: it holds if the number is above this one;
        below: if it is below;
        within: if it is no further from the paper's.
        full: whether only the paper's setting can tell.
    """

    says: str
    dataset: str
    algorithm: str
    column: str
    take: Literal["final", "last", "best", "least", "mean", "jitter", "reached"] = "final"
    level: float | None = None
    since: Reach | None = None
    until: Reach | None = None
    minus: str | None = None
    minus_dataset: str | None = None
    relative: bool = False
    than_dataset: str | None = None
    paper: float | None = None
    above: float | None = None
    below: float | None = None
    within: Annotated[float, Field(ge=0)] | None = None
    full: bool = False

    def check(self) -> None:
        """InputError where the keys do not go together."""
        conditions = [key for key in ("above", "below", "within") if getattr(self, key) is not None]
        if len(conditions) != 1:
            what = " and ".join(conditions) or "no condition"
            raise InputError(f"claim {self.says!r} has {what}: must have one of above, below and within; mend it")
        if self.within is not None and self.paper is None:
            raise InputError(f"claim {self.says!r} has `within` and no number of the paper: must have it; set paper")
        if self.than_dataset is not None and (self.minus is None or self.minus_dataset is not None):
            raise InputError(
                f"claim {self.says!r}: than_dataset must stand with `minus` and without `minus_dataset`; mend it"
            )
        if (self.level is None) == (self.take == "reached"):
            raise InputError(f'claim {self.says!r}: level must stand with take = "reached", and only there')
        if self.take == "final" and (self.since, self.until) != (None, None):
            raise InputError(f'claim {self.says!r}: since and until must stand with another take than "final"; set it')

    def met_by(self, number: float) -> bool:
        """Whether a number bears the claim out."""
        if self.above is not None:
            return number > self.above
        if self.below is not None:
            return number < self.below
        return abs(number - (self.paper or 0.0)) <= (self.within or 0.0)

    @property
    def condition(self) -> str:
        """The condition in words."""
        if self.above is not None:
            return f"above {self.above:g}"
        return f"below {self.below:g}" if self.below is not None else f"within {self.within:g} of the paper"


@dataclass(frozen=True)
class Reproduction:
    """A paper's table or figure.

    Args:
        name: of its file.
        about: it.
        claims: what it says.
        full: the study with the paper's setting.
        reduced: what is less where it is reduced.
        settings: the keys that have other values then.
        figures: of the paper.
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
        """Check what a file says; InputError where it is not as it must be."""
        given = part(raw, "reduced")
        reduced = checked(Reduced, given, "reduced", besides=("set",))
        claims = raw.get("claim", [])
        if not isinstance(claims, list) or not claims:
            raise InputError(f"reproduction {name}: must have a [[claim]]; add one")
        tables = tuple(checked(Claim, each, "claim") for each in claims)
        for each in tables:
            each.check()
        study = {key: value for key, value in raw.items() if key not in ("reproduction", "reduced", "claim", "figure")}
        about = checked(About, part(raw, "reproduction"), "reproduction")
        figures = _figures(raw.get("figure", []), study)
        return cls(name, about, tables, study, reduced, flat(part(given, "set")), figures)

    def study(self, full: bool, changes: Iterable[str] = ()) -> dict[str, Any]:
        """The tables of the study.

        Args:
            full: whether with the paper's setting.
            changes: `key.path=value` each.
        """
        raw = deepcopy(dict(self.full))
        if not full:
            _only(raw, self.reduced)
            for path, value in self.settings.items():
                assign(raw, path.split("."), value, f"reduced.set.{path}")
        return changed(raw, changes)


def _figures(given: Any, study: Mapping[str, Any]) -> tuple[Figure, ...]:
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise InputError(f"figure = {given!r}: must be tables; write [[figure]] and its keys below")
    datasets = part(part(study, "study"), "datasets")
    return tuple(Figure.of(each, datasets, list(_by_name(study))) for each in given)


def _by_name(study: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a study's algorithms, by their folders."""
    several = study.get("algorithm", {})
    tables = several if isinstance(several, list) else [several]
    return dict(zip(algorithm_names([table.get("name", "fedavg") for table in tables]), tables, strict=True))


def _only(raw: dict[str, Any], reduced: Reduced) -> None:
    """Leave of a study's data sets and algorithms those that are named."""
    if reduced.datasets is not None:
        there = part(part(raw, "study"), "datasets")
        raw["study"]["datasets"] = {name: _known(name, there, "data set") for name in reduced.datasets}
    if reduced.algorithms is not None:
        by_name = _by_name(raw)
        raw["algorithm"] = kept = [_known(name, by_name, "algorithm") for name in reduced.algorithms]
        if (names := algorithm_names([table["name"] for table in kept])) != list(reduced.algorithms):
            raise InputError(
                f"reduced.algorithms = {list(reduced.algorithms)}: their folders would be {names}, for the second of a "
                "name is called so after the first; name the first as well"
            )


def _known(name: str, there: Mapping[str, Any], what: str) -> Any:
    if name not in there:
        raise unknown(f"reduced: {what} {name!r}", name, list(there))
    return there[name]


def reproductions() -> dict[str, Path]:
    """The reproductions that come with raysim, by name."""
    folder = Path(str(files("raysim") / "recipes" / "papers"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_reproduction(name: str) -> Reproduction:
    """Read a reproduction by its name, or by the path of its file.

    Raises:
        InputError: there is no such one, or it is not as it must be.
    """
    path = Path(name)
    if path.suffix != ".toml":
        if name not in reproductions():
            raise unknown(f"reproduction {name!r}", name, list(reproductions()))
        path = reproductions()[name]
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"reproduction {name!r}: must be a TOML file ({error}); correct it") from None
    return Reproduction.of(raw, path.stem)


def differences(reproduction: Reproduction) -> Sequence[tuple[str, Any, Any]]:
    """What the reduced setting changes: a key, the paper's value and ours; None where there is none."""
    before = flat(reproduction.full)
    return [(path, before.get(path), value) for path, value in reproduction.settings.items()]
