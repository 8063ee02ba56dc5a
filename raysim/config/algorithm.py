"""`[algorithm]` with its `[local]`, `[server]` and, if it has its own, `[model]`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

from pydantic import Field

from algorithms import Algorithm, Compute, Local, Mean, Participation, Robust
from algorithms.core.returned import place_of
from algorithms.names import ALGORITHMS, SERVERS
from algorithms.options.aggregation import AGGREGATES, Aggregate
from algorithms.parts.clustered import OwnChoice
from algorithms.parts.schedule import LateUpdates, Reporting
from algorithms.training.local_values import OF_OPTIMISERS
from algorithms.training.loss import LOSSES, Loss, OwnLoss
from algorithms.training.own_update import OwnUpdate
from raysim.common.errors import InputError, MistakesError, each_error, every, one_input_error
from raysim.config import own
from raysim.config.check import ConfigTable, checked, known, part, signature_of, table_of
from raysim.config.edges import EdgesTable
from raysim.config.ignored import composed_without, ignored_key
from raysim.config.model import ModelTable, model_of
from raysim.config.options import OptionTable, Tell, option_tables, options_of
from raysim.config.privacy import PrivacyTable
from raysim.config.read import algorithm_tables, short_name
from raysim.config.sampling import OortTable, cohort_rule
from raysim.config.topology import TopologyTable
from raysim.config.uplink import DownlinkTable, UplinkTable

CHOOSE = "choose"
"""Key of an algorithm with several global models that may name a user's rule of choice."""


class LocalTable(ConfigTable):
    """`[local]`: a loss by name; the loss's own keys and those of the client update stand beside it."""

    loss: str = "cross-entropy"
    """Loss: a name from `raysim list losses`, or `module:function` for your own."""
    update: str | None = None
    """Your own client update in place of the local steps, `module:function`; by default none."""


class ServerTable(ConfigTable):
    """`[server]`: a server rule and a rule of aggregation by name; their own keys stand beside them."""

    rule: str = "assign"
    """Server rule by name, or `module:Class` for your own; by default the algorithm's."""
    aggregate: str | None = None
    """Rule that turns the cohort's models into one: `mean` (the default), `median`, `trimmed-mean`, `krum`,
    `multi-krum` or `geometric-median`."""

    @property
    def rule_keys(self) -> dict[str, Any]:
        """Arguments of the server rule."""
        return {key: value for key, value in self.beyond(ServerTable).items() if key not in _keys_of(self.aggregate)}

    @property
    def aggregation(self) -> Aggregate:
        """The rule of aggregation."""
        return AGGREGATES[self.aggregate or "mean"](**{key: getattr(self, key) for key in _keys_of(self.aggregate)})


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
    """First round of late clients, by domain, client name or client number; by default none is late."""
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
        try:
            with one_input_error(), own.secluded(*self.named):
                function = own.resolve("algorithm.name", self.name, ALGORITHMS)
                participation = Participation(
                    self.fraction,
                    self.cohort,
                    cohort_rule(self.sampling, self.oort, self.candidates),
                    self.active,
                    Reporting(self.over, self.deadline, self.late),
                )
                local = _local_of(self.local)
                server = own.resolve("server.rule", self.server.rule, SERVERS)(**self.server.rule_keys)
                keys = self.beyond(AlgorithmTable) | choice_of(getattr(self, CHOOSE, ""))
                compose = partial(function, **keys)
                without: dict[str, Any] = {}
                if ":" in self.name:
                    default = signature_of(function).parameters["server"].default
                    without = composed_without(self.name, compose, participation, local, server, default)
                algorithm = compose(participation, local, server)
                if isinstance(algorithm, Algorithm):
                    self._check_ignored(ignored_key(algorithm, without, participation, local, server))
                    algorithm = algorithm.having(*filter(None, (each.option(self) for each in self.options)))
        except (InputError, KeyboardInterrupt):
            raise
        except BaseException as error:  # The user's code may raise anything.
            if text := own.describe_error(error, own.modules_of(self.named)):
                raise InputError(f"algorithm.name = {self.name!r}: must be composed, and raised {text}") from error
            raise
        if not isinstance(algorithm, Algorithm):
            raise InputError(
                f"algorithm.name = {self.name!r}: must return an Algorithm, and returned a "
                f"{type(algorithm).__name__}; change the function"
            )
        with one_input_error():
            rule = self.server.aggregation
            return algorithm if isinstance(rule, Mean) else algorithm.having(Robust(rule))

    def _check_ignored(self, ignored: tuple[str, str] | None) -> None:
        """Raise InputError if the user's own algorithm ignores a key, given with the reason and the remedy."""
        if ignored is not None:
            key, reason = ignored
            value = attrgetter(key.removeprefix("algorithm."))(self)
            place = place_of(own.resolve("algorithm.name", self.name, ALGORITHMS))
            raise InputError(f"{key} = {value!r}: must be left out for {self.name}{place}, which {reason}")

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
        stages = [name for table in self.options for name in table.named]
        parts = [self.name, self.sampling, self.server.rule, self.local.loss, self.local.update or "", *stages]
        parts += [choose] if isinstance(choose := getattr(self, CHOOSE, None), str) else []
        return parts if self.model is None else [*parts, self.model.name]

    def computed(self, compute: Compute) -> AlgorithmTable:
        """Return the table with `local.execution` and `local.channels_last` resolved."""
        resolved = {"execution": compute.execution, "channels_last": compute.channels_last}
        return self.model_copy(update={"local": self.local.model_copy(update=resolved)})


