"""`[edges]`: edge servers between the clients and the cloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from algorithms.hierfavg import Edges, EdgesBy
from raysim.common.errors import InputError
from raysim.config.check import ConfigTable
from raysim.config.options import OptionTable


class EdgesTable(OptionTable):
    """`[edges]`: edge servers between the clients and the cloud, for `hierfavg` or any method of plain rounds."""

    complete: ClassVar[Sequence[Mapping[str, Any]]] = ({"number": 2},)

    number: int | None = Edges.number
    """Number of edges; by default 2, and one for each value with `by = "domain"` or `"site"`."""
    by: EdgesBy = Edges.by
    """Clients of an edge: `drawn`; equally many in order of their `size` or most frequent `label`; `spread`, dealt in
    turn in the order of that label; or those of one `domain` or `site`."""
    cloud_every: int = Edges.cloud_every
    """Rounds, each with an aggregation at the edges, from one aggregation of the cloud to the next."""
    down: float = Edges.down
    """Bytes per second from the cloud to an edge; 0 for no limit. Needs `[devices]`."""
    up: float = Edges.up
    """Bytes per second from an edge to the cloud; 0 for no limit. Needs `[devices]`."""
    latency: float = Edges.latency
    """Further seconds of each message between an edge and the cloud. Needs `[devices]`."""

    def option(self, algorithm: Any = None, labels: Any = None) -> Edges:
        return Edges(**self.beyond(ConfigTable))

    def check(self, experiment: Any) -> None:
        given = [name for name in ("down", "up", "latency") if getattr(self, name)]
        if given and experiment.devices is None:
            raise InputError(
                f"edges.{given[0]} without [devices]: must have devices, which set the virtual time; "
                "add the table [devices]"
            )
