"""`[attack]`: a share of the training clients attacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, get_args

from algorithms.options.attack import Attack, AttackKind
from raysim.common.errors import InputError, check_known
from raysim.config.check import ConfigTable
from raysim.config.options import OptionTable


class AttackTable(OptionTable):
    """`[attack]`: a share of the training clients attacks; without this table all are honest."""

    complete: ClassVar[Sequence[Mapping[str, Any]]] = ({"kind": "sign-flip"},)

    share: float = Attack.share
    """Share of the training clients that attack, in [0, 1]; their number is rounded down."""
    kind: str = Attack.kind
    """Attack: `label-flip`, `sign-flip`, `gaussian`, `little-is-enough` or `inner-product`."""
    scale: float | None = None
    """Factor of the attack; by default 1, and for `little-is-enough` the paper's z by the sizes of the cohort."""

    def option(self, algorithm: Any = None, labels: Any = None) -> Attack:
        check_known(f"attack.kind = {self.kind!r}", self.kind, get_args(AttackKind))
        attack = Attack(**self.beyond(ConfigTable))
        if labels is None or labels.kind == "class":
            return attack if labels is None else replace(attack, classes=labels.outputs)
        if self.kind == "label-flip":
            from raysim.data.labels import LABELS  # late: it imports torch

            raise InputError(
                f'attack.kind = "label-flip" with labels that are {LABELS[labels.kind]}: must be classes of samples; '
                'set attack.kind = "sign-flip"'
            )
        return attack
