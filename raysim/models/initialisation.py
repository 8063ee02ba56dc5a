"""Initial weights, drawn or loaded, and the part of a model that trains."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlparse

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from algorithms import Entry, Kind, Layout, freeze
from algorithms.core.head import is_within, mark_head
from algorithms.training.loss import LabelKind
from partitioning.common.paths import regular
from raysim.common.errors import InputError, unknown
from raysim.models.adapters import add_lora
from raysim.models.keys import WEIGHTS_SUFFIX, WHOLE_MODEL, Init
from raysim.models.options import LORA, LORA_KEYS, ModelOptions

NORMALISATION = (_NormBase, nn.GroupNorm, nn.LayerNorm)
"""Layers that `initialise` leaves alone: as a rule their scale is 1 and their shift 0."""

LISTED_DEPTH = 2
"""Nesting of the layers whose names an error lists."""

LISTED_PARTS = 60
"""Parts of a model that an error lists."""


def begin(
    module: nn.Module, options: ModelOptions, name: str, classes: int, labels: LabelKind, seed: int
) -> tuple[str, ...]:
    """Mark the head, set the initial weights, freeze what does not train; return the entries made anew."""
    if options.head is not None:
        choose_head(module, (options.head,) if isinstance(options.head, str) else options.head)
    initialise(module, options.init, options.init_std, seed)
    anew = load_weights(module, options.weights, name, classes) if options.weights is not None else ()
    if options.train == LORA:
        keys = options.resolved()
        given = {key.removeprefix("lora_"): keys[key] for key in LORA_KEYS}
        # The head of a language model was trained before, and is often its embedding.
        add_lora(module, seed=seed, trains_head=labels != "sequence", **given)
    else:
        freeze_before(module, options.train)
    return anew


@torch.no_grad()
def initialise(module: nn.Module, init: Init, std: float | None, seed: int) -> None:
    """Draw the weights of all linear layers and convolutions.

    - default: keep the weights of the model's builder.
    - glorot: weights from U(-a, a), a = sqrt(6 / (fan_in + fan_out)), biases 0, like Keras (FedMMB).
    - normal: weights and biases from N(0, std^2) (FedBN, appendix F: std = 10).

    Args:
        module: model to change.
        init: one of these names.
        std: standard deviation of "normal".
        seed: key of the draws, which follow the order of the module's layers.

    Raises:
        InputError: a layer of another type has entries to train.
    """
    if init == "default":
        return
    generator = torch.Generator().manual_seed(seed)
    for name, layer in module.named_modules():
        own = [each for each in layer._parameters.values() if each is not None]
        if isinstance(layer, NORMALISATION) or not own:
            continue
        if not isinstance(layer, (nn.Linear, _ConvNd)):
            raise InputError(
                f"model.init = {init!r} over model layer {name or 'itself'}, a {type(layer).__name__}: must be linear, "
                'a convolution or a normalisation; set model.init = "default"'
            )
        for parameter in own:
            if init == "normal":
                nn.init.normal_(parameter, 0, std or 0.0, generator=generator)
            elif parameter is layer.weight:
                nn.init.xavier_uniform_(parameter, generator=generator)
            else:
                parameter.zero_()


def choose_head(module: nn.Module, layers: Sequence[str]) -> None:
    """Mark the layers of a model's head; raise InputError if one does not exist or has no entries."""
    entries = [entry.name for entry in Layout.of(module).entries]
    for layer in layers or ("",):
        if not layer or not any(is_within(entry, [layer]) for entry in entries if entry != layer):
            known = dict.fromkeys(entry.rpartition(".")[0] for entry in entries if "." in entry)
            raise unknown(f"model.head = {layer!r}", layer, list(known), most=LISTED_PARTS)
    mark_head(module, [name for name, _ in module.named_modules() if name in layers])


def freeze_before(module: nn.Module, part: str) -> None:
    """Freeze all entries before the first one of a part.

    Args:
        module: model to change.
        part: "all", or the name of a layer or entry, or its beginning up to a dot: "features.17" trains all of
            `features.17.conv.0.0.weight` and everything behind it in the order of the module's layers.

    Raises:
        InputError: there is no such part, or nothing in it or behind it trains.
    """
    if part == WHOLE_MODEL:
        return
    entries = Layout.of(module).entries
    first = next((i for i, e in enumerate(entries) if f"{e.name}.".startswith(f"{part}.")), None)
    if first is None:
        words = (entry.name.split(".") for entry in entries)
        # In the model's order, because everything behind a part trains too. Parts inside of blocks would be hundreds.
        listed = dict.fromkeys(
            ".".join(name[:depth]) for name in words for depth in range(1, min(len(name) - 1, LISTED_DEPTH) + 1)
        )
        raise unknown(f"model.train = {part!r}", part, [WHOLE_MODEL, *listed], most=LISTED_PARTS)
    if not any(entry.is_parameter for entry in entries[first:]):
        raise InputError(f'model.train = {part!r}: must have parameters in it or behind it; set model.train = "all"')
    freeze(module, {entry.name for entry in entries[:first]})


