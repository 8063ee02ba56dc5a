"""`[local]`: the training of a client update, with its loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from algorithms import Compute, Local
from algorithms.training.local_values import OF_OPTIMISERS
from algorithms.training.loss import LOSSES, Loss, OwnLoss
from algorithms.training.own_update import OwnUpdate
from raysim.common.errors import InputError, one_input_error
from raysim.config import own
from raysim.config.check import ConfigTable, checked, signature_of, table_of


class LocalTable(ConfigTable):
    """`[local]`: a loss by name; the loss's own keys and those of the client update stand beside it."""

    loss: str = "cross-entropy"
    """Loss: a name from `raysim list losses`, or `module:function` for your own."""
    update: str | None = None
    """Your own client update in place of the local steps, `module:function`; by default none."""

    def value(self) -> Local:
        """Return the table as a value; it holds the keys of `Local`, its `Compute` and its loss side by side."""
        keys = self.beyond(LocalTable)
        of_loss = {name: keys.pop(name) for name in _loss_keys(self.loss)}
        compute = Compute(**{field.name: keys.pop(field.name) for field in fields(Compute)})
        return Local(**keys, loss=_loss_of(self.loss, of_loss), update=_update_of(self.update), compute=compute)


def local_table(loss: str) -> type[LocalTable]:
    """Return the keys of `[local]` with a loss."""
    of_loss = LocalTable if ":" in loss else table_of(LOSSES[loss], (), LocalTable)
    return table_of(Local, ("compute", "loss", "update", "method"), table_of(Compute, (), of_loss))


def local_of(common: dict[str, Any], special: dict[str, Any]) -> LocalTable:
    """Check and resolve an algorithm's own table over the common one.

    Raises:
        InputError: see `checked`; also an unknown loss, or a number out of range.
    """
    # These keys exclude each other, so an algorithm's own one replaces a common one.
    lengths = {"epochs", "steps", "batches"}
    replaced = lengths if special.keys() & lengths else set()
    usual = LocalTable.model_fields["loss"].default
    loss = special.get("loss", common.get("loss", usual))
    if loss != common.get("loss", usual):
        # Keys of the common loss mean nothing to an algorithm's own one.
        replaced = {*replaced, *_loss_keys(common.get("loss", usual))}
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
        table.value()  # checks the ranges
    return table


def _loss_keys(name: str) -> list[str]:
    return [] if ":" in name else list(signature_of(own.resolve("local.loss", name, LOSSES)).parameters)


def _loss_of(name: str, keys: Mapping[str, Any]) -> Loss:
    """Return a loss by name, or the user's own: a function, or a class whose instances are one."""
    found = own.resolve("local.loss", name, LOSSES)
    if ":" not in name:
        loss: Loss = found(**keys)
        return loss
    return OwnLoss(name, own.instance("local.loss", name, found))


def _update_of(name: str | None) -> OwnUpdate | None:
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
