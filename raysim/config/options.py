"""Tables of options in the experiment file: a key of `AlgorithmTable` or `Experiment` each, and known by its type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

from algorithms import Option
from raysim.common.errors import every, one_input_error
from raysim.config.check import ConfigTable, checked
from raysim.config.read import excluded
from raysim.measures.selection import Selection

if TYPE_CHECKING:  # It imports torch.
    from algorithms import State

Tell = Callable[[str], object]
"""Function that shows a notice of something that takes long."""


class OptionTable(ConfigTable):
    """Table of an option, of one algorithm or of the whole experiment; its methods raise InputError."""

    complete: ClassVar[Sequence[Mapping[str, Any]]] = ({},)
    """Settings that are complete, one of which goes with each other key."""

    around: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Complete settings, by the key of an inner table, with any value of the inner keys."""

    @classmethod
    def over(cls, where: str, common: Mapping[str, Any], special: Mapping[str, Any]) -> Self:
        """Check an algorithm's own table over the common one; `where` is its name."""
        # An algorithm's own key replaces a common one that it excludes.
        replaced = {other for key in special for other in excluded(key)}
        kept = {key: value for key, value in common.items() if key not in replaced}
        table = checked(cls, {**kept, **special}, where)

        def option() -> None:
            with one_input_error():
                table.option()

        every({"keys": table.check_keys, "option": option})
        return table

    def check_keys(self) -> None:
        """Check that the keys go together, as far as the option does not."""

    def option(self, algorithm: Any = None, labels: Any = None) -> Option | None:
        """Return the option as a value; None if it changes nothing.

        Args:
            algorithm: the algorithm's table; None if the option is of the whole experiment.
            labels: labels of the population, a `LabelReader`; None until it is known.
        """
        raise NotImplementedError

    def check(self, experiment: Any) -> None:
        """Check that the option fits the other tables of the experiment."""

    def check_run(self, clients: int, selection: Selection, columns: Sequence[str], own_models: bool) -> None:
        """Check that the option fits the run.

        Args:
            clients: number of training clients.
            selection: rules that act on evaluations.
            columns: columns of the evaluations.
            own_models: whether training clients have models of their own.
        """

    def solved(self, rate: float, rounds: int | None, tell: Tell) -> Self:
        """Return the table with what follows from the share of clients in a round, and the rounds if they are known."""
        return self

    def evaluated(self, state: State, tell: Tell) -> Mapping[str, float]:
        """Return the option's columns of `metrics.parquet` in a round with an evaluation."""
        return {}


def option_tables(model: type[ConfigTable]) -> dict[str, type[OptionTable]]:
    """Return the tables of options among the keys of a table."""
    kinds = {name: (*get_args(field.annotation), None)[0] for name, field in model.model_fields.items()}
    return {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, OptionTable)}


def options_of(table: ConfigTable) -> dict[str, OptionTable]:
    """Return the tables of options that a table has, by their keys."""
    values = {name: getattr(table, name) for name in type(table).model_fields}
    return {name: value for name, value in values.items() if isinstance(value, OptionTable)}
