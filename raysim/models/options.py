"""Keys of `[model]` that all models have: normaliser, initial weights, and the part that trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import TYPE_CHECKING, Any, get_args

from raysim.common.errors import InputError, unknown
from raysim.models.keys import GROUPS, KEYS, NORMS, RENORM_KEYS, WHOLE_MODEL, Init, Norm, RenormLimits, check_keys

if TYPE_CHECKING:
    from torch import nn

    from algorithms.training.loss import LabelKind

RENORM_PREFIX = "renorm_"

LORA = "lora"
"""Value of `train` that adds adapters."""

LORA_KEYS: Mapping[str, Any] = {"lora_rank": 8, "lora_alpha": 16.0, "lora_dropout": 0.0, "lora_targets": ()}
"""Keys of adapters, and their defaults."""


@dataclass(frozen=True)
class ModelOptions:
    """Keys of `[model]` that all models have.

    Args:
        norm: normaliser in the place of batch-norm layers, see `Normaliser`; None for the model's own.
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
        InputError: two keys exclude each other, or the norm has no such key.
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
        given = {key: getattr(self, key) for key in ("groups", "norm_momentum", "norm_eps", *RENORM_KEYS)}
        if self.norm in NORMS:
            check_keys(self.norm, given)
        elif lone := next((key for key, value in given.items() if value is not None), None):
            norm = next(name for name in NORMS if lone in KEYS[name])
            raise InputError(f'model.{lone} without model.norm: needs one; set model.norm = "{norm}"')
        if self.train != LORA and (lone := next((key for key in LORA_KEYS if getattr(self, key) is not None), None)):
            raise InputError(f'model.{lone} without adapters: needs them; set model.train = "lora"')
        if self.init not in get_args(Init):
            raise unknown(f"model.init = {self.init!r}", str(self.init), get_args(Init))
        if self.init != "default" and (self.norm == "fixup" or self.weights is not None):
            other = 'model.norm = "fixup", which draws' if self.norm == "fixup" else "model.weights, which has"
            raise InputError(
                f"model.init = {self.init!r} with {other} the weights: must be left out; remove one of the two"
            )
        if self.init != "normal" and self.init_std is not None:
            raise InputError(
                f'model.init_std with model.init = {self.init!r}: is only for model.init = "normal"; leave it out'
            )
        positive = self.init_std is not None and self.init_std > 0 and isfinite(self.init_std)
        if self.init == "normal" and not positive:
            raise InputError(
                f'model.init_std = {self.init_std} with model.init = "normal": must be above 0; '
                "set model.init_std = 10.0"
            )

    @property
    def _renorm(self) -> dict[str, float]:
        given = {key.removeprefix(RENORM_PREFIX): getattr(self, key) for key in RENORM_KEYS}
        return {name: value for name, value in given.items() if value is not None}

    def resolved(self) -> dict[str, object]:
        """Return the given keys with their values, and the defaults of the norm's and the adapters' own."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        if self.train == LORA:
            given = {**LORA_KEYS, **given}
        if self.norm is not None and "groups" in KEYS[self.norm]:
            given.setdefault("groups", GROUPS)
        if self.norm == "batch-renorm":
            limits = asdict(RenormLimits(**self._renorm))  # type: ignore[arg-type]
            given |= {RENORM_PREFIX + name: value for name, value in limits.items()}
        return given

    def normalise(self, module: nn.Module, norm: str | None, shape: tuple[int, ...], seed: int) -> nn.Module:
        """Return the module with this normaliser; None leaves the module's own."""
        if norm is None:
            return module
        from raysim.models.norm import Normaliser, converted

        limits = RenormLimits(**self._renorm)  # type: ignore[arg-type]
        return converted(module, Normaliser(norm, self.groups, self.norm_momentum, self.norm_eps, limits), shape, seed)

    def begin(self, module: nn.Module, name: str, classes: int, labels: LabelKind, seed: int) -> tuple[str, ...]:
        """Mark the head, set the initial weights, freeze what does not train; return the entries made anew."""
        from raysim.models.initialisation import choose_head, freeze_before, initialise, load_weights

        if self.head is not None:
            choose_head(module, (self.head,) if isinstance(self.head, str) else self.head)
        initialise(module, self.init, self.init_std, seed)
        anew = load_weights(module, self.weights, name, classes) if self.weights is not None else ()
        if self.train == LORA:
            from raysim.models.adapters import add_lora

            given: dict[str, Any] = {key.removeprefix("lora_"): self.resolved()[key] for key in LORA_KEYS}
            # The head of a language model was trained before, and is often its embedding.
            add_lora(module, seed=seed, trains_head=labels != "sequence", **given)
        else:
            freeze_before(module, self.train)
        return anew


OPTION_NAMES = tuple(field.name for field in fields(ModelOptions))
