"""The schemes by name, and what each takes: one place for the command line, files and Python."""

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
from partitioning.schemes.parts import ClassTable, Column, Parts
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
"""Every scheme by its name on the command line and in files."""

_LEAVES_OUT = ("counts", "natural", "domains")  # samples that no client asks for

UNLABELLED = ("iid", "quantity", "natural", "domains")
"""The schemes that need no classes: for labels that are images, too."""

_GIVEN = ("labels", "clients", "seed", "features", "buckets")  # what `make` has by itself, for all schemes


@dataclass(frozen=True)
class Parameter:
    """What a scheme takes besides labels, clients and seed.

    Args:
        name: in Python and in files; on the command line with hyphens.
        type: in Python.
        default: `inspect.Parameter.empty` where it must be given.
        text: what it is, in a line.
    """

    name: str
    type: Any
    default: Any
    text: str

    @property
    def is_column(self) -> bool:
        """Whether it has a value a sample, which files name by its column."""
        return self.type is Column

    @property
    def file_type(self) -> Any:
        """Its type on the command line and in files."""
        if self.is_column:
            return str
        return str | list[list[int]] if self.type is ClassTable else self.type


@cache
def parameters(scheme: str) -> Mapping[str, Parameter]:
    """Return what a scheme takes; raises InputError for an unknown one, naming the nearest."""
    function = _known(scheme)
    hints, texts = get_type_hints(function, include_extras=True), _texts(function)
    return {
        name: Parameter(name, hints[name], parameter.default, texts[name])
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in _GIVEN
    }


def takes(scheme: str, name: str) -> bool:
    """Return whether a scheme's function has a parameter, `clients` and `features` included."""
    return name in inspect.signature(_known(scheme)).parameters


def is_complete(scheme: str) -> bool:
    """Return whether a scheme deals every sample; False for one that is not known here."""
    return scheme in SCHEMES and scheme not in _LEAVES_OUT


def resolve(scheme: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters of a scheme, defaults filled in and numbers in the type of their default.

    So 1 and 1.0, or a numpy number, are written to a manifest alike. Raises InputError for an unknown or a missing
    parameter, naming the nearest, and for a value of another kind.
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
        labels: one label a sample [N].
        scheme: a name in `SCHEMES`.
        seed: keys every draw.
        given: `clients`, where the scheme takes it, and its parameters; what is missing has the scheme's default.

    Returns an index array a client. Raises InputError for an unknown scheme or parameter, naming the nearest.
    """
    clients = given.pop("clients", None)
    check_clients(scheme, clients)
    own = {} if clients is None else {"clients": clients}
    own |= {name: given.pop(name) for name in ("features", "buckets") if name in given and takes(scheme, name)}
    return SCHEMES[scheme](labels, seed=seed, **own, **resolve(scheme, given))


def check_clients(scheme: str, clients: object) -> None:
    """Raise InputError unless a number of clients is given just where the scheme takes one; None: it is not."""
    if takes(scheme, "clients") and clients is None:
        raise InputError(f"scheme {scheme!r} needs clients: give the number of clients")
    if clients is not None and not takes(scheme, "clients"):
        raise InputError(f"scheme {scheme!r} finds the clients in the data: leave clients out")


def _known(scheme: str) -> Scheme:
    if scheme not in SCHEMES:
        raise InputError(f"scheme {scheme!r} is unknown: choose {listing(SCHEMES)}{suggestion(str(scheme), SCHEMES)}")
    return SCHEMES[scheme]


def _plain(value: Any, parameter: Parameter) -> Any:
    if parameter.is_column:
        return value
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and isinstance(parameter.default, float) else value


def _texts(function: Scheme) -> dict[str, str]:
    # The lines of "Args:" in its docstring.
    documentation = inspect.getdoc(function) or ""
    arguments = documentation.partition("Args:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", arguments, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}
