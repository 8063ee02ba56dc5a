"""`[algorithm]` with its `[local]`, `[server]` and, if it has its own, `[model]`."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

from pydantic import Field

from algorithms import Algorithm, Compute, Mean, Participation, Robust
from algorithms.core.returned import place_of
from algorithms.names import ALGORITHMS
from algorithms.parts.clustered import OwnChoice
from algorithms.parts.schedule import LateUpdates, Reporting
from raysim.common.errors import InputError, MistakesError, each_error, every, one_input_error
from raysim.config import own
from raysim.config.check import ConfigTable, UnknownKeyError, checked, part, signature_of, table_of
from raysim.config.edges import EdgesTable
from raysim.config.ignored import Parts, composed_without, ignored_key
from raysim.config.local import LocalTable, local_of
from raysim.config.model import ModelTable, model_of
from raysim.config.options import OptionTable, Tell, option_tables, options_of
from raysim.config.own_errors import describe_error
from raysim.config.privacy import PrivacyTable
from raysim.config.read import algorithm_tables, short_name
from raysim.config.sampling import OortTable, cohort_rule
from raysim.config.server import ServerTable, server_of
from raysim.config.topology import TopologyTable
from raysim.config.uplink import DownlinkTable, UplinkTable

CHOOSE = "choose"
"""Key of an algorithm with several global models that may name a user's rule of choice."""


