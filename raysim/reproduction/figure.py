"""`[[figure]]`: a figure of the paper, as curves, points, bars or boxes of the study's results."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from raysim.common.errors import InputError, check_known
from raysim.config.check import ConfigTable, checked, part


class FigureTable(ConfigTable):
    """`[[figure]]`: form and axes of a figure; `[figure.panels]`, its contents, is read separately.

    Args:
        title: title, with the figure's number in the paper.
        form: "curves", one line an algorithm over the rounds. "points", one line an algorithm over the panel's ticks.
            "bars" or "boxes", one bar or box an algorithm at each tick.
        column: column of the results, or of `metrics.parquet`.
        x: label of the horizontal axis.
        y: label of the vertical axis; by default the column's name.
        scale: scale of the vertical axis.
        algorithms: algorithms to show; by default all.
        along: horizontal axis of curves: rounds (default), or progress in per cent of all rounds, which compares runs
            of different length.
        smooth: number of evaluated rounds in the running mean of curves.
        take: value that the other forms take of a trial's column; see claims.
    """

    title: str
    form: Literal["curves", "points", "bars", "boxes"]
    column: str
    x: str = ""
    y: str = ""
    scale: Literal["linear", "log"] = "linear"
    algorithms: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    along: Literal["rounds", "progress"] | None = None
    smooth: Annotated[int, Field(ge=1)] | None = None
    take: Literal["final", "last", "best", "least", "mean"] | None = None


class PlaceTable(ConfigTable):
    """Label of a panel that is not only a data set's name; missing keys are the figure's."""

    dataset: str
    algorithm: str | None = None
    column: str | None = None


Place: TypeAlias = tuple[str, str, str]
"""Results in a study: data set, algorithm and column."""

Series = Mapping[str, Mapping[str, Place]]
"""Contents of a panel: for each line, or colour of bars and boxes, its places by tick. Curves have the tick ""."""


@dataclass(frozen=True)
class Figure:
    """A figure: its form, and its panels by title."""

    table: FigureTable
    panels: Mapping[str, Series]

    @classmethod
    def of(cls, raw: Mapping[str, Any], datasets: Collection[str], algorithms: Sequence[str]) -> Figure:
        """Check a `[[figure]]` table.

        Args:
            raw: the table.
            datasets: data sets of the study.
            algorithms: algorithms of the study.

        Raises:
            InputError: the table is wrong, or names something that the study does not have.
        """
        table = checked(FigureTable, raw, "figure", besides=("panels",))
        for key in ("take",) if table.form == "curves" else ("along", "smooth"):
            if getattr(table, key) is not None:
                raise InputError(
                    f"figure {table.title!r}: {key} must not stand with form = {table.form!r}; leave it out"
                )
        for name in table.algorithms or ():
            check_known(f"figure {table.title!r}: algorithm {name!r}", name, algorithms)
        reader = _PanelReader(table, datasets, algorithms)
        panels = {title: reader.panel(title, given) for title, given in part(raw, "panels").items()}
        if not panels:
            raise InputError(f"figure {table.title!r} has no panel: must have one; add it to [figure.panels]")
        return cls(table, panels)


@dataclass(frozen=True)
class _PanelReader:
    """Reader of a figure's panels, for a study with these data sets and algorithms."""

    table: FigureTable
    datasets: Collection[str]
    algorithms: Sequence[str]

    def panel(self, title: str, given: Any) -> Series:
        """Read a panel: a data set's name, a table of labels, or a table of series."""
        if isinstance(given, str):
            return self._by_algorithm({"": given}, title)
        if not isinstance(given, dict) or not given:
            raise InputError(
                f"figure {self.table.title!r}: panel {title!r} = {given!r}: must be a data set's name, or a table of "
                "labels; correct it"
            )
        if self.table.form == "curves":
            return {label: {"": self._of_one(place, label)} for label, place in given.items()}
        is_series = [isinstance(each, dict) and "dataset" not in each for each in given.values()]
        if not any(is_series):
            return self._by_algorithm(given, title)
        if not all(is_series):
            raise InputError(
                f"figure {self.table.title!r}: panel {title!r} has series and ticks beside each other: must have only "
                "one of both; give each label a data set, or a table of ticks"
            )
        return {
            label: {tick: self._of_one(place, label) for tick, place in ticks.items()} for label, ticks in given.items()
        }

    def _by_algorithm(self, ticks: Mapping[str, Any], title: str) -> Series:
        """Return, at each tick, all algorithms of the figure, or only the one that the tick names."""
        places = {
            tick: self._place(each, f"{title!r}, {tick!r}" if tick else repr(title)) for tick, each in ticks.items()
        }
        series: dict[str, dict[str, Place]] = {name: {} for name in self._shown}
        for tick, each in places.items():
            for name in [each.algorithm] if each.algorithm else self._shown:
                place = (each.dataset, name, each.column or self.table.column)
                series.setdefault(name, {})[tick] = place
        return {name: at for name, at in series.items() if at}

    def _of_one(self, given: Any, label: str) -> Place:
        """Return the place of a label that is a line by itself, and so has one algorithm."""
        each = self._place(given, repr(label))
        if each.algorithm is None and len(self._shown) > 1:
            raise InputError(
                f"figure {self.table.title!r}: {label!r} is a line by itself: must have one algorithm; write "
                f'{{ dataset = "{each.dataset}", algorithm = ... }}'
            )
        return each.dataset, each.algorithm or self._shown[0], each.column or self.table.column

    def _place(self, given: Any, path: str) -> PlaceTable:
        if not isinstance(given, str | dict):
            raise InputError(
                f"figure {self.table.title!r}: {path} = {given!r}: must be a data set's name, or a table with "
                "dataset; correct it"
            )
        place = checked(PlaceTable, {"dataset": given} if isinstance(given, str) else given, f"figure.panels.{path}")
        figure = f"figure {self.table.title!r}"
        check_known(f"{figure}: data set {place.dataset!r}", place.dataset, self.datasets)
        if place.algorithm is not None:
            check_known(f"{figure}: algorithm {place.algorithm!r}", place.algorithm, self.algorithms)
        return place

    @property
    def _shown(self) -> Sequence[str]:
        return self.table.algorithms or self.algorithms
