"""`[uplink]`: the stages that a client's change passes on its way to the server, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from algorithms import Stage, Uplink
from algorithms.names import STAGES
from raysim.common.errors import InputError, one_input_error
from raysim.config.check import ConfigTable, checked, known, table_of


class StageTable(ConfigTable):
    """A stage of `uplink.chain`: its name; the stage's own keys stand beside it."""

    name: str
    """Stage: a name from `raysim list uplink`."""

    def stage(self) -> Stage:
        """Return the stage as a value; raise InputError if a number is out of range."""
        stage: Stage = STAGES[self.name](**self.beyond(StageTable))
        return stage


class UplinkTable(ConfigTable):
    """`[uplink]`: the way of a client's change to the server."""

    chain: tuple[StageTable, ...] = ()
    """Stages in their order, each `{ name = "top-k", share = 0.01 }` with its own keys; by default none."""
    feedback: bool = Uplink.feedback
    """Whether a client adds what was not sent to its next change (error feedback)."""

    def value(self) -> Uplink:
        """Return the uplink as a value; raise InputError if a number is out of range, or two stages contradict."""
        return Uplink(tuple(each.stage() for each in self.chain), self.feedback)


def uplink_of(common: Mapping[str, Any], special: Mapping[str, Any]) -> UplinkTable | None:
    """Check an algorithm's `[uplink]` over the common one; None if there is neither.

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
            f"uplink.chain = {chain!r}: must be a list of stages; write e.g. "
            'chain = [{ name = "top-k", share = 0.01 }]'
        )
    rest = {key: value for key, value in raw.items() if key != "chain"}
    table = checked(UplinkTable, rest, "uplink")
    table = table.model_copy(update={"chain": tuple(map(_stage, chain))})
    with one_input_error():
        table.value()
    return table


def _stage(raw: dict[str, Any]) -> StageTable:
    if "name" not in raw:
        raise InputError(f'uplink.chain has {raw!r}: must have a name; write e.g. {{ name = "clip", norm = 1.0 }}')
    keys = table_of(known("uplink.chain", raw["name"], STAGES), (), StageTable)
    lacking = [key for key, field in keys.model_fields.items() if field.is_required() and key not in raw]
    if lacking and raw.keys() <= keys.model_fields.keys():
        raise InputError(f"uplink.chain has stage {raw['name']} without {lacking[0]!r}: must be given; add it")
    table: StageTable = checked(keys, raw, "uplink.chain", of=f"stage {raw['name']}")
    return table