@torch.no_grad()
def load_weights(module: nn.Module, weights: str, name: str, classes: int) -> tuple[str, ...]:
    """Copy the entries of a file, or of torchvision's weights, into a model by name.

    The head (see `head_layers`) keeps its drawn weights if it has `classes` outputs and the loaded weights have another
    number. Batch norm's counters may be absent.

    Args:
        module: model to change.
        weights: path of a `.safetensors` file, or one of torchvision's names, such as "IMAGENET1K_V1" or "DEFAULT".
        name: name of the model.
        classes: number of classes of the model.

    Returns:
        The classifier's entries that keep their drawn weights.

    Raises:
        InputError: there is no such file or name, torchvision's weights cannot be downloaded, or entries are missing,
            unexpected or of another shape.
    """
    values = _from_file(weights) if weights.endswith(WEIGHTS_SUFFIX) else _from_torchvision(weights, name, module)
    entries = {entry.name: entry for entry in Layout.of(module).entries}
    anew = tuple(each for each in _classifier(module, classes) if each in values and _differs(entries[each], values))
    wrong = {
        "without": [e.name for e in entries.values() if e.name not in values and not _is_counter(e)],
        "with unexpected": [each for each in values if each not in entries and each not in module.state_dict()],
        "of another shape or type in": [
            e.name for e in entries.values() if e.name in values and e.name not in anew and not _fits(e, values[e.name])
        ],
    }
    for what, names in wrong.items():
        if names:
            raise InputError(
                f"model.weights = {weights!r}: must have the entries of model {name}, but is {what} {_listed(names)}; "
                "check model.name, its keys and model.norm"
            )
    state = module.state_dict(keep_vars=True)
    for each, entry in entries.items():
        if each in values and each not in anew:
            state[each].copy_(values[each].reshape(entry.shape))
    return anew


def _from_file(weights: str) -> Mapping[str, torch.Tensor]:
    try:
        return load_file(regular(weights))
    except (OSError, SafetensorError) as error:
        why = str(error).partition("\n")[0]
        raise InputError(
            f"model.weights = {weights!r}: must be a readable {WEIGHTS_SUFFIX} file ({why}); check the path"
        ) from None


def _from_torchvision(weights: str, name: str, module: nn.Module) -> Mapping[str, torch.Tensor]:
    from raysim.common.vision import torchvision  # late: most models do not need it

    names = {each.replace("_", ""): each for each in torchvision.models.list_models()}
    theirs = names.get(name.replace("_", ""))
    if theirs is None or not type(module).__module__.startswith("torchvision.models"):
        raise InputError(
            f"model.weights = {weights!r} with model {name}, which is not torchvision's: must be the path of a "
            f'{WEIGHTS_SUFFIX} file; set model.weights = "FILE{WEIGHTS_SUFFIX}"'
        )
    known = torchvision.models.get_model_weights(theirs).__members__
    if weights not in known:
        raise unknown(f"model.weights = {weights!r} of model {name}", weights, [*known, f"FILE{WEIGHTS_SUFFIX}"])
    file = Path(torch.hub.get_dir()) / "checkpoints" / Path(urlparse(known[weights].url).path).name
    try:
        # Only tensors are read, because a pickle may hold anything.
        values: Mapping[str, torch.Tensor] = known[weights].get_state_dict(
            progress=False, check_hash=True, weights_only=True, map_location="cpu"
        )
    except Exception as error:  # no network, a broken download, another kind of file
        why = str(error).partition("\n")[0]
        raise InputError(
            f"model.weights = {weights!r}: must be on disk or downloadable, and {known[weights].url} cannot be "
            f"downloaded ({why}); put the file at {file}"
        ) from None
    return values


def _classifier(module: nn.Module, classes: int) -> Sequence[str]:
    """Return the entries of the head if it has `classes` outputs."""
    entries = [entry for entry in Layout.of(module).entries if entry.head]
    return [entry.name for entry in entries] if entries and entries[-1].shape[:1] == (classes,) else ()


def _differs(entry: Entry, values: Mapping[str, torch.Tensor]) -> bool:
    """Say whether an entry differs from the loaded one in its number of classes alone."""
    there = tuple(values[entry.name].shape)
    return there != entry.shape and there[1:] == entry.shape[1:]


def _is_counter(entry: Entry) -> bool:
    return entry.integer and entry.kind is Kind.STATISTIC


def _fits(entry: Entry, value: torch.Tensor) -> bool:
    # A run's files store a counter as one number, or as a list of one.
    shapes = (entry.shape, (1,)) if _is_counter(entry) else (entry.shape,)
    return tuple(value.shape) in shapes and value.is_floating_point() != entry.integer


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
