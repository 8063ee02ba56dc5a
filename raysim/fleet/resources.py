"""Resources and labels of client actors, and the nodes that have them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, inf
from typing import Any

import ray

from raysim.common.errors import InputError
from raysim.data.shards import Sites

SITE = "site"
"""Label with the site of a node: `ray start --labels site=NAME`."""

MAX_KINDS = 6
"""Kinds of nodes that a message describes."""

RAY_PREFIX = "ray.io/"
"""Prefix of labels that Ray gives to every node."""

RayNode = Mapping[str, Any]
"""Node of the cluster, as `ray.nodes()` describes it: `NodeID`, `Resources`, `Labels`, ..."""

_WORD = r"[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?"
_KEY = re.compile(rf"({_WORD}/)?{_WORD}")


@dataclass(frozen=True)
class ActorResources:
    """Share of a node that each client actor takes.

    Args:
        cpus: CPUs, and threads.
        gpus: GPUs, a fraction or a whole number.
        labels: labels that the node must have.
    """

    cpus: int = 1
    gpus: float = 0
    labels: Mapping[str, str] = field(default_factory=dict)

    def at(self, site: str) -> ActorResources:
        """Return the same resources on the nodes of a site."""
        return replace(self, labels={**self.labels, SITE: site})

    def on(self, node: RayNode) -> int:
        """Return the number of actors that fit an unused node. Ray fills one GPU with fractions before the next."""
        if any(node["Labels"].get(key) != value for key, value in self.labels.items()):
            return 0
        wanted = (("CPU", float(self.cpus)), ("GPU", self.gpus))
        return int(min(capacity(each, [node["Resources"].get(kind, 0.0)]) for kind, each in wanted))

    def room(self, nodes: Sequence[RayNode]) -> int:
        """Return the number of actors that fit these nodes."""
        return sum(self.on(node) for node in nodes)

    def __str__(self) -> str:
        labels = [f"label {key}={value}" for key, value in sorted(self.labels.items())]
        gpus = [f"{self.gpus:g} GPU"] if self.gpus else []
        return " and ".join([f"{self.cpus:g} CPU", *gpus, *labels])


@dataclass(frozen=True)
class ActorDemand:
    """Number and resources of a run's client actors.

    Args:
        number: number of actors, if pinned of each site; None for as many as fit Ray's nodes.
        each: resources of an actor.
        by_memory: whether the number and the shares of GPUs follow from the memory that the plans take.
        pinned: whether each actor has the clients of one site only.
        sites: names of the population's sites; none before the plans are known, or if the actors are not pinned.

    Raises:
        InputError: no node can have such labels, or Ray cannot assign such a number of GPUs.
    """

    number: int | None
    each: ActorResources
    by_memory: bool = False
    pinned: bool = False
    sites: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        gpus = self.each.gpus
        if gpus > 1 and gpus != int(gpus):
            raise InputError(
                f"fleet.gpus_per_actor = {gpus}: must be a fraction below 1 or a whole number; set it to {int(gpus)}"
            )
        for key, value in self.each.labels.items():
            # A selector of Ray, such as "in(a, b)", is no label.
            if not _KEY.fullmatch(key) or not re.fullmatch(_WORD, value):
                raise InputError(
                    f"fleet.labels = {{ {key} = {value!r} }}: must be a node's label, of letters, digits, dots, - and "
                    "_; write it as in ray start --labels KEY=VALUE"
                )

    @property
    def waits(self) -> bool:
        """Whether the number of actors depends on the plans."""
        return self.by_memory or self.pinned

    def of(self, site: int | None) -> ActorResources:
        """Return the resources of an actor of a site; None for an actor that is not pinned."""
        return self.each if site is None else self.each.at(self.sites[site])

    def planned(self, nodes: Sequence[RayNode]) -> list[int | None]:
        """Return the site of each actor to start; None for an actor that is not pinned.

        Raises:
            InputError: the actors do not fit the nodes. Ray itself would wait in silence.
        """
        sites: Sequence[int | None] = range(len(self.sites)) if self.pinned else [None]
        return [site for site in sites for _ in range(self._fitting(site, nodes))]

    def _fitting(self, site: int | None, nodes: Sequence[RayNode]) -> int:
        """Return the number of actors of a site to start: the wanted number, or as many as fit the nodes."""
        each, whose = self.of(site), "" if site is None else f" of site {self.sites[site]!r}"
        room = each.room(nodes)
        if not room:
            raise InputError(
                f"a client actor{whose} takes {each}: must fit a node, and Ray has {described(nodes)}; ask for less by "
                "fleet.cpus_per_actor, .gpus_per_actor, .labels or .pinned, or start such a node"
            )
        if self.number is not None and self.number > room:
            raise InputError(
                f"fleet.actors = {self.number} of {each} each{whose}: must fit Ray's nodes, which hold {room} and are "
                f"{described(nodes)}; set fleet.actors = {room}, or less for each"
            )
        return self.number or room


def site_names(sites: Sites | None) -> tuple[str, ...]:
    """Return the names of the population's sites.

    Raises:
        InputError: the population has no sites, or a client has none.
    """
    if sites is None:
        raise InputError(
            "fleet.pinned = true: must be used with a population that has sites, and this one has none; set "
            "fleet.pinned = false, or make the population with a column of sites"
        )
    if (without := (sites.numbers == len(sites.names)).sum()) > 0:
        raise InputError(
            f"fleet.pinned = true: every client must have a site, and {without} have none; set fleet.pinned = false, "
            "or make the population with a site for each client"
        )
    return sites.names


def living_nodes() -> list[RayNode]:
    """Return the living nodes of the cluster."""
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def node_names() -> dict[str, str]:
    """Return display names of all nodes by id, dead ones included: address and beginning of the id."""
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["NodeID"]: f"{node['NodeManagerAddress']}/{node['NodeID'][:8]}" for node in nodes}


def this_node() -> str:
    """Return the id of this process's node."""
    node: str = ray.get_runtime_context().get_node_id()
    return node


def described(nodes: Sequence[RayNode]) -> str:
    """Describe nodes by kind, for a message."""
    kinds = Counter(_description(node) for node in nodes).most_common()
    words = [f"{count} x ({kind})" for kind, count in kinds[:MAX_KINDS]]
    return ", ".join([*words, *(["..."] if len(kinds) > MAX_KINDS else [])])


def _description(node: RayNode) -> str:
    resources, labels = node["Resources"], sorted(node["Labels"].items())
    amounts = [f"{resources[kind]:g} {kind}" for kind in ("CPU", "GPU") if resources.get(kind)]
    given = [f"{key}={value}" for key, value in labels if not key.startswith(RAY_PREFIX)]
    return ", ".join([*(amounts or ["0 CPU"]), *given])


def capacity(each: float, nodes: Sequence[float]) -> float:
    """Return the number of actors that fit nodes with these amounts; none spans two nodes, nor two devices."""
    if each == 0:
        return inf
    if each < 1:
        # The millionth makes 1 / (1 / 3) at least 3 despite rounding.
        return sum(floor(there) for there in nodes) * floor(1 / each + 1e-6)
    return sum(floor(there / each) for there in nodes)
