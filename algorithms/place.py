"""The part `place`: which entries of the model travel, and which stay with the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from algorithms.errors import InputError, require
from algorithms.layout import Entry, Kind, Layout

Where = Literal["shared", "kept"]


@dataclass(frozen=True)
class Placement:
    """A model's entries, divided: those that go with the model and those that stay with the client."""

    travelling: Layout
    kept: Layout

    @property
    def whole(self) -> Layout:
        """All entries, the travelling ones first: the order of a resident model."""
        return Layout(self.travelling.entries + self.kept.entries, self.travelling.floating)


@dataclass(frozen=True)
class Place:
    """Where each entry lives, by the type of its layer, never by its name.

    A client that has no kept entries yet starts a visit from `newcomer`: the model's initial entries, or the
    average of the kept entries of the last merged cohort (which a real federation would have to send, so they
    are counted as protocol bytes then). Evaluation is another matter: initial statistics are harmless in
    training, which normalises by the batch, and meaningless in evaluation. So data of nobody, or of a client
    that keeps nothing yet, is always evaluated with the average, and no protocol bytes are counted for it. The data
    of an outsider, a client that never trains, may be evaluated with statistics of its own instead: the affine entries
    stay the average, the statistics come from a pass over the data that it is evaluated on (see
    `algorithms.statistics`). Where these are too few for batch norm, a single sample mostly, it keeps the average.

    Args:
        weights: place of all entries that are not batch norm's.
        affine: place of the learned scale and shift of batch-norm layers.
        statistics: place of the running mean, variance and counter of batch-norm layers.
        newcomer: what a client without kept entries starts from, "initial" or "average".
        outsider: the batch-norm statistics that a client that never trains is evaluated with, "average" or "own".
    """

    weights: Where = "shared"
    affine: Where = "shared"
    statistics: Where = "shared"
    newcomer: Literal["initial", "average"] = "initial"
    outsider: Literal["average", "own"] = "average"

    def __post_init__(self) -> None:
        for name in ("weights", "affine", "statistics"):
            value = getattr(self, name)
            require(value in ("shared", "kept"), f"place.{name}", value, '"shared" or "kept"', "use one")
        allowed = '"initial" or "average"'
        require(self.newcomer in ("initial", "average"), "newcomer", self.newcomer, allowed, "use one")
        known = self.outsider in ("average", "own")
        require(known, "algorithm.outsider", self.outsider, '"average" or "own"', 'set algorithm.outsider = "average"')
        lives = self.outsider == "average" or self.statistics == "kept"
        allowed = '"average" where clients share their statistics'
        require(lives, "algorithm.outsider", self.outsider, allowed, 'set algorithm.outsider = "average"')

    def divide(self, layout: Layout) -> Placement:
        """Divide a model's entries.

        Raises:
            InputError: entries of batch-norm layers are to be kept, and the model has none.
        """
        placement = Placement(layout.only(lambda e: not self._keeps(e)), layout.only(self._keeps))
        if "kept" in (self.affine, self.statistics) and not placement.kept.entries:
            raise InputError(
                "batch-norm layers stay with the clients, but the model has no batch-norm layer: must have one; "
                'set model.norm = "batch" (not for logistic), or use another algorithm'
            )
        return placement

    def _keeps(self, entry: Entry) -> bool:
        where = {Kind.AFFINE: self.affine, Kind.STATISTIC: self.statistics}
        return where.get(entry.kind, self.weights) == "kept"
