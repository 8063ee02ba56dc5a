"""`[model]`: a model of raysim's or the user's own, and the keys of all models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from partitioning.common.paths import absolute, expanded
from raysim.config import own
from raysim.config.check import ConfigTable, checked, distinct, signature_of, table_of
from raysim.models.build import MODELS, ModelBuilder, build
from raysim.models.keys import WEIGHTS_SUFFIX, Init, Norm
from raysim.models.options import OPTION_NAMES, ModelOptions


class ModelTable(ConfigTable):
    """`[model]`: a model by name and the keys of all models; the model's own keys stand beside these."""

    name: str = "mlp"
    """Model: a name from `raysim list models`, or `module:Class` for your own."""
    norm: Norm | None = None
    """Normalisation in place of the model's batch-norm layers; by default the model's own."""
    groups: Annotated[int, Field(ge=1)] | None = None
    """Groups of a group normalisation, by default 8."""
    norm_momentum: Annotated[float, Field(gt=0, le=1)] | None = None
    """Weight of a new batch in running statistics; by default the layer's, in PyTorch 0.1."""
    norm_eps: Annotated[float, Field(gt=0)] | None = None
    """Number added to variances; by default the layer's, in PyTorch 1e-5."""
    renorm_r_max: Annotated[float, Field(ge=1)] | None = None
    """Final limit of batch-renorm's r, by default 3."""
    renorm_d_max: Annotated[float, Field(ge=0)] | None = None
    """Final limit of batch-renorm's d, by default 5."""
    renorm_start: Annotated[int, Field(ge=0)] | None = None
    """Batches of plain batch norm before batch-renorm's limits open, by default 500."""
    renorm_r_end: Annotated[int, Field(ge=0)] | None = None
    """Batches until batch-renorm's r reaches its final limit, by default 4000."""
    renorm_d_end: Annotated[int, Field(ge=0)] | None = None
    """Batches until batch-renorm's d reaches its final limit, by default 2500."""
    init: Init = ModelOptions.init
    """Initial weights: the model's own, Glorot's uniform ones, or normal ones."""
    init_std: Annotated[float, Field(gt=0)] | None = None
    """Standard deviation of `init = "normal"`, which requires it."""
    weights: str | None = None
    """Weights to start from: a `.safetensors` file or a name of torchvision's; by default drawn ones."""
    train: str = ModelOptions.train
    """Part to train: `all`, a prefix of entry names (entries before the first match are frozen), or `lora`: adapters
    and the head."""
    lora_rank: Annotated[int, Field(ge=1)] | None = None
    """Rank of the adapters of `train = "lora"`, by default 8."""
    lora_alpha: Annotated[float, Field(gt=0)] | None = None
    """Scale of the adapters, by default 16."""
    lora_dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Dropout of the adapters' inputs, by default 0."""
    lora_targets: Annotated[tuple[str, ...], AfterValidator(distinct)] | None = None
    """Layers with adapters, or ends of their names, such as `["c_attn"]`; by default all but the head."""
    head: str | tuple[str, ...] | None = ModelOptions.head
    """Layer, or layers, of the classifier; by default the layer `head`, or the last linear layer or convolution."""

    @property
    def keys(self) -> dict[str, Any]:
        """Arguments of the model: its own keys, and the common keys that are set."""
        common = {name: getattr(self, name) for name in OPTION_NAMES}
        return {key: value for key, value in common.items() if value is not None} | self.beyond(ModelTable)

    @property
    def own(self) -> Callable[..., Any] | None:
        """The user's own class or function; None for a model of raysim's."""
        return own.resolve("model.name", self.name, MODELS) if ":" in self.name else None


def model_of(raw: Mapping[str, Any]) -> ModelTable:
    """Check and resolve the table.

    Raises:
        InputError: see `checked`; also an unknown model, or a user's own whose parameters cannot be keys.
    """
    name = raw.get("name", ModelTable.model_fields["name"].default)
    found = own.resolve("model.name", name, MODELS)
    model = found if isinstance(found, ModelBuilder) else ModelBuilder(found)
    if ":" in name:
        taken = {*dir(ModelTable), *ModelTable.model_fields, *signature_of(build).parameters}
        own.check_model(name, model.build, model.parameters, taken)
    given = tuple(key for key in signature_of(model.build).parameters if key not in model.parameters)
    table = checked(table_of(model.build, given, ModelTable), raw, "model", of=f"model {name}")
    changes: dict[str, Any] = {} if table.norm is not None or model.norm is None else {"norm": model.norm}
    if table.weights is not None and table.weights.endswith(WEIGHTS_SUFFIX):
        # The resolved file must mean the same from any folder.
        changes["weights"] = str(absolute("model.weights", table.weights))
    folder = getattr(table, "pretrained", "")
    if folder and expanded("model.pretrained", folder).is_dir():
        changes["pretrained"] = str(absolute("model.pretrained", folder))
    table = table.model_copy(update=changes)
    return table.model_copy(update=ModelOptions(**{name: getattr(table, name) for name in OPTION_NAMES}).resolved())
