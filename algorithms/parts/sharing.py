"""The part `place`: which entries of the model travel, which stay with the client, and which nothing changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from algorithms.engine.errors import InputError, require
from algorithms.engine.layout import Entry, Kind, Layout, Packed

Where = Literal["shared", "personal"]

BATCH_NORM = (Kind.AFFINE, Kind.STATISTIC)

Maintained = Literal["none", "local", "global"]

MAINTAINED: Mapping[Maintained, Mapping[str, Where]] = {
    "none": {},
    "local": {"momentum": "personal"},
    "global": {"momentum": "shared"},
}
"""The slots of momentum that outlasts a visit: with the client, or with the model."""


NOTHING = Packed(np.empty(0, np.float32), np.empty(0, np.int64))
"""The values of no entries."""


@dataclass(frozen=True)
class Layouts:
    """A model's entries, divided.

    Args:
        travelling: go with the model.
        kept: stay with the client.
        frozen: are never sent, averaged or updated: every module is built with them.
    """

    shared: Layout
    personal: Layout
    frozen: Layout = field(default_factory=lambda: Layout(()))

    @property
    def has_one_model(self) -> bool:
        """Whether all clients' visits begin alike: nothing but counters stays with them."""
        return all(entry.kind is Kind.SLOT and entry.integer for entry in self.personal.entries)

    @property
    def has_own_models(self) -> bool:
        """Whether clients keep entries of the model, not only what stands beside it."""
        return any(entry.kind is not Kind.SLOT for entry in self.personal.entries)

    def model(self, shared: Packed, personal: Packed, frozen: Packed = NOTHING) -> dict[str, NDArray[Any]]:
        """The entries of the model by name, as a module has them: without what stands beside it."""
        values: dict[str, NDArray[Any]] = {**self.shared.unpack(shared), **self.personal.unpack(personal)}
        changing = {e.name: values[e.name] for e in self.whole.entries if e.kind is not Kind.SLOT}
        return changing | self.frozen.unpack(frozen)

    def begun(self, personal: Packed) -> Packed:
        """Kept entries for a client that has made no visit yet: the same, its own counters at 0."""
        integers = personal.integers.copy()
        for entry, place in self.personal.places():
            if entry.kind is Kind.SLOT and entry.integer:
                integers[place] = 0
        return Packed(personal.floats, integers)

    @property
    def whole(self) -> Layout:
        """All entries that visits may change, the travelling ones first: the order of a resident model."""
        return Layout(self.shared.entries + self.personal.entries, self.shared.floating)


@dataclass(frozen=True)
class Sharing:
    """Where each entry lives, by the type of its layer, never by its name. Frozen entries live nowhere of these.

    A client that has no kept entries yet starts a visit from `newcomer`: the model's initial entries, or the
    average of the kept entries of the last merged cohort (which a real federation would have to send, so they
    are counted as protocol bytes then). Evaluation is another matter: initial statistics are harmless in
    training, which normalises by the batch, and meaningless in evaluation. So data of nobody, or of a client
    that keeps nothing yet, is always evaluated with the average, and no protocol bytes are counted for it. The data
    of an outsider, a client that never trains, may be evaluated with statistics of its own instead: the affine entries
    stay the average, the statistics come from a pass over the data that it is evaluated on (see
    `algorithms.engine.statistics`). Where these are too few for batch norm, a single sample mostly, it keeps the average.

    Args:
        weights: place of all entries that are not batch norm's.
        affine: place of the learned scale and shift of batch-norm layers.
        statistics: place of the running mean, variance and counter of batch-norm layers.
        newcomer: what a client without kept entries starts from, "initial" or "average".
        slots: which of `Local.slots` outlast a visit, and their place: "kept" by the client, or "shared", so that they
            travel and are averaged; they begin at 0, and so do all others in each visit.
        outsider: the batch-norm statistics that a client that never trains is evaluated with, "average" or "own".
    """

    weights: Where = "shared"
    affine: Where = "shared"
    statistics: Where = "shared"
    newcomer: Literal["initial", "average"] = "initial"
    outsider: Literal["average", "own"] = "average"
    slots: Mapping[str, Where] = field(default_factory=dict)

    def __post_init__(self) -> None:
        places = {name: getattr(self, name) for name in ("weights", "affine", "statistics")} | dict(self.slots)
        for name, value in places.items():
            require(value in ("shared", "personal"), f"place.{name}", value, '"shared" or "kept"', "use one")
        allowed = '"initial" or "average"'
        require(self.newcomer in ("initial", "average"), "newcomer", self.newcomer, allowed, "use one")
        known = self.outsider in ("average", "own")
        require(known, "algorithm.outsider", self.outsider, '"average" or "own"', 'set algorithm.outsider = "average"')
        lives = self.outsider == "average" or self.statistics == "personal"
        allowed = '"average" where clients share their statistics'
        require(lives, "algorithm.outsider", self.outsider, allowed, 'set algorithm.outsider = "average"')

    @property
    def stays(self) -> tuple[str, ...]:
        """The names of what stays with the clients."""
        places = {"weights": self.weights, "affine": self.affine, "statistics": self.statistics, **self.slots}
        return tuple(name for name, where in places.items() if where == "personal")

    def divide(self, layout: Layout) -> Layouts:
        """Divide a model's entries.

        Raises:
            InputError: there have to be batch-norm layers, and the model has none.
        """
        personal = "personal" in (self.affine, self.statistics)
        if personal and not any(entry.kind in BATCH_NORM and not entry.frozen for entry in layout.entries):
            raise InputError(
                "batch-norm layers stay with the clients, but the model has no batch-norm layer that trains: must have "
                'one; set model.norm = "batch" (not for logistic), or use another algorithm'
            )
        slots = [entry for slot in self.slots for entry in _slot(slot, layout)]
        whole = Layout((*layout.entries, *slots), layout.floating)
        return Layouts(
            whole.only(lambda e: not (e.frozen or self._keeps(e))),
            whole.only(lambda e: not e.frozen and self._keeps(e)),
            whole.only(lambda e: e.frozen),
        )

    def _keeps(self, entry: Entry) -> bool:
        where = {Kind.AFFINE: self.affine, Kind.STATISTIC: self.statistics}
        if entry.kind is Kind.SLOT:
            return self.slots[entry.name.split("/", 1)[0]] == "personal"
        return where.get(entry.kind, self.weights) == "personal"


def _slot(slot: str, layout: Layout) -> list[Entry]:
    """The entries of a slot: one for each parameter; for "batches" one counter."""
    if slot == "batches":
        return [Entry("batches/updates", (), Kind.SLOT, integer=True)]
    return [Entry(f"{slot}/{e.name}", e.shape, Kind.SLOT) for e in layout.entries if e.is_parameter]
