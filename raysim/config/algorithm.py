"""`[algorithm]`, with the `[local]` and `[server]` that hold for it, and a `[model]` where it has its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from inspect import signature
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import Field

from algorithms import Algorithm, Compute, Local, Sample
from algorithms.named import ALGORITHMS, SERVERS
from raysim.common.errors import InputError, one_input_error
from raysim.config import own
from raysim.config.check import Table, checked, part, table_of
from raysim.config.model import Model, model_of


class Server(Table):
    """`[server]`: a server rule by name; its own keys stand beside it."""

    rule: str = "assign"


class AlgorithmTable(Table):
    """`[algorithm]`: its own keys stand beside these, with the `[local]` and `[server]` that hold for it."""

    name: str = "fedavg"
    cohort: int | None = None
    fraction: float | None = None
    sampling: Literal["uniform", "size"] = "uniform"
    active: float = 1.0
    joins: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    local: Table = Table()
    server: Server = Server()
    model: Model | None = None

    def compose(self) -> Algorithm:
        """The algorithm as a value.

        Raises:
            InputError: a number is out of range, or the parts make no sense together.
        """
        try:
            with one_input_error():
                algorithm = own.found("algorithm.name", self.name, ALGORITHMS)(
                    Sample(self.fraction, self.cohort, self.sampling, self.active),
                    _local_of(self.local.beyond(Table)),
                    own.found("server.rule", self.server.rule, SERVERS)(**self.server.beyond(Server)),
                    **self.beyond(AlgorithmTable),
                )
        except InputError:
            raise
        except Exception as error:  # whatever the user's code does
            if text := own.told(error, self.own_code):
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
        """The user's modules that its algorithm, its server's rule and its own model come from."""
        return own.modules_of([self.name, self.server.rule, *([self.model.name] if self.model else [])])

    def computed(self, execution: str) -> AlgorithmTable:
        """The table with `local.execution` written out."""
        return self.model_copy(update={"local": self.local.model_copy(update={"execution": execution})})


def _local_of(keys: Mapping[str, Any]) -> Local:
    """`[local]` holds the keys of `Local` and of its `Compute` side by side."""
    names = {field.name for field in fields(Compute)}
    compute = Compute(**{key: value for key, value in keys.items() if key in names})
    return Local(**{key: value for key, value in keys.items() if key not in names}, compute=compute)


def algorithms_of(raw: Mapping[str, Any]) -> tuple[AlgorithmTable, ...]:
    """A file's `[algorithm]` tables, each with the common `[local]`, `[server]` and `[model]` below its own."""
    tables = raw.get("algorithm", {})
    tables = tables if isinstance(tables, list) else [tables]
    if not tables or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"algorithm = {tables!r}: must be a table; write [algorithm] and its keys below")
    return tuple(_algorithm(dict(table), raw) for table in tables)


def _algorithm(raw: dict[str, Any], common: Mapping[str, Any]) -> AlgorithmTable:
    name = raw.get("name", "fedavg")
    function = own.found("algorithm.name", name, ALGORITHMS)
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


def _local(common: dict[str, Any], special: dict[str, Any]) -> Table:
    # They exclude each other, so an algorithm's own choice ends the common one.
    lengths = {"epochs", "steps", "batches"}
    ended = lengths if special.keys() & lengths else set()
    aggregated = {key: value for key, value in common.items() if key not in ended} | special
    if not aggregated.keys() & lengths or aggregated.get("steps") == "largest":
        aggregated.setdefault("epochs", 1)
    # The proximal term is the algorithm's own key.
    return checked(table_of(Local, ("proximal", "compute"), table_of(Compute, (), Table)), aggregated, "local")


def _model(common: dict[str, Any], special: dict[str, Any]) -> Model:
    # What the common model takes means nothing to another one.
    return model_of(special if "name" in special else {**common, **special})


def _server(common: dict[str, Any], special: dict[str, Any], default: Any) -> Server:
    # What the common rule takes means nothing to an algorithm's own rule. Where none is named, it is the algorithm's.
    aggregated = special if "rule" in special else {**common, **special}
    its_own = f"{type(default).__module__}:{type(default).__qualname__}"
    usual = next((name for name, rule in SERVERS.items() if rule is type(default)), its_own)
    name = aggregated.get("rule", usual)
    rule = own.found("server.rule", name, SERVERS)
    own.check_rule(name, rule)
    given = {**asdict(default), **aggregated} if name == usual else aggregated
    return checked(table_of(rule, (), Server), {**given, "rule": name}, "server", of=f"rule {name}")