class AlgorithmTable(ConfigTable):
    """`[algorithm]`: the keys of all algorithms; the algorithm's own keys stand beside these."""

    name: str = "fedavg"
    """Algorithm: a name from `raysim list algorithms`, or `module:function` for your own."""
    label: str | None = None
    """Short name in place of the algorithm's in folders, tables and legends; by default none."""
    cohort: int | None = None
    """Number of clients per round; by default all training clients. Excludes `fraction`."""
    fraction: float | None = None
    """Share of the training clients per round, in (0, 1]; by default all. Excludes `cohort`."""
    sampling: str = "uniform"
    """Chance of a client to join: `uniform`, or `size`, proportional to its samples; `poisson`, each with chance
    `fraction`; `oort`, by the utility of its samples and the speed of its device; or your own rule,
    `module:function`."""
    oort: OortTable = OortTable()
    """Settings of `sampling = "oort"`."""
    candidates: int | None = None
    """Clients drawn in proportion to their samples; the cohort is those with the largest losses. By default none."""
    active: float = 1.0
    """Probability that a client is available in a round, in (0, 1]."""
    over: float = Reporting.over
    """Factor of over-selection: `over` x cohort clients are selected, and the first count. Needs `[devices]`."""
    deadline: float | None = Reporting.deadline
    """Virtual seconds after which a round ends; by default none. Needs `[devices]`."""
    late: LateUpdates = "drop"
    """Updates that arrive after their round: `drop` ignores them; `stale` counts them later, with less weight."""
    joins: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """First round of late clients, by domain or client name, or by number if that is no name; none by default."""
    local: LocalTable = LocalTable()
    """Training of a client update; takes precedence over the common `[local]`."""
    server: ServerTable = ServerTable()
    """Server rule; takes precedence over the common `[server]`."""
    uplink: UplinkTable | None = None
    """Way of a client's change to the server; takes precedence over the common `[uplink]`."""
    downlink: DownlinkTable | None = None
    """Way of the global model's change to the clients; takes precedence over the common `[downlink]`."""
    edges: EdgesTable | None = None
    """Edge servers between the clients and the cloud; takes precedence over the common `[edges]`."""
    privacy: PrivacyTable | None = None
    """Differential privacy of users; takes precedence over the common `[privacy]`."""
    topology: TopologyTable | None = None
    """Graph over which clients send each other models; takes precedence over the common `[topology]`."""
    model: ModelTable | None = None
    """Model of this algorithm alone; by default the common `[model]`."""

    def compose(self) -> Algorithm:
        """Return the algorithm as a value.

        Raises:
            InputError: a number is out of range, or two parts contradict each other.
        """
        with self._composing():
            return self._with_options(self._composer()(self._parts()))

    def _check(self) -> None:
        """Compose the algorithm; raise InputError also if one of the user's own ignores a key of the file."""
        with self._composing():
            compose, parts = self._composer(), self._parts()
            without = composed_without(self.name, compose, parts, self._function) if ":" in self.name else {}
            algorithm = compose(parts)
            if (ignored := ignored_key(algorithm, without, parts)) is not None:
                key, reason = ignored
                value, place = attrgetter(key.removeprefix("algorithm."))(self), place_of(self._function)
                raise InputError(f"{key} = {value!r}: must be left out for {self.name}{place}, which {reason}")
            self._with_options(algorithm)

    @contextmanager
    def _composing(self) -> Iterator[None]:
        """Seed the draws of the user's code in the context, and turn its errors into one line."""
        handled = sys.exception()
        try:
            with one_input_error(), own.secluded(*self.named):
                yield
        except (InputError, KeyboardInterrupt):
            raise
        except BaseException as error:  # The user's code may raise anything.
            if text := describe_error(error, self.named, handled):
                raise InputError(f"algorithm.name = {self.name!r}: must be composed, and raised {text}") from error
            raise

    @property
    def _function(self) -> Callable[..., Any]:
        function: Callable[..., Any] = own.resolve("algorithm.name", self.name, ALGORITHMS)
        return function

    def _parts(self) -> Parts:
        participation = Participation(
            self.fraction,
            self.cohort,
            cohort_rule(self.sampling, self.oort, self.candidates),
            self.active,
            Reporting(self.over, self.deadline, self.late),
        )
        return Parts(participation, self.local.value(), self.server.rule_value())

    def _composer(self) -> Callable[[Parts], Algorithm]:
        """Return the function that composes the algorithm from its parts, without options."""
        keys = self.beyond(AlgorithmTable) | choice_of(getattr(self, CHOOSE, ""))

        def compose(parts: Parts) -> Algorithm:
            algorithm = self._function(*parts, **keys)
            if not isinstance(algorithm, Algorithm):
                raise InputError(
                    f"algorithm.name = {self.name!r}: must return an Algorithm, and returned a "
                    f"{type(algorithm).__name__}; change the function"
                )
            return algorithm

        return compose

    def _with_options(self, algorithm: Algorithm) -> Algorithm:
        algorithm = algorithm.having(*filter(None, (each.option(self) for each in self.options)))
        rule = self.server.aggregation
        return algorithm if isinstance(rule, Mean) else algorithm.having(Robust(rule))

    @property
    def options(self) -> list[OptionTable]:
        """Tables of the options that the algorithm has."""
        return list(options_of(self).values())

    def solved(self, rounds: int | None, tell: Tell) -> AlgorithmTable:
        """Return the table with what follows from the number of rounds, such as a noise; see `OptionTable.solved`."""
        rate = 1.0 if self.fraction is None else self.fraction
        found = {name: table.solved(rate, rounds, tell) for name, table in options_of(self).items()}
        return self.model_copy(update=found)

    @property
    def named(self) -> list[str]:
        """Names that may be the user's own: everything behind the algorithm's result."""
        return own.names_in({"algorithm": self.to_toml()})

    def computed(self, compute: Compute) -> AlgorithmTable:
        """Return the table with `local.execution` and `local.channels_last` resolved."""
        resolved = {"execution": compute.execution, "channels_last": compute.channels_last}
        return self.model_copy(update={"local": self.local.model_copy(update=resolved)})


INNER = ("local", "server", *option_tables(AlgorithmTable), "model")
"""Tables that may also stand inside `[algorithm]`."""


def choice_of(name: object) -> dict[str, OwnChoice]:
    """Return the argument of an algorithm that is the user's rule of choice; none if the name is no such rule's.

    Raises:
        InputError: no such function, or it cannot take a context.
    """
    if not isinstance(name, str) or ":" not in name:
        return {}
    key, rule = f"algorithm.{CHOOSE}", own.resolve(f"algorithm.{CHOOSE}", name, {})
    own.check_parameters(key, name, own.instance(key, name, rule), ("context",))
    return {CHOOSE: OwnChoice(name, rule)}


