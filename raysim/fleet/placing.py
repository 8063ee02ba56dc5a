"""Which nodes client actors fit: by their resources and labels; and what is said where none does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import ray

from raysim.common.errors import InputError
from raysim.fleet.fractions import capacity

SITE = "site"
"""The label that says of which site a node is: `ray start --labels site=NAME`."""

MOST_KINDS = 6
"""Kinds of nodes that a message describes."""

OWN = "ray.io/"
"""What labels begin with that Ray gives to every node."""

_WORD = r"[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?"
_KEY = re.compile(rf"({_WORD}/)?{_WORD}")


@dataclass(frozen=True)
class Host:
    """A living node of Ray's.

    Args:
        name: its id.
        resources: what it has in all, by their names.
        labels: likewise.
    """

    name: str
    resources: Mapping[str, float]
    labels: Mapping[str, str]

    def __str__(self) -> str:
        there = [f"{self.resources.get(kind, 0):g} {kind}" for kind in ("CPU", "GPU") if self.resources.get(kind)]
        own = [f"{key}={value}" for key, value in sorted(self.labels.items()) if not key.startswith(OWN)]
        return ", ".join([*(there or ["0 CPU"]), *own])


@dataclass(frozen=True)
class ActorResources:
    """What each client actor takes of a node.

    Args:
        cpus: as many threads, too.
        gpus: a fraction or a whole number.
        labels: that the node has.
    """

    cpus: int = 1
    gpus: float = 0
    labels: Mapping[str, str] = field(default_factory=dict)

    def at(self, site: str) -> ActorResources:
        """The same of a site's nodes alone."""
        return replace(self, labels={**self.labels, SITE: site})

    def held(self, host: Host) -> int:
        """How many a node holds, if nobody else uses it; Ray packs fractions, so one GPU is filled before the next."""
        if any(host.labels.get(key) != value for key, value in self.labels.items()):
            return 0
        wanted = (("CPU", float(self.cpus)), ("GPU", self.gpus))
        return int(min(capacity(each, [host.resources.get(kind, 0.0)]) for kind, each in wanted))

    def room(self, hosts: Sequence[Host]) -> int:
        """How many these nodes hold."""
        return sum(self.held(host) for host in hosts)

    def __str__(self) -> str:
        labels = [f"label {key}={value}" for key, value in sorted(self.labels.items())]
        gpus = [f"{self.gpus:g} GPU"] if self.gpus else []
        return " and ".join([f"{self.cpus:g} CPU", *gpus, *labels])


def check_labels(labels: Mapping[str, str]) -> None:
    """Refuse labels that no node can have; selectors such as "in(a, b)" are none."""
    for key, value in labels.items():
        if not _KEY.fullmatch(key) or not re.fullmatch(_WORD, value):
            raise InputError(
                f"fleet.labels = {{ {key} = {value!r} }}: must be a label as nodes are started with it, of letters, "
                "digits, dots, - and _; write it as in ray start --labels KEY=VALUE"
            )


def check_gpus(gpus: float) -> None:
    """Refuse what Ray has no GPUs by."""
    if gpus > 1 and gpus != int(gpus):
        raise InputError(
            f"fleet.gpus_per_actor = {gpus}: must be a fraction below 1 or a whole number; set it to {int(gpus)}"
        )


def living() -> list[Host]:
    """Ray's living nodes."""
    nodes = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    return [Host(node["NodeID"], node["Resources"], node["Labels"]) for node in nodes]


def titles() -> dict[str, str]:
    """What all nodes that there ever were are called in what a person reads: address and beginning of the id."""
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["NodeID"]: f"{node['NodeManagerAddress']}/{node['NodeID'][:8]}" for node in nodes}


def here() -> str:
    """The id of the node that this process is on."""
    node: str = ray.get_runtime_context().get_node_id()
    return node


def described(hosts: Sequence[Host]) -> str:
    """What nodes have, in a few words."""
    kinds = Counter(str(host) for host in hosts).most_common()
    words = [f"{count} x ({kind})" for kind, count in kinds[:MOST_KINDS]]
    return ", ".join([*words, *(["..."] if len(kinds) > MOST_KINDS else [])])


def places(each: ActorResources, hosts: Sequence[Host], wanted: int | None, where: str = "") -> int:
    """How many client actors there are to be: as many as are wanted, or as the nodes hold.

    Args:
        each: what an actor takes.
        hosts: the living nodes.
        wanted: how many; None for as many as they hold.
        where: of which site's it is.

    Raises:
        InputError: the nodes do not hold them; Ray would wait in silence.
    """
    held = each.room(hosts)
    if not held:
        raise InputError(
            f"a client actor{where} takes {each}: must fit a node, and Ray has {described(hosts)}; ask for less by "
            "fleet.cpus_per_actor, .gpus_per_actor, .labels or .pinned, or start such a node"
        )
    if wanted is not None and wanted > held:
        raise InputError(
            f"fleet.actors = {wanted} of {each} each{where}: must fit Ray's nodes, which hold {held}, being "
            f"{described(hosts)}; set fleet.actors = {held}, or less for each"
        )
    return wanted or held
