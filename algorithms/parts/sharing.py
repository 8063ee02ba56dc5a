"""The part `sharing`: entries of the model that are shared, personal or frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from algorithms.core.entries import Entry, Kind
from algorithms.core.errors import InputError, require, require_one
from algorithms.core.head import is_within
from algorithms.core.layout import Layout, Layouts, Scope, divided

BATCH_NORM = (Kind.AFFINE, Kind.STATISTIC)

MaintainedMomentum = Literal["none", "local", "global"]

MOMENTUM_SLOTS: Mapping[MaintainedMomentum, Mapping[str, Scope]] = {
    "none": {},
    "local": {"momentum": "personal"},
    "global": {"momentum": "shared"},
}
"""Slots of momentum that outlasts a client update: personal, or shared with the model."""


@dataclass(frozen=True)
class Sharing:
    """Scope of each entry of the model, by the type of its layer or by its part. Frozen entries have no scope.

    A client without personal state starts from `newcomer`: the model's initial entries, or the average of the last
    aggregated cohort's personal entries. A real federation would have to send that average, so its bytes are counted.

    Evaluation differs. Initial batch-norm statistics are harmless in training, which normalises by the batch, but
    meaningless in evaluation. Data without a client, or of a client without personal state, is therefore evaluated
    with the average, and no bytes are counted. A held-out client may instead be evaluated with its `own` statistics.
    They come from a pass over the data that it is evaluated on (see `algorithms.training.statistics`); its affine
    entries stay the average. A client with too few samples for batch norm, usually one, keeps the average. If an
    option adds noise, the initial entries take the average's place everywhere, because the average has no noise.

    Args:
        weights: scope of all entries outside batch norm.
        affine: scope of the learned scale and shift of batch-norm layers.
        statistics: scope of the running mean, variance and counter of batch-norm layers.
        newcomer: personal entries of a client without personal state, "initial" or "average".
        slots: scope of those slots of `Local.slots` that outlast a client update; shared slots are averaged. All slots
            start at 0, and the others do so in each client update. The slot "own" is a second model, and starts as the
            model does. A number in place of the scope makes the slot one personal number that starts at it.
        outsider: batch-norm statistics for the evaluation of held-out clients, "average" or "own".
        personal: parts of the model that are personal whatever the scopes above: "head", "body", or names of layers.
    """

    weights: Scope = "shared"
    affine: Scope = "shared"
    statistics: Scope = "shared"
    newcomer: Literal["initial", "average"] = "initial"
    outsider: Literal["average", "own"] = "average"
    slots: Mapping[str, Scope | float] = field(default_factory=dict)
    personal: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value in self._scopes.items():
            known = value in ("shared", "personal") or (name in self.slots and isinstance(value, float))
            require(known, f"sharing.{name}", value, '"shared" or "personal"', "use one")
        require_one("algorithm.newcomer", self.newcomer, ("initial", "average"), "use one")
        require_one("algorithm.outsider", self.outsider, ("average", "own"), 'set algorithm.outsider = "average"')
        exists = self.outsider == "average" or self.statistics == "personal"
        allowed = '"average" if statistics are shared'
        require(exists, "algorithm.outsider", self.outsider, allowed, 'set algorithm.outsider = "average"')

    @property
    def _scopes(self) -> dict[str, Scope | float]:
        return {"weights": self.weights, "affine": self.affine, "statistics": self.statistics, **self.slots}

    @property
    def stays(self) -> tuple[str, ...]:
        """Names of everything personal."""
        return (*(name for name, scope in self._scopes.items() if scope != "shared"), *self.personal)

    def divide(self, layout: Layout) -> Layouts:
        """Divide a model's entries.

        Raises:
            InputError: batch-norm entries are personal, and the model has no batch-norm layer; or a personal part does
                not exist.
        """
        personal = self.weights != "personal" and "personal" in (self.affine, self.statistics)
        if personal and not any(entry.kind in BATCH_NORM and not entry.frozen for entry in layout.entries):
            raise InputError(
                "batch-norm layers stay with the clients, but the model has no batch-norm layer that trains: must have "
                'one; set model.norm = "batch" (not for logistic), or use another algorithm'
            )
        for part in self.personal:
            own = [entry for entry in layout.entries if part and _is_in(entry, part)]
            if own and all(entry.frozen for entry in own):
                raise InputError(
                    f"algorithm.personal = {part!r}: must have an entry that trains, and model.train freezes all of "
                    'it; set model.train = "all", or name another part'
                )
            if not own and part in ("head", "body"):
                raise InputError(
                    f"algorithm.personal = {part!r}: must be in the model, which has no {part}; set model.head to "
                    "another layer, or use another model"
                )
            if not own:
                parts = dict.fromkeys(entry.name.partition(".")[0] for entry in layout.entries)
                raise InputError(
                    f'algorithm.personal = {part!r}: must be "head", "body" or a part of the model '
                    f"({', '.join(parts)}), and not empty; use one of them"
                )
        return divided(layout, self.slots, self._is_personal)

    def _is_personal(self, entry: Entry) -> bool:
        scopes = {Kind.AFFINE: self.affine, Kind.STATISTIC: self.statistics}
        if entry.kind in (Kind.OWN, Kind.SECOND):
            return True
        if entry.kind is Kind.SLOT:
            return self.slots[entry.name.split("/", 1)[0]] != "shared"
        if any(_is_in(entry, part) for part in self.personal):
            return True
        return scopes.get(entry.kind, self.weights) == "personal"


def _is_in(entry: Entry, part: str) -> bool:
    """Return whether an entry belongs to a part of the model: "head", "body", or a layer's name."""
    return entry.head == (part == "head") if part in ("head", "body") else is_within(entry.name, [part])