INNER = ("local", "server", *option_tables(AlgorithmTable), "model")
"""Tables that may also stand inside `[algorithm]`."""


def _local_of(table: LocalTable) -> Local:
    """Return the value of `[local]`, which holds the keys of `Local`, its `Compute` and its loss side by side."""
    keys = table.beyond(LocalTable)
    of_loss, of_compute = loss_keys(table.loss), {field.name for field in fields(Compute)}
    loss = loss_of(table.loss, {key: keys[key] for key in of_loss})
    compute = Compute(**{key: keys[key] for key in of_compute})
    own_keys = {key: value for key, value in keys.items() if key not in of_loss and key not in of_compute}
    return Local(**own_keys, loss=loss, update=update_of(table.update), compute=compute)


def update_of(name: str | None) -> OwnUpdate | None:
    """Return the user's own client update: a function, or a class whose instances are one and may have `personal`."""
    if name is None:
        return None
    if ":" not in name:
        raise InputError(f'local.update = {name!r}: must be module:function; write e.g. local.update = "mine:train"')
    train = own.instance("local.update", name, own.resolve("local.update", name, {}))
    personal = getattr(train, "personal", None)
    own.check_parameters("local.update", name, train, ("model", "batches", "context"))
    if personal is not None:
        own.check_parameters("local.update", f"{name}.personal", personal, ("model",))
    return OwnUpdate(name, train, personal)


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


def loss_keys(name: str) -> list[str]:
    """Return the keys of a loss."""
    return [] if ":" in name else list(signature_of(own.resolve("local.loss", name, LOSSES)).parameters)


def loss_of(name: str, keys: Mapping[str, Any]) -> Loss:
    """Return a loss by name, or the user's own: a function, or a class whose instances are one."""
    found = own.resolve("local.loss", name, LOSSES)
    if ":" not in name:
        loss: Loss = found(**keys)
        return loss
    return OwnLoss(name, own.instance("local.loss", name, found))


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
            called = str(table.get("label", table.get("name", "fedavg")))
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
    path = re.match(r"(\w+)\.(\w+)", str(error))
    inner = table.get(path[1]) if path and path[1] in INNER else None
    if type(error) is not InputError or not path or not isinstance(inner, dict) or path[2] not in inner:
        return error
    keys = "|".join(map(re.escape, inner))
    return InputError(re.sub(rf"(?<![\w.]){path[1]}\.(?=({keys})\b)", f"algorithm.{path[1]}.", str(error)))


def _named(error: InputError, name: str) -> InputError:
    """Return the error of one of several algorithms with its name in the path of the key."""
    if type(error) is not InputError or not str(error).startswith("algorithm.") or ":" in name:
        return error
    return InputError(re.sub(r"(?<!\[)\balgorithm\.(?=\w)", lambda _: f"algorithm.{name}.", str(error)))


