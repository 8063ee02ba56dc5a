"""What every model takes: how it is normalised, initialised, and which part of it trains."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import get_args

from torch import nn

from raysim.common.errors import InputError
from raysim.models.init import Init, initialise
from raysim.models.norm import GROUPS, KEYS, NORMS, OPENING, Norm, Normaliser, check_keys, converted
from raysim.models.part import ALL, train_from
from raysim.models.renorm import Opening
from raysim.models.weights import load_weights

RENORM = "renorm_"


@dataclass(frozen=True)
class Common:
    """The keys of `[model]` that all models have.

    Args:
        norm: what stands in the place of batch-norm layers, see `Normaliser`; None: what the model is made with.
        groups: of the group normalisers; None for 8.
        norm_momentum: of running statistics.
        norm_eps: added to variances.
        renorm_r_max: see `Opening`, as the others of batch-renorm.
        renorm_d_max: likewise.
        renorm_start: likewise.
        renorm_r_end: likewise.
        renorm_d_end: likewise.
        init: how weights are drawn, see `initialise`.
        init_std: the standard deviation of init "normal".
        weights: to start from, see `load_weights`; None for those that were drawn.
        train: the part that trains, see `train_from`.

    Raises:
        InputError: two exclude each other, or the norm has no such key.
    """

    norm: Norm | None = None
    groups: int | None = None
    norm_momentum: float | None = None
    norm_eps: float | None = None
    renorm_r_max: float | None = None
    renorm_d_max: float | None = None
    renorm_start: int | None = None
    renorm_r_end: int | None = None
    renorm_d_end: int | None = None
    init: Init = "default"
    init_std: float | None = None
    weights: str | None = None
    train: str = ALL

    def __post_init__(self) -> None:
        given = {key: getattr(self, key) for key in ("groups", "norm_momentum", "norm_eps", *OPENING)}
        if self.norm in NORMS:
            check_keys(self.norm, given)
        elif lone := next((key for key, value in given.items() if value is not None), None):
            norm = next(name for name in NORMS if lone in KEYS[name])
            raise InputError(f'{lone} without norm: must stand with one; set norm = "{norm}"')
        if self.init not in get_args(Init):
            raise InputError(f"init {self.init!r} is not known: choose one of {', '.join(get_args(Init))}")
        if self.init != "default" and (self.norm == "fixup" or self.weights is not None):
            other = 'norm "fixup", which draws' if self.norm == "fixup" else "weights, which has"
            raise InputError(f"init {self.init!r} with {other} the weights: must be left out; remove one of the two")
        if self.init != "normal" and self.init_std is not None:
            raise InputError(f'init_std with init {self.init!r}: must stand with init = "normal"; leave it out')
        positive = self.init_std is not None and self.init_std > 0 and isfinite(self.init_std)
        if self.init == "normal" and not positive:
            raise InputError(f'init_std is {self.init_std} with init "normal": must be above 0; set init_std = 10.0')

    @property
    def _opening(self) -> dict[str, float]:
        """What is given of batch-renorm's opening."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name.startswith(RENORM)}
        return {name.removeprefix(RENORM): value for name, value in given.items() if value is not None}

    def resolved(self) -> dict[str, object]:
        """The keys with their values, the norm's own defaults included; what is not given is left out."""
        own = {name: value for name, value in asdict(self).items() if value is not None}
        if self.norm is not None and "groups" in KEYS[self.norm]:
            own.setdefault("groups", GROUPS)
        if self.norm == "batch-renorm":
            own |= {RENORM + name: value for name, value in asdict(Opening(**self._opening)).items()}  # type: ignore[arg-type]
        return own

    def normalised(self, module: nn.Module, norm: str | None, shape: tuple[int, ...], seed: int) -> nn.Module:
        """The module with this normaliser; None leaves it as it is."""
        if norm is None:
            return module
        opening = Opening(**self._opening)  # type: ignore[arg-type]
        return converted(module, Normaliser(norm, self.groups, self.norm_momentum, self.norm_eps, opening), shape, seed)

    def begun(self, module: nn.Module, name: str, classes: int, seed: int) -> tuple[str, ...]:
        """Give the module its first weights, and freeze what is not to train; the entries that are made anew."""
        initialise(module, self.init, self.init_std, seed)
        anew = load_weights(module, self.weights, name, classes) if self.weights is not None else ()
        train_from(module, self.train)
        return anew
