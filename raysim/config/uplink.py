"""`[uplink]` and `[downlink]`: stages that a change of the model passes to the server, and to the clients, by name."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, Self

from algorithms import Downlink, Stage, Uplink
from algorithms.names import STAGES
from algorithms.options.chain import StageChain
from raysim.common.errors import InputError, MistakesError, each_error, one_input_error
from raysim.config import own
from raysim.config.check import ConfigTable, UnknownKeyError, checked, table_of
from raysim.config.options import OptionTable
from raysim.config.own_errors import describe_error
from raysim.config.read import short_name


class StageTable(ConfigTable):
    """A stage of a chain: its name; the stage's own keys stand beside it."""

    name: str
    """Stage: a name from `raysim list uplink`, or `module:Class` for your own."""

    def stage(self) -> Stage:
        """Return the stage as a value; raise InputError if a number is out of range."""
        with own.secluded(self.name):
            stage: Stage = own.resolve("uplink.chain", self.name, STAGES)(**self.beyond(StageTable))
        return stage


class ChainTable(OptionTable):
    """Stages in their order."""

    chain: tuple[StageTable, ...] = ()
    """Stages in their order, each `{ name = "top-k", share = 0.01 }` with its own keys; by default none."""

    @classmethod
    def over(cls, where: str, common: Mapping[str, Any], special: Mapping[str, Any]) -> Self:
        # A common key means nothing to an algorithm's own chain.
        raw = special if "chain" in special else {**common, **special}
        chain = raw.get("chain", [])
        if not isinstance(chain, list) or not all(isinstance(stage, dict) for stage in chain):
            raise InputError(
                f"{where}.chain = {chain!r}: must be a list of stages; write e.g. "
                'chain = [{ name = "top-k", share = 0.01 }]'
            )
        table = checked(cls, {key: value for key, value in raw.items() if key != "chain"}, where)
        table = table.model_copy(update={"chain": tuple(_stage(f"{where}.chain", stage) for stage in chain)})
        with one_input_error():
            table.value()
        return table

    def value(self) -> StageChain:
        """Return the chain as a value; raise InputError if a number is out of range, or two stages contradict."""
        raise NotImplementedError

    def option(self, algorithm: Any = None, labels: Any = None) -> StageChain | None:
        value = self.value()
        return value if value.chain else None

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages; raise InputError if a number is out of range."""
        return tuple(each.stage() for each in self.chain)


class UplinkTable(ChainTable):
    """`[uplink]`: the way of a client's change to the server."""

    feedback: bool = Uplink.feedback
    """Whether a client adds what was not sent to its next change (error feedback)."""

    def value(self) -> Uplink:
        return Uplink(self.stages, self.feedback)


class DownlinkTable(ChainTable):
    """`[downlink]`: the way of the global model's change to the clients, with error feedback at the server."""

    def value(self) -> Downlink:
        return Downlink(self.stages)


def _stage(where: str, raw: dict[str, Any]) -> StageTable:
    if "name" not in raw:
        raise InputError(f'{where} has {raw!r}: must have a name; write e.g. {{ name = "clip", norm = 1.0 }}')
    name = raw["name"]
    found = own.resolve(where, name, STAGES)
    if not (isinstance(found, type) and issubclass(found, Stage)):
        raise InputError(
            f"{where} has stage {name!r}: must be a class derived from algorithms.Stage; derive it from Stage"
        )
    if lacking := sorted(getattr(found, "__abstractmethods__", ())):
        raise InputError(f"{where} has stage {name!r}: must define {', '.join(lacking)}; add it, see Stage")
    keys = table_of(found, (), StageTable)
    lacking = [key for key, field in keys.model_fields.items() if field.is_required() and key not in raw]
    if lacking and raw.keys() <= keys.model_fields.keys():
        raise InputError(f"{where} has stage {name} without {lacking[0]!r}: must be given; add it")
    path = f"{where}.{short_name(name)}"  # as `--set` takes it
    try:
        table: StageTable = checked(keys, raw, where, of=f"stage {name}")
    except InputError as error:
        # The nearest key to an unknown one is looked for among those of all stages.
        each = (one if isinstance(one, UnknownKeyError) else _at(path, where, one) for one in each_error(error))
        raise MistakesError(*each) from None
    stage = _made(where, path, table)
    own.check_parameters(where, name, stage, ("changes",))
    own.check_parameters(where, f"{name}.message", stage.message, ("message",))
    return table


def _at(path: str, where: str, error: InputError) -> InputError:
    """Return the error with the path of the stage in place of the table that a key is said to be in."""
    return InputError(re.sub(rf"(?<![\w.]){where}\.(?=\w)", f"{path}.", str(error)))


def _made(where: str, path: str, table: StageTable) -> Stage:
    """Return a stage; its errors name its place in the chain, and that in the user's own code."""
    handled = sys.exception()
    try:
        with one_input_error():
            return table.stage()
    except InputError as error:
        # A stage does not know whose chain it is in.
        raise _at(path, "uplink", error) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # The user's class may raise anything.
        if text := describe_error(error, [table.name], handled):
            raise InputError(f"{where} has stage {table.name!r}: must be made, and raised {text}; change it") from error
        raise
