"""`[server]`: a server rule and a rule of aggregation by name, with their own keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from algorithms.names import SERVERS
from algorithms.options.aggregation import AGGREGATES, Aggregate
from algorithms.parts.server import Server
from raysim.common.errors import check_known, one_input_error
from raysim.config import own
from raysim.config.check import ConfigTable, checked, signature_of, table_of


class ServerTable(ConfigTable):
    """`[server]`: a server rule and a rule of aggregation by name; their own keys stand beside them."""

    rule: str = "assign"
    """Server rule by name, or `module:Class` for your own; by default the algorithm's."""
    aggregate: str | None = None
    """Rule that turns the cohort's models into one: `mean` (the default), `median`, `trimmed-mean`, `krum`,
    `multi-krum` or `geometric-median`."""

    def rule_value(self) -> Server:
        """Return the server rule as a value."""
        others = _keys_of(self.aggregate)
        keys = {key: value for key, value in self.beyond(ServerTable).items() if key not in others}
        rule: Server = own.resolve("server.rule", self.rule, SERVERS)(**keys)
        return rule

    @property
    def aggregation(self) -> Aggregate:
        """The rule of aggregation."""
        return AGGREGATES[self.aggregate or "mean"](**{key: getattr(self, key) for key in _keys_of(self.aggregate)})


def server_of(common: dict[str, Any], special: dict[str, Any], default: Any) -> ServerTable:
    """Check and resolve an algorithm's own table over the common one; `default` is the algorithm's rule.

    Raises:
        InputError: see `checked`; also an unknown rule, or a number out of range.
    """
    # Keys of the common rule mean nothing to an algorithm's own rule. The algorithm decides if no rule is named.
    aggregate = special.get("aggregate", common.get("aggregate", "mean"))
    check_known(f"server.aggregate = {aggregate!r}", aggregate, AGGREGATES)
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
    if ":" in name:
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