def algorithms_of(raw: Mapping[str, Any]) -> tuple[AlgorithmTable, ...]:
    """Check and resolve a file's `[algorithm]` tables, each over the common `[local]`, `[server]` and `[model]`.

    Raises:
        InputError: see `checked`; also an unknown algorithm or rule, and parts that contradict each other.
    """
    tables = algorithm_tables(raw)
    if not tables or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"algorithm = {tables!r}: must be a table; write [algorithm] and its keys below")
    found: list[AlgorithmTable] = []
    errors: list[tuple[str, InputError]] = []
    for table in tables:
        try:
            found.append(_algorithm(dict(table), raw))
        except InputError as error:
            called = str(table.get("label", short_name(table.get("name", "fedavg"))))
            errors += [(called, _of_own_table(each, table)) for each in each_error(error)]
    if errors:
        # A mistake of all algorithms comes from their common tables, or from a change of all.
        times = Counter(str(each) for _, each in errors)
        raise MistakesError(*(each if times[str(each)] >= len(tables) else _named(each, name) for name, each in errors))
    _check_labels(found)
    return tuple(found)


def _check_labels(tables: Sequence[AlgorithmTable]) -> None:
    """Raise InputError if `algorithm.LABEL.key` would also mean something else."""
    for table in tables:
        if "." in (table.label or ""):
            raise InputError(
                f"algorithm.label = {table.label!r}: must have no dot, because a dot ends it in "
                "algorithm.LABEL.key; choose another label"
            )
        others = [short_name(other.name) for other in tables if other is not table]
        if table.label in (*others, *INNER, "oort", "joins"):
            raise InputError(
                f"algorithm.label = {table.label!r}: must differ from the other algorithms' names and from the tables "
                "of [algorithm]; choose another label"
            )


def _of_own_table(error: InputError, table: Mapping[str, Any]) -> InputError:
    """Return the error with `algorithm.` before its key if the key stands in a table inside the algorithm's."""
    if isinstance(error, UnknownKeyError):
        return error.inside("algorithm.") if _has(table, error.where, error.name) else error
    path = re.match(r"(\w+)\.(\w+)", str(error))
    if type(error) is not InputError or not path or not _has(table, path[1], path[2]):
        return error
    keys = "|".join(map(re.escape, table[path[1]]))
    return InputError(re.sub(rf"(?<![\w.]){path[1]}\.(?=({keys})\b)", f"algorithm.{path[1]}.", str(error)))


def _has(table: Mapping[str, Any], inner: str, key: str) -> bool:
    """Return whether a key stands in a table inside an algorithm's."""
    return inner in INNER and isinstance(table.get(inner), dict) and key in table[inner]


def _named(error: InputError, name: str) -> InputError:
    """Return the error of one of several algorithms with its name in the path of the key."""
    if type(error) is not InputError or not str(error).startswith("algorithm."):
        return error
    # The name of the user's function stays as the file has it, and so does the path of its file.
    key = r"(?<![\[/(])\balgorithm\.(?=\w)(?!name\b|[\w.]*:)"
    return InputError(re.sub(key, lambda _: f"algorithm.{name}.", str(error)))


def _algorithm(raw: dict[str, Any], common: Mapping[str, Any]) -> AlgorithmTable:
    name = raw.get("name", "fedavg")
    special = {key: part({key: raw.pop(key, {})}, key, "algorithm") for key in INNER}

    def own_keys() -> AlgorithmTable:
        table = table_of(_function_of(name), own.PARTS, AlgorithmTable)
        return checked(table, raw, "algorithm", of=f"algorithm {name}")

    def server() -> ServerTable:
        default = signature_of(_function_of(name)).parameters["server"].default
        return server_of(part(common, "server"), special["server"], default)

    def option(name: str, kind: type[OptionTable]) -> OptionTable | None:
        both = part(common, name), special[name]
        return kind.over(name, *both) if any(both) else None

    found = every(
        {
            "own": own_keys,
            "local": lambda: local_of(part(common, "local"), special["local"]),
            "server": server,
            **{name: partial(option, name, kind) for name, kind in option_tables(AlgorithmTable).items()},
            "model": lambda: _model(part(common, "model"), special["model"]) if special["model"] else None,
        }
    )
    table: AlgorithmTable = found.pop("own").model_copy(update=found)
    table._check()
    return table


def _function_of(name: Any) -> Callable[..., Any]:
    function: Callable[..., Any] = own.resolve("algorithm.name", name, ALGORITHMS)
    if ":" in name:
        own.check_shape(name, function, AlgorithmTable.model_fields)
    return function


def _model(common: dict[str, Any], special: dict[str, Any]) -> ModelTable:
    # Keys of the common model mean nothing to another model.
    return model_of(special if "name" in special else {**common, **special})