def _algorithm(raw: dict[str, Any], common: Mapping[str, Any]) -> AlgorithmTable:
    name = raw.get("name", "fedavg")
    special = {key: part({key: raw.pop(key, {})}, key, "algorithm") for key in INNER}

    def own_keys() -> AlgorithmTable:
        table = table_of(_function(name), own.PARTS, AlgorithmTable)
        return checked(table, raw, "algorithm", of=f"algorithm {name}")

    def server() -> ServerTable:
        default = signature_of(_function(name)).parameters["server"].default
        return _server(part(common, "server"), special["server"], default)

    def option(name: str, kind: type[OptionTable]) -> OptionTable | None:
        both = part(common, name), special[name]
        return kind.over(name, *both) if any(both) else None

    found = every(
        {
            "own": own_keys,
            "local": lambda: _local(part(common, "local"), special["local"]),
            "server": server,
            **{name: partial(option, name, kind) for name, kind in option_tables(AlgorithmTable).items()},
            "model": lambda: _model(part(common, "model"), special["model"]) if special["model"] else None,
        }
    )
    table: AlgorithmTable = found.pop("own").model_copy(update=found)
    table.compose()
    return table


def _function(name: Any) -> Callable[..., Any]:
    function: Callable[..., Any] = own.resolve("algorithm.name", name, ALGORITHMS)
    if ":" in name:
        own.check_shape(name, function, AlgorithmTable.model_fields)
    return function


def _local(common: dict[str, Any], special: dict[str, Any]) -> LocalTable:
    # These keys exclude each other, so an algorithm's own one replaces a common one.
    lengths = {"epochs", "steps", "batches"}
    replaced = lengths if special.keys() & lengths else set()
    usual = LocalTable.model_fields["loss"].default
    loss = special.get("loss", common.get("loss", usual))
    if loss != common.get("loss", usual):
        # Keys of the common loss mean nothing to an algorithm's own one.
        replaced = {*replaced, *loss_keys(common.get("loss", usual))}
    optimizer = common.get("optimizer", Local.optimizer)
    if special.get("optimizer", optimizer) != optimizer:
        # Nor do those of the common optimiser.
        replaced = {*replaced, *OF_OPTIMISERS}
    keys = {key: value for key, value in common.items() if key not in replaced} | special
    if not keys.keys() & lengths or keys.get("steps") == "largest":
        keys.setdefault("epochs", 1)
    own.resolve("local.loss", loss, LOSSES)
    table = checked(local_table(loss), keys, "local", of=f"loss {loss}" if loss != usual else "")
    with one_input_error():
        _local_of(table)  # checks the ranges
    return table


def local_table(loss: str) -> type[LocalTable]:
    """Return the keys of `[local]` with a loss."""
    of_loss = LocalTable if ":" in loss else table_of(LOSSES[loss], (), LocalTable)
    return table_of(Local, ("compute", "loss", "update", "method"), table_of(Compute, (), of_loss))


def _model(common: dict[str, Any], special: dict[str, Any]) -> ModelTable:
    # Keys of the common model mean nothing to another model.
    return model_of(special if "name" in special else {**common, **special})


def _server(common: dict[str, Any], special: dict[str, Any], default: Any) -> ServerTable:
    # Keys of the common rule mean nothing to an algorithm's own rule. The algorithm decides if no rule is named.
    aggregate = special.get("aggregate", common.get("aggregate", "mean"))
    known("server.aggregate", aggregate, AGGREGATES)
    usual_keys = _keys_of(common.get("aggregate", "mean"))
    if aggregate == common.get("aggregate", "mean"):
        special = {key: common[key] for key in ("aggregate", *usual_keys) if key in common} | special
    else:
        common = {key: value for key, value in common.items() if key not in usual_keys}
    keys = special if "rule" in special else {**common, **special}
    its_own = f"{type(default).__module__}:{type(default).__qualname__}"
    usual = next((name for name, rule in SERVERS.items() if rule is type(default)), its_own)
    name = keys.get("rule", usual)
    rule = own.resolve("server.rule", name, SERVERS)
    own.check_rule(name, rule)
    given = {**asdict(default), **keys} if name == usual else keys
    of = f"rule {name}" if aggregate == "mean" else f"rule {name} and aggregate {aggregate}"
    table = checked(
        table_of(rule, (), table_of(AGGREGATES[aggregate], (), ServerTable)), {**given, "rule": name}, "server", of=of
    )
    with one_input_error():
        table.aggregation  # noqa: B018, it checks the ranges
    return table


def _keys_of(aggregate: Any) -> list[str]:
    """Return the keys of a rule of aggregation; none of an unknown one."""
    rule: Callable[..., Any] | None = AGGREGATES.get(aggregate) if isinstance(aggregate, str) else None
    return [] if rule is None else list(signature_of(rule).parameters)
