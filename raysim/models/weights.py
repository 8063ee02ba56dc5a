"""Weights to start from: of torchvision, or of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlparse

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from torch.nn.modules.conv import _ConvNd

from algorithms import Entry, Kind, Layout
from raysim.common.errors import InputError, unknown

FILE = ".safetensors"


@torch.no_grad()
def load_weights(module: nn.Module, weights: str, name: str, classes: int) -> tuple[str, ...]:
    """Give a model the entries of a file or of torchvision, by name.

    The classifier, which is the last linear layer or convolution, stays as it was made where it has `classes` outputs
    and the weights have another number. Batch norm's counters may be absent.

    Args:
        module: is changed.
        weights: the path of a `.safetensors` file, or a name of torchvision's, such as "IMAGENET1K_V1" or "DEFAULT".
        name: of the model.
        classes: that the model tells apart.

    Returns:
        the classifier's entries that were made anew.

    Raises:
        InputError: no such file or name, torchvision's cannot be downloaded, or entries are missing, unexpected or of
            another shape.
    """
    values = _from_file(weights) if weights.endswith(FILE) else _from_torchvision(weights, name, module)
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
                f"model.weights = {weights!r}: must have the entries of model {name}, and is {what} {_listed(names)}; "
                "check model.name, its keys and model.norm"
            )
    state = module.state_dict(keep_vars=True)
    for each, entry in entries.items():
        if each in values and each not in anew:
            state[each].copy_(values[each].reshape(entry.shape))
    return anew


def _from_file(weights: str) -> Mapping[str, torch.Tensor]:
    try:
        return load_file(weights)
    except (OSError, SafetensorError) as error:
        why = str(error).partition("\n")[0]
        raise InputError(
            f"model.weights = {weights!r}: must be a readable {FILE} file ({why}); check the path"
        ) from None


def _from_torchvision(weights: str, name: str, module: nn.Module) -> Mapping[str, torch.Tensor]:
    from torchvision.models import get_model_weights, list_models  # late: most models need none of it

    names = {each.replace("_", ""): each for each in list_models()}
    theirs = names.get(name.replace("_", ""))
    if theirs is None or not type(module).__module__.startswith("torchvision.models"):
        raise InputError(
            f"model.weights = {weights!r} with model {name}, which is not torchvision's: must be the path of a "
            f'{FILE} file; set model.weights = "FILE{FILE}"'
        )
    known = get_model_weights(theirs).__members__
    if weights not in known:
        raise unknown(f"model.weights = {weights!r} of model {name}", weights, [*known, f"FILE{FILE}"])
    file = Path(torch.hub.get_dir()) / "checkpoints" / Path(urlparse(known[weights].url).path).name
    try:
        # Only tensors are read: a pickle could hold anything.
        values: Mapping[str, torch.Tensor] = known[weights].get_state_dict(
            progress=False, check_hash=True, weights_only=True, map_location="cpu"
        )
    except Exception as error:  # no network, a broken download, a file that is something else
        why = str(error).partition("\n")[0]
        raise InputError(
            f"model.weights = {weights!r}: must be downloaded or there, and {known[weights].url} is not to be had "
            f"({why}); put the file at {file}"
        ) from None
    return values


def _classifier(module: nn.Module, classes: int) -> Sequence[str]:
    """The entries of the last linear layer or convolution, if that is what tells the classes apart."""
    layers = [(name, layer) for name, layer in module.named_modules() if isinstance(layer, (nn.Linear, _ConvNd))]
    if not layers or layers[-1][1].weight.shape[0] != classes:
        return ()
    name, layer = layers[-1]
    return [f"{name}.{each}" if name else each for each, own in layer._parameters.items() if own is not None]


def _differs(entry: Entry, values: Mapping[str, torch.Tensor]) -> bool:
    """Whether an entry has another number of classes there, and is the same apart."""
    there = tuple(values[entry.name].shape)
    return there != entry.shape and there[1:] == entry.shape[1:]


def _is_counter(entry: Entry) -> bool:
    return entry.integer and entry.kind is Kind.STATISTIC


def _fits(entry: Entry, value: torch.Tensor) -> bool:
    # Files of runs store a counter as one number, or as a list of one.
    shapes = (entry.shape, (1,)) if _is_counter(entry) else (entry.shape,)
    return tuple(value.shape) in shapes and value.is_floating_point() != entry.integer


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
