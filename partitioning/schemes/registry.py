"""Schemes by name and their parameters, for the command line, files and Python."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, get_type_hints

import numpy as np
import numpy.typing as npt

from partitioning.common.errors import InputError, listing, suggestion
from partitioning.schemes.dirichlet import dirichlet, dirichlet_per_class
from partitioning.schemes.dirichlet_qp import dirichlet_qp
from partitioning.schemes.even import iid, quantity
from partitioning.schemes.natural import domains, natural
from partitioning.schemes.parts import ClassTable, ColumnValues, Parts
from partitioning.schemes.shards import shards, shards_unbalanced
from partitioning.schemes.shifts import concept, feature_noise
from partitioning.schemes.tables import counts, labels_per_client

Scheme = Callable[..., Parts]

SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {
        "iid": iid,
        "quantity": quantity,
        "dirichlet-qp": dirichlet_qp,
        "dirichlet": dirichlet,
        "dirichlet-per-class": dirichlet_per_class,
        "shards": shards,
        "shards-unbalanced": shards_unbalanced,
        "labels-per-client": labels_per_client,
        "counts": counts,
        "natural": natural,
        "domains": domains,
        "feature-noise": feature_noise,
        "concept": concept,
    }
)
"""Schemes by name on the command line and in files."""

_INCOMPLETE = ("counts", "natural", "domains")  # schemes that may leave samples out

UNLABELLED = ("iid", "quantity", "natural", "domains")
"""Schemes that need no classes, hence also take images as labels."""

_GIVEN = ("labels", "clients", "seed", "features", "buckets")  # options of `make` itself


@dataclass(frozen=True)
class Parameter:
    """A parameter of a scheme besides labels, clients and seed.

    Args:
        name: name in Python and in files; the command line uses hyphens.
        type: type in Python.
        default: default value; `inspect.Parameter.empty` if the parameter is required.
        text: description in one line.
    """

    name: str
    type: Any
    default: Any
    text: str

    @property
    def is_column(self) -> bool:
        """Whether the parameter has one value per sample; files give the column's name."""
        return self.type is ColumnValues

    @property
    def file_type(self) -> Any:
        """Type on the command line and in files."""
        if self.is_column:
            return str
        return str | list[list[int]] if self.type is ClassTable else self.type


@cache
def parameters(scheme: str) -> Mapping[str, Parameter]:
    """Return the parameters of a scheme; for an unknown one, raise InputError with the nearest name."""
    function = _known(scheme)
    hints, texts = get_type_hints(function, include_extras=True), _texts(function)
    return {
        name: Parameter(name, hints[name], parameter.default, texts.get(name, ""))
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in _GIVEN
    }


def takes(scheme: str, name: str) -> bool:
    """Return whether a scheme takes a parameter; `clients` and `features` count as well."""
    return name in inspect.signature(_known(scheme)).parameters


def is_complete(scheme: str) -> bool:
    """Return whether a scheme deals every sample; False for an unknown scheme."""
    return scheme in SCHEMES and scheme not in _INCOMPLETE


def resolve(scheme: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters of a scheme, defaults included, with numbers in the type of their default.

    This way a manifest does not depend on whether a number was given as 1, 1.0 or a numpy number.

    Raises:
        InputError: a parameter is unknown or missing; the message has the nearest name.
    """
    known = parameters(scheme)
    for name in given:
        if name not in known:
            raise InputError(
                f"scheme {scheme!r} does not take {name!r}: it takes {listing(known)}" + suggestion(name, known)
            )
    for name, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and name not in given:
            raise InputError(f"scheme {scheme!r} needs {name}: give {parameter.text.rstrip('.')}")
    return {name: _plain(given.get(name, parameter.default), parameter) for name, parameter in known.items()}


def partition(labels: npt.ArrayLike, scheme: str, *, seed: int = 0, **given: Any) -> Parts:
    """Partition by the name of a scheme.

    Args:
        labels: one label per sample [N].
        scheme: name in `SCHEMES`.
        seed: key of every draw.
        given: parameters of the scheme, and `clients` if it takes them; missing ones have the scheme's defaults.

    Returns:
        One index array per client.

    Raises:
        InputError: the scheme or a parameter is unknown; the message has the nearest name.
    """
    clients = given.pop("clients", None)
    check_clients(scheme, clients)
    own = {} if clients is None else {"clients": clients}
    own |= {name: given.pop(name) for name in ("features", "buckets") if name in given and takes(scheme, name)}
    return SCHEMES[scheme](labels, seed=seed, **own, **resolve(scheme, given))


def check_clients(scheme: str, clients: object) -> None:
    """Raise InputError unless `clients` is given exactly if the scheme takes it; None counts as not given."""
    if takes(scheme, "clients") and clients is None:
        raise InputError(f"scheme {scheme!r} needs clients: give the number of clients")
    if clients is not None and not takes(scheme, "clients"):
        raise InputError(f"scheme {scheme!r} finds the clients in the data: leave clients out")


def _known(scheme: str) -> Scheme:
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        raise InputError(f"scheme {scheme!r} is unknown: choose {listing(SCHEMES)}{suggestion(str(scheme), SCHEMES)}")
    return SCHEMES[scheme]


def _plain(value: Any, parameter: Parameter) -> Any:
    if parameter.is_column:
        return value
    value = _unpacked(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and isinstance(parameter.default, float) else value


def _unpacked(value: Any) -> Any:
    # Arrays and their numbers, also inside lists and tables, as Python's own, which a manifest can hold.
    if hasattr(value, "__array__"):
        return np.asarray(value).tolist()
    if isinstance(value, Mapping):
        return {name: _unpacked(each) for name, each in value.items()}
    return [_unpacked(each) for each in value] if isinstance(value, list | tuple) else value


def _texts(function: Scheme) -> dict[str, str]:
    # Descriptions of the arguments in the docstring, which `python -OO` removes.
    documentation = inspect.getdoc(function) or ""
    arguments = documentation.partition("Args:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", arguments, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}
