"""Keys of `[model]` that all models have: normaliser, initial weights, and the part that trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from raysim.common.errors import InputError, check_known
from raysim.models.keys import GROUPS, KEYS, NORMS, RENORM_KEYS, WHOLE_MODEL, Init, Norm, RenormLimits

RENORM_PREFIX = "renorm_"

LORA = "lora"
"""Value of `train` that adds adapters."""

LORA_KEYS: Mapping[str, Any] = {"lora_rank": 8, "lora_alpha": 16.0, "lora_dropout": 0.0, "lora_targets": ()}
"""Keys of adapters, and their defaults."""


@dataclass(frozen=True)
class ModelOptions:
    """Keys of `[model]` that all models have.

    Args:
        norm: normaliser in the place of batch-norm layers, see `converted`; None for a model without one.
        groups: groups of the group normalisers; None for 8.
        norm_momentum: momentum of running statistics.
        norm_eps: addend of variances.
        renorm_r_max: see `RenormLimits`, like the other keys of batch-renorm.
        renorm_d_max: likewise.
        renorm_start: likewise.
        renorm_r_end: likewise.
        renorm_d_end: likewise.
        init: distribution of the initial weights, see `initialise`.
        init_std: standard deviation of init "normal".
        weights: initial weights to load, see `load_weights`; None to draw them.
        train: part that trains, see `freeze_before`; "lora" for adapters, see `add_lora`.
        lora_rank: rank of the adapters; None for 8.
        lora_alpha: scale of the adapters; None for 16.
        lora_dropout: dropout of the adapters' inputs; None for 0.
        lora_targets: names of the layers with adapters, or their ends; None for all but the head.
        head: name of the classifier's layer, or of several; None for the default, see `head_layers`.

    Raises:
        InputError: the norm is not known or has no such key, or two keys exclude each other.
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
    train: str = WHOLE_MODEL
    lora_rank: int | None = None
    lora_alpha: float | None = None
    lora_dropout: float | None = None
    lora_targets: tuple[str, ...] | None = None
    head: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.norm is not None:
            check_known(f"model.norm = {self.norm!r}", str(self.norm), NORMS)
        self._check_norm_keys()
        if self.train != LORA and (lone := next((key for key in LORA_KEYS if getattr(self, key) is not None), None)):
            raise InputError(f'model.{lone} without adapters: needs them; set model.train = "lora"')
        if self.init != "default" and (self.norm == "fixup" or self.weights is not None):
            other = 'model.norm = "fixup", which draws' if self.norm == "fixup" else "model.weights, which has"
            raise InputError(
                f"model.init = {self.init!r} with {other} the weights: must be left out; remove one of the two"
            )
        if self.init != "normal" and self.init_std is not None:
            raise InputError(
                f'model.init_std with model.init = {self.init!r}: is only for model.init = "normal"; leave it out'
            )
        if self.init == "normal" and self.init_std is None:
            raise InputError(
                'model.init_std = None with model.init = "normal": must be above 0; set model.init_std = 10.0'
            )

    def _check_norm_keys(self) -> None:
        """Refuse a key that the normaliser does not have."""
        given = {key: getattr(self, key) for key in ("groups", "norm_momentum", "norm_eps", *RENORM_KEYS)}
        for key, value in given.items():
            takers = [norm for norm in NORMS if key in KEYS[norm]]
            if value is None or self.norm in takers:
                continue
            if self.norm is None:
                raise InputError(f'model.{key} without model.norm: needs one; set model.norm = "{takers[0]}"')
            listed = " or ".join(f'"{norm}"' for norm in takers)
            raise InputError(
                f"model.{key} = {value} with model.norm = {self.norm!r}, which has "
                f"{' and '.join(KEYS[self.norm]) or 'no keys'}: is only for model.norm = {listed}; leave it out"
            )

    @property
    def limits(self) -> RenormLimits:
        """Limits of batch renormalisation."""
        given = {key.removeprefix(RENORM_PREFIX): getattr(self, key) for key in RENORM_KEYS}
        return RenormLimits(**{name: value for name, value in given.items() if value is not None})

    def resolved(self) -> dict[str, Any]:
        """Return the given keys with their values, and the defaults of the norm's and the adapters' own."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        if self.train == LORA:
            given = {**LORA_KEYS, **given}
        if self.norm is not None and "groups" in KEYS[self.norm]:
            given.setdefault("groups", GROUPS)
        if self.norm == "batch-renorm":
            given |= {RENORM_PREFIX + name: value for name, value in asdict(self.limits).items()}
        return given


OPTION_NAMES = tuple(field.name for field in fields(ModelOptions))
