"""Attacks: what a share of the clients does to its labels, or to its updates on their way to the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import floor, isfinite
from statistics import NormalDist
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from algorithms.core.clients import Census, among
from algorithms.core.errors import InputError, require
from algorithms.core.keys import Purpose, generator
from algorithms.options.aggregation import Mean
from algorithms.options.robust import LOOKS, SINGLE_MODELS, Robust
from algorithms.parts.option import Conflict, Draft, Option, Updates

if TYPE_CHECKING:  # The experiment file is checked before torch is imported.
    import torch

    from algorithms.parts.client_update import Trained
    from algorithms.training.work import Work


AttackKind = Literal["label-flip", "sign-flip", "gaussian", "little-is-enough", "inner-product"]

Values = NDArray[np.float64]

HONEST = "remove [attack], or use another algorithm"


@dataclass(frozen=True)
class Attack(Option):
    """Attack by a fixed share of the training clients, with d_k = w_k - w the honest update of client k.

    - label-flip: the client trains honestly on labels y <- classes - 1 - y.
    - sign-flip: d_k <- -scale d_k.
    - gaussian: d_k <- scale N(0, 1), drawn by the key of the client update.
    - little-is-enough: d_k <- mean - z deviation, by coordinate over the cohort's attackers (Baruch et al., 2019).
    - inner-product: d_k <- -scale mean, over the cohort's attackers (Xie et al., 2020).

    All but label-flip act on parameters; batch-norm statistics and counters are sent honestly, because a negative
    variance would make every model NaN. The last two assume that attackers know each other's honest updates and the
    size of the cohort, but nothing of the honest clients.

    Args:
        share: share of the training clients that attack, in [0, 1]; their number is rounded down.
        kind: attack.
        scale: factor; None for 1, and for the z of little-is-enough by the sizes of the cohort, as in the paper.
        classes: classes of the labels, for label-flip.
    """

    share: float = 0.2
    kind: AttackKind = "sign-flip"
    scale: float | None = None
    classes: int | None = None

    name: ClassVar[str] = "attack"
    on_the_way: ClassVar[bool] = True
    forms_models: ClassVar[str] = LOOKS
    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            *("colluding attack", "uplink"),
            "be used without an uplink, because its attackers only know each other's updates before they are sent",
            "remove [uplink], or use another attack.kind",
        ),
        Conflict(*("attack", "own rounds"), "be used with a cohort that trains at once", HONEST),
        Conflict(
            *("colluding attack", "aggregate_every > 1"),
            "be used with aggregate_every = 1, because a model that visits many clients has met an attacker",
            HONEST,
        ),
        Conflict(*("attack", "weights that stay with the clients"), "be used with weights that are sent", HONEST),
    )

    def __post_init__(self) -> None:
        require(0 <= self.share <= 1, "attack.share", self.share, "in [0, 1]", "set attack.share = 0.2")
        require(
            self.kind in get_args(AttackKind),
            *("attack.kind", self.kind, f"one of {', '.join(get_args(AttackKind))}", 'set attack.kind = "sign-flip"'),
        )
        if self.scale is not None:
            require(isfinite(self.scale), "attack.scale", self.scale, "a finite number", "leave attack.scale out")
            if self.kind == "label-flip":
                raise InputError(
                    f'attack.scale = {self.scale} with attack.kind = "label-flip": must be left out, because labels '
                    "have no scale; remove it"
                )

    @property
    def colludes(self) -> bool:
        """Whether an attacker's update is made from those of all attackers of the cohort."""
        return self.kind in ("little-is-enough", "inner-product")

    @property
    def settings(self) -> Mapping[str, str]:
        text = f"attack = {self}"
        return {"attack": text, **SINGLE_MODELS} | ({"colluding attack": text} if self.colludes else {})

    @property
    def brings(self) -> tuple[Option, ...]:
        return (Robust(Mean()),) if self.colludes else ()

    def wrap(self, draft: Draft, updates: Updates) -> Updates:
        attackers = self.attackers(draft.fleet.census.clients, draft.state.seed)
        attacked = Attacked(self, frozenset(draft.drawn[among(draft.drawn, attackers)].tolist()))
        return replace(updates, on_the_way=(*updates.on_the_way, attacked))

    def attackers(self, clients: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        """Draw the attackers of a run.

        Args:
            clients: ids of the training clients, [K].
            seed: seed of the run.

        Returns:
            Ids of the attackers in ascending order.
        """
        count = floor(round(self.share * len(clients), 9))
        return clients[_attacking(seed, count, len(clients))]

    def colluders(self, clients: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        """Return the attackers of a run if they collude; see `attackers`."""
        return self.attackers(clients, seed) if self.colludes else clients[:0]

    def client_columns(self, census: Census, seed: int) -> Mapping[str, NDArray[np.bool_]]:
        return {"attacker": np.isin(census.clients, self.attackers(census.clients, seed))}

    def excluded(self, clients: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        return self.attackers(clients, seed)

    def flipped(self, y: torch.Tensor) -> torch.Tensor:
        """Return an attacker's labels."""
        if self.kind != "label-flip":
            return y
        if self.classes is None or y.dim() != 1 or y.is_floating_point():
            raise InputError(
                'attack.kind = "label-flip" with labels that are no classes of samples: must be classes; use '
                'attack.kind = "sign-flip"'
            )
        return self.classes - 1 - y

    def sent(self, received: Values, trained: Values, rng: np.random.Generator) -> Values:
        """Return the parameters that an attacker sends alone, [n].

        Args:
            received: parameters of the received model, [n].
            trained: parameters after the client update, [n].
            rng: random stream of the client update.
        """
        scale = 1.0 if self.scale is None else self.scale
        if self.kind == "gaussian":
            return received + scale * rng.standard_normal(len(received))
        return received - scale * (trained - received) if self.kind == "sign-flip" else trained

    def colluded(self, received: Values, trained: Values, cohort: int) -> Values:
        """Return the parameters that all attackers of a cohort send, [n].

        Args:
            received: parameters of the received model, [n].
            trained: parameters of the attackers after their client updates, [attackers, n].
            cohort: client updates that count, attackers included.
        """
        mean = trained.mean(axis=0)
        if self.kind == "inner-product":
            return np.asarray(received - (1.0 if self.scale is None else self.scale) * (mean - received))
        z = little(cohort, len(trained)) if self.scale is None else self.scale
        return np.asarray(mean - z * trained.std(axis=0))


@dataclass(frozen=True)
class Attacked:
    """Attackers that flip their labels, or change their models before they send them.

    Args:
        attack: attack.
        attackers: the cohort's attackers.
    """

    attack: Attack
    attackers: frozenset[int]

    def prepared(self, works: list[Work]) -> list[Work]:
        return [replace(w, y=self.attack.flipped(w.y)) if w.client in self.attackers else w for w in works]

    def __call__(self, trained: Trained) -> None:
        if self.attack.kind not in ("sign-flip", "gaussian"):
            return
        places, trainer, updates = trained.worker.resident.layouts.shared.parameters, trained.trainer, trained.updates
        for lane, work, received in zip(trained.lanes, trained.works, trained.received, strict=True):
            if work.batches and work.client in self.attackers:
                model = trainer.shared(lane).copy()
                rng = generator(updates.seed, Purpose.ATTACK, updates.round_number, work.client)
                w, after = (each.floats[places].astype(np.float64) for each in (received, model))
                model.floats[places] = self.attack.sent(w, after, rng)
                trainer.reload(lane, model, trainer.personal(lane).copy())


@lru_cache(maxsize=2)
def _attacking(seed: int, count: int, clients: int) -> NDArray[np.int64]:
    """Draw the places of the attackers among the clients, ascending; each round asks for the same ones."""
    return np.sort(generator(seed, Purpose.ATTACKERS).permutation(clients)[:count])


def little(cohort: int, attackers: int) -> float:
    """Return z, the largest shift by which enough honest clients still lie further away than the attackers.

    s = floor(n / 2 + 1) - m supporters are needed among the n - m honest ones, and Phi(z) = (n - m - s) / (n - m).

    Paper: Baruch et al., 2019, "A Little Is Enough", section 3.2 and Algorithm 3.

    Deviations: z lies in [0, 3]: without an honest client it is 3, and where the cohort is too small it is 0.
    """
    honest, needed = cohort - attackers, cohort // 2 + 1 - attackers
    if honest <= 0 or needed <= 0:
        return 3.0
    below = (honest - needed) / honest
    return 0.0 if below <= 0.5 else min(3.0, NormalDist().inv_cdf(below))
