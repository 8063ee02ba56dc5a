"""`[[figure]]`: a figure of the paper, as the lines, bars or boxes that stand for it in the study."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from raysim.common.errors import InputError, unknown
from raysim.config.check import ConfigTable, checked, part

Form = Literal["curves", "points", "bars", "boxes"]


class FigureTable(ConfigTable):
    """`[[figure]]`: how a figure is drawn; `[figure.panels]`, which says of what, is read apart.

    Args:
        title: with its number in the paper.
        form: "curves", a column by round, one line an algorithm; "points", one line an algorithm over the panel's
            ticks; "bars" and "boxes", one bar or box an algorithm at each tick.
        column: of the results, or of `metrics.parquet`.
        x: what the horizontal axis is called.
        y: the vertical one; by default what the column is called.
        scale: of the vertical axis.
        algorithms: the lines, bars or boxes; by default all.
        along: of curves, what is across: the rounds, which is the default, or the share of all rounds, by which lines
            of different length compare.
        smooth: of curves, over how many evaluated rounds a running mean is taken.
        take: of the other forms, what of the column; as of a claim.
    """

    title: str
    form: Form
    column: str
    x: str = ""
    y: str = ""
    scale: Literal["linear", "log"] = "linear"
    algorithms: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    along: Literal["rounds", "progress"] | None = None
    smooth: Annotated[int, Field(ge=1)] | None = None
    take: Literal["final", "last", "best", "least", "mean"] | None = None


class PlaceTable(ConfigTable):
    """A label of a panel, where it is not a data set's name alone; what is left out is the figure's."""

    dataset: str
    algorithm: str | None = None
    column: str | None = None


@dataclass(frozen=True)
class Place:
    """Where in a study a curve, or the values at a tick, are found."""

    dataset: str
    algorithm: str
    column: str


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Args:
        title: above it.
        series: for each line, or colour of bars and boxes, its places by the tick that they stand at; curves, which
            have no ticks, are at "".
    """

    title: str
    series: Mapping[str, Mapping[str, Place]]


@dataclass(frozen=True)
class Figure:
    """A figure: how it is drawn, and of what."""

    table: FigureTable
    panels: tuple[Panel, ...]

    @classmethod
    def of(cls, raw: Mapping[str, Any], datasets: Collection[str], algorithms: Sequence[str]) -> Figure:
        """Check what a `[[figure]]` says.

        Args:
            raw: the table.
            datasets: of the study.
            algorithms: likewise.

        Raises:
            InputError: it is not as it must be, or names what the study does not have.
        """
        table = checked(FigureTable, raw, "figure", besides=("panels",))
        _check_form(table)
        for name in table.algorithms or ():
            _known(table, "algorithm", name, algorithms)
        reader = _Reader(table, datasets, algorithms)
        panels = tuple(reader.panel(title, given) for title, given in part(raw, "panels").items())
        if not panels:
            raise InputError(f"figure {table.title!r} has no panel: must have one; add it to [figure.panels]")
        return cls(table, panels)


@dataclass(frozen=True)
class _Reader:
    """What reads the panels of a figure, in a study of these data sets and algorithms."""

    table: FigureTable
    datasets: Collection[str]
    algorithms: Sequence[str]

    def panel(self, title: str, given: Any) -> Panel:
        """A panel: a data set's name, or labels, or series of them."""
        if isinstance(given, str):
            return Panel(title, self._by_algorithm({"": given}, title))
        if not isinstance(given, dict) or not given:
            raise InputError(
                f"figure {self.table.title!r}: panel {title!r} = {given!r}: must be a data set's name, or a table of "
                "labels; correct it"
            )
        if self.table.form == "curves":
            return Panel(title, {label: {"": self._of_one(place, label)} for label, place in given.items()})
        is_series = [isinstance(each, dict) and "dataset" not in each for each in given.values()]
        if not any(is_series):
            return Panel(title, self._by_algorithm(given, title))
        if not all(is_series):
            raise InputError(
                f"figure {self.table.title!r}: panel {title!r} has series and ticks beside each other: must have one "
                "of both; give each label a data set, or a table of ticks"
            )
        series = {
            label: {tick: self._of_one(place, label) for tick, place in ticks.items()} for label, ticks in given.items()
        }
        return Panel(title, series)

    def _by_algorithm(self, ticks: Mapping[str, Any], title: str) -> dict[str, dict[str, Place]]:
        """At each tick all algorithms of the figure, or the one that the tick names."""
        places = {
            tick: self._place(each, f"{title!r}, {tick!r}" if tick else repr(title)) for tick, each in ticks.items()
        }
        series: dict[str, dict[str, Place]] = {name: {} for name in self._shown}
        for tick, each in places.items():
            for name in [each.algorithm] if each.algorithm else self._shown:
                place = Place(each.dataset, name, each.column or self.table.column)
                series.setdefault(name, {})[tick] = place
        return {name: at for name, at in series.items() if at}

    def _of_one(self, given: Any, label: str) -> Place:
        """The place of a label that is a line by itself, so has one algorithm."""
        each = self._place(given, repr(label))
        if each.algorithm is None and len(self._shown) > 1:
            raise InputError(
                f"figure {self.table.title!r}: {label!r} is a line by itself: must have one algorithm; write "
                f'{{ dataset = "{each.dataset}", algorithm = ... }}'
            )
        return Place(each.dataset, each.algorithm or self._shown[0], each.column or self.table.column)

    def _place(self, given: Any, where: str) -> PlaceTable:
        if not isinstance(given, str | dict):
            raise InputError(
                f"figure {self.table.title!r}: {where} = {given!r}: must be a data set's name, or a table with "
                "dataset; correct it"
            )
        place = checked(PlaceTable, {"dataset": given} if isinstance(given, str) else given, f"figure.panels.{where}")
        _known(self.table, "data set", place.dataset, self.datasets)
        if place.algorithm is not None:
            _known(self.table, "algorithm", place.algorithm, self.algorithms)
        return place

    @property
    def _shown(self) -> Sequence[str]:
        return self.table.algorithms or self.algorithms


def _check_form(table: FigureTable) -> None:
    """InputError where a key does not go with the form."""
    of_others = ("take",) if table.form == "curves" else ("along", "smooth")
    for key in of_others:
        if getattr(table, key) is not None:
            raise InputError(f"figure {table.title!r}: {key} must not stand with form = {table.form!r}; leave it out")


def _known(table: FigureTable, what: str, name: str, there: Collection[str]) -> None:
    if name not in there:
        raise unknown(f"figure {table.title!r}: {what} {name!r}", name, there)
