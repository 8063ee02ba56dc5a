"""`[uplink]` and `[downlink]`: stages that a change of the model passes to the server, and to the clients, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from algorithms import Downlink, Stage, Uplink
from algorithms.names import STAGES
from raysim.common.errors import InputError, one_input_error
from raysim.config import own
from raysim.config.check import ConfigTable, checked, table_of


class StageTable(ConfigTable):
    """A stage of a chain: its name; the stage's own keys stand beside it."""

    name: str
    """Stage: a name from `raysim list uplink`, or `module:Class` for your own."""

    def stage(self) -> Stage:
        """Return the stage as a value; raise InputError if a number is out of range."""
        with own.secluded(self.name):
            kind = own.resolve("uplink.chain", self.name, STAGES)
            if lacking := sorted(getattr(kind, "__abstractmethods__", ())):
                raise InputError(f"uplink.chain has {self.name!r}: must define {', '.join(lacking)}; see Stage")
            stage: Stage = kind(**self.beyond(StageTable))
            own.check_parameters("uplink.chain", self.name, stage, ("changes",))
            own.check_parameters("uplink.chain", f"{self.name}.message", stage.message, ("message",))
        return stage


class ChainTable(ConfigTable):
    """Stages in their order."""

    chain: tuple[StageTable, ...] = ()
    """Stages in their order, each `{ name = "top-k", share = 0.01 }` with its own keys; by default none."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages; raise InputError if a number is out of range."""
        return tuple(each.stage() for each in self.chain)


class UplinkTable(ChainTable):
    """`[uplink]`: the way of a client's change to the server."""

    feedback: bool = Uplink.feedback
    """Whether a client adds what was not sent to its next change (error feedback)."""

    def value(self) -> Uplink:
        """Return the uplink as a value; raise InputError if a number is out of range, or two stages contradict."""
        return Uplink(self.stages, self.feedback)


class DownlinkTable(ChainTable):
    """`[downlink]`: the way of the global model's change to the clients, with error feedback at the server."""

    def value(self) -> Downlink:
        """Return the downlink as a value; raise InputError if a number is out of range, or two stages contradict."""
        return Downlink(self.stages)


Table = TypeVar("Table", UplinkTable, DownlinkTable)


def chain_of(kind: type[Table], where: str, common: Mapping[str, Any], special: Mapping[str, Any]) -> Table | None:
    """Check an algorithm's `[uplink]` or `[downlink]` over the common one; None if there is neither.

    Args:
        kind: model of the table.
        where: name of the table.
        common: the common table.
        special: the algorithm's own table.

    Raises:
        InputError: see `checked`; also an unknown stage, or stages that contradict each other.
    """
    # A common key means nothing to an algorithm's own chain.
    raw = special if "chain" in special else {**common, **special}
    if not raw:
        return None
    chain = raw.get("chain", [])
    if not isinstance(chain, list) or not all(isinstance(stage, dict) for stage in chain):
        raise InputError(
            f"{where}.chain = {chain!r}: must be a list of stages; write e.g. "
            'chain = [{ name = "top-k", share = 0.01 }]'
        )
    rest = {key: value for key, value in raw.items() if key != "chain"}
    table = checked(kind, rest, where)
    table = table.model_copy(update={"chain": tuple(_stage(f"{where}.chain", stage) for stage in chain)})
    with one_input_error():
        table.value()
    return table


def _stage(where: str, raw: dict[str, Any]) -> StageTable:
    if "name" not in raw:
        raise InputError(f'{where} has {raw!r}: must have a name; write e.g. {{ name = "clip", norm = 1.0 }}')
    found = own.resolve(where, raw["name"], STAGES)
    if not (isinstance(found, type) and issubclass(found, Stage)):
        raise InputError(
            f"{where} has stage {raw['name']!r}: must be a class derived from algorithms.Stage; derive it from Stage"
        )
    keys = table_of(found, (), StageTable)
    lacking = [key for key, field in keys.model_fields.items() if field.is_required() and key not in raw]
    if lacking and raw.keys() <= keys.model_fields.keys():
        raise InputError(f"{where} has stage {raw['name']} without {lacking[0]!r}: must be given; add it")
    table: StageTable = checked(keys, raw, where, of=f"stage {raw['name']}")
    return table
