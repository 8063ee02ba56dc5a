"""`[model]`: one of ours or a user's own, and what every model takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import Field

from raysim.config import own
from raysim.config.check import Table, checked, table_of
from raysim.models.build import MODELS, build
from raysim.models.build import Model as ModelOf
from raysim.models.common import Common
from raysim.models.init import Init
from raysim.models.norm import Norm
from raysim.models.weights import FILE


class Model(Table):
    """`[model]`: a model by name and what all of them take; its own keys stand beside these."""

    name: str = "mlp"
    norm: Norm | None = None
    groups: Annotated[int, Field(ge=1)] | None = None
    norm_momentum: Annotated[float, Field(gt=0, le=1)] | None = None
    norm_eps: Annotated[float, Field(gt=0)] | None = None
    renorm_r_max: Annotated[float, Field(ge=1)] | None = None
    renorm_d_max: Annotated[float, Field(ge=0)] | None = None
    renorm_start: Annotated[int, Field(ge=0)] | None = None
    renorm_r_end: Annotated[int, Field(ge=0)] | None = None
    renorm_d_end: Annotated[int, Field(ge=0)] | None = None
    init: Init = Common.init
    init_std: Annotated[float, Field(gt=0)] | None = None
    weights: str | None = None
    train: str = Common.train

    @property
    def keys(self) -> dict[str, Any]:
        """What the model is built with: its own keys, and those of all models that are given."""
        common = {field.name: getattr(self, field.name) for field in fields(Common)}
        return {key: value for key, value in common.items() if value is not None} | self.beyond(Model)

    @property
    def own(self) -> Callable[..., Any] | None:
        """What the name stands for where it is a user's own."""
        return own.found("model.name", self.name, MODELS) if ":" in self.name else None

    @property
    def own_code(self) -> list[ModuleType]:
        """The user's modules that the model comes from; none where it is ours."""
        return own.modules_of([self.name])


def model_of(raw: Mapping[str, Any]) -> Model:
    """Check and resolve the table.

    Raises:
        InputError: see `checked`; also an unknown model, or a user's own whose parameters cannot be keys.
    """
    name = raw.get("name", Model.model_fields["name"].default)
    found = own.found("model.name", name, MODELS)
    model = found if isinstance(found, ModelOf) else ModelOf(found)
    if ":" in name:
        keys = {key: model.signature[key] for key in model.parameters}
        own.check_model(name, model.build, keys, {*dir(Model), *Model.model_fields, *signature(build).parameters})
    given = tuple(key for key in signature(model.build).parameters if key not in model.parameters)
    table = checked(table_of(model.build, given, Model), raw, "model", of=f"model {name}")
    changes: dict[str, Any] = {} if table.norm is not None or model.norm is None else {"norm": model.norm}
    if table.weights is not None and table.weights.endswith(FILE):
        # Absolute, so that the resolved file means the same from anywhere.
        changes["weights"] = str(Path(table.weights).expanduser().resolve())
    table = table.model_copy(update=changes)
    return table.model_copy(update=Common(**{f.name: getattr(table, f.name) for f in fields(Common)}).resolved())
