"""`[algorithm]` with its `[local]`, `[server]` and, if it has its own, `[model]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from inspect import signature
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import Field

from algorithms import Algorithm, Compute, Local, Sample
from algorithms.names import ALGORITHMS, SERVERS
from raysim.common.errors import InputError, one_input_error
from raysim.config import own
from raysim.config.check import ConfigTable, checked, part, table_of
from raysim.config.model import ModelTable, model_of


class ServerTable(ConfigTable):
    """`[server]`: a server rule by name; the rule's own keys stand beside it."""

    rule: str = "assign"
    """Server rule by name, or `module:Class` for your own; by default the algorithm's."""


class AlgorithmTable(ConfigTable):
    """`[algorithm]`: the keys of all algorithms; the algorithm's own keys stand beside these."""

    name: str = "fedavg"
    """Algorithm: a name from `raysim list algorithms`, or `module:function` for your own."""
    cohort: int | None = None
    """Number of clients per round; by default all training clients. Excludes `fraction`."""
    fraction: float | None = None
    """Share of the training clients per round, in (0, 1]; by default all. Excludes `cohort`."""
    sampling: Literal["uniform", "size"] = "uniform"
    """Chance of a client to join the cohort: equal, or proportional to its samples."""
    active: float = 1.0
    """Probability that a client is available in a round, in (0, 1]."""
    joins: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """First round of late clients, by domain, client name or client number; by default none is late."""
    local: ConfigTable = ConfigTable()
    """Training of a client update; takes precedence over the common `[local]`."""
    server: ServerTable = ServerTable()
    """Server rule; takes precedence over the common `[server]`."""
    model: ModelTable | None = None
    """Model of this algorithm alone; by default the common `[model]`."""

    def compose(self) -> Algorithm:
        """Return the algorithm as a value.

        Raises:
            InputError: a number is out of range, or two parts contradict each other.
        """
        try:
            with one_input_error():
                algorithm = own.resolve("algorithm.name", self.name, ALGORITHMS)(
                    Sample(self.fraction, self.cohort, self.sampling, self.active),
                    _local_of(self.local.beyond(ConfigTable)),
                    own.resolve("server.rule", self.server.rule, SERVERS)(**self.server.beyond(ServerTable)),
                    **self.beyond(AlgorithmTable),
                )
        except InputError:
            raise
        except Exception as error:  # The user's code may raise anything.
            if text := own.describe_error(error, self.own_code):
                raise InputError(f"algorithm.name = {self.name!r}: must be composed, and raised {text}") from error
            raise
        if not isinstance(algorithm, Algorithm):
            raise InputError(
                f"algorithm.name = {self.name!r}: must return an Algorithm, and returned a "
                f"{type(algorithm).__name__}; change the function"
            )
        return algorithm

    @property
    def own_code(self) -> list[ModuleType]:
        """The user's modules behind the algorithm, its server rule and its own model."""
        return own.modules_of([self.name, self.server.rule, *([self.model.name] if self.model else [])])

    def computed(self, execution: str) -> AlgorithmTable:
        """Return the table with `local.execution` resolved."""
        return self.model_copy(update={"local": self.local.model_copy(update={"execution": execution})})


def _local_of(keys: Mapping[str, Any]) -> Local:
    # `[local]` holds the keys of `Local` and of its `Compute` side by side.
    names = {field.name for field in fields(Compute)}
    compute = Compute(**{key: value for key, value in keys.items() if key in names})
    return Local(**{key: value for key, value in keys.items() if key not in names}, compute=compute)


def algorithms_of(raw: Mapping[str, Any]) -> tuple[AlgorithmTable, ...]:
    """Check and resolve a file's `[algorithm]` tables, each over the common `[local]`, `[server]` and `[model]`.

    Raises:
        InputError: see `checked`; also an unknown algorithm or rule, and parts that contradict each other.
    """
    tables = raw.get("algorithm", {})
    tables = tables if isinstance(tables, list) else [tables]
    if not tables or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"algorithm = {tables!r}: must be a table; write [algorithm] and its keys below")
    return tuple(_algorithm(dict(table), raw) for table in tables)


def _algorithm(raw: dict[str, Any], common: Mapping[str, Any]) -> AlgorithmTable:
    name = raw.get("name", "fedavg")
    function = own.resolve("algorithm.name", name, ALGORITHMS)
    if ":" in name:
        own.check_shape(name, function, AlgorithmTable.model_fields)
    default = signature(function).parameters["server"].default
    special = {key: part({key: raw.pop(key, {})}, key) for key in ("local", "server", "model")}
    parts = {
        "local": _local(part(common, "local"), special["local"]),
        "server": _server(part(common, "server"), special["server"], default),
        "model": _model(part(common, "model"), special["model"]) if special["model"] else None,
    }
    model = table_of(function, ("sample", "local", "server"), AlgorithmTable)
    table = checked(model, raw, "algorithm", of=f"algorithm {name}").model_copy(update=parts)
    table.compose()
    return table


def _local(common: dict[str, Any], special: dict[str, Any]) -> ConfigTable:
    # These keys exclude each other, so an algorithm's own one replaces a common one.
    lengths = {"epochs", "steps", "batches"}
    replaced = lengths if special.keys() & lengths else set()
    keys = {key: value for key, value in common.items() if key not in replaced} | special
    if not keys.keys() & lengths or keys.get("steps") == "largest":
        keys.setdefault("epochs", 1)
    # The proximal term is a key of the algorithm.
    return checked(table_of(Local, ("proximal", "compute"), table_of(Compute, (), ConfigTable)), keys, "local")


def _model(common: dict[str, Any], special: dict[str, Any]) -> ModelTable:
    # Keys of the common model mean nothing to another model.
    return model_of(special if "name" in special else {**common, **special})


def _server(common: dict[str, Any], special: dict[str, Any], default: Any) -> ServerTable:
    # Keys of the common rule mean nothing to an algorithm's own rule. The algorithm decides if no rule is named.
    keys = special if "rule" in special else {**common, **special}
    its_own = f"{type(default).__module__}:{type(default).__qualname__}"
    usual = next((name for name, rule in SERVERS.items() if rule is type(default)), its_own)
    name = keys.get("rule", usual)
    rule = own.resolve("server.rule", name, SERVERS)
    own.check_rule(name, rule)
    given = {**asdict(default), **keys} if name == usual else keys
    return checked(table_of(rule, (), ServerTable), {**given, "rule": name}, "server", of=f"rule {name}")
