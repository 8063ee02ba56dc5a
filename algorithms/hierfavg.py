"""HierFAVG: Liu, Zhang, Song and Letaief, "Client-Edge-Cloud Hierarchical Federated Learning", 2020."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from algorithms.core.clients import Census
from algorithms.core.devices import DrawnDevices
from algorithms.core.errors import InputError, require, require_one
from algorithms.core.fleet import Fleet
from algorithms.core.keys import Purpose, generator
from algorithms.core.state import State
from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.option import Conflict, Draft, Option
from algorithms.parts.received import Received
from algorithms.parts.schedule import Participation
from algorithms.parts.seconds import update_seconds
from algorithms.parts.server import Assign, Server
from algorithms.training.local import Local

if TYPE_CHECKING:
    from algorithms.rounds.round import PendingRound

EdgesBy = Literal["drawn", "size", "label", "spread", "domain", "site"]

COUNTED = ("drawn", "size", "label", "spread")
"""Ways to divide the clients that need a number of edges."""

COLUMNS = {"label": "label", "spread": "label", "domain": "domain", "site": "site"}
"""Column of the clients by which they are divided."""


def edge_round(state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool = False) -> PendingRound:
    """Start a round of edges below a cloud; arguments as in `start_round`."""
    from algorithms.rounds.edges import start_hierarchical

    edges, memory = algorithm.option(Edges) or Edges(), state.of(Edges.name)
    edge = memory["edge"] if memory else edges.assigned(fleet.census, state.seed)
    return start_hierarchical(state, algorithm, fleet, edge, last or (state.round + 1) % edges.cloud_every == 0)


@dataclass(frozen=True)
class Edges(Option):
    """Edge servers between the clients and the cloud: each averages its clients, and the cloud averages the edges.

        w_e <- sum_(k in e) p_k w_k / sum_(k in e) p_k                   after each round, for each edge e
        w   <- server(w, sum_e P_e w_e / sum_e P_e),  w_e <- w           after each `cloud_every`-th round

    P_e is the sum of the weights p_k since the last aggregation of the cloud. Between two of them the model is the mean
    of the edges' models. An edge without a client update keeps its model.

    With devices, an edge waits for its own clients, and the cloud for all edges. The memory holds the edge of each
    training client (`edge`, [K]), the `weights` P_e and the `rounds` since that aggregation, and until the next one the
    `model` of the cloud, the `models` of the edges and their virtual `seconds`, [edges].

    Args:
        number: number of edges, >= 1; None for 2, or one for each domain or site.
        by: clients of an edge. "drawn" draws them; "size" sorts them by their numbers of samples, "label" by their most
            frequent class, and each edge takes a run of equally many. "spread" sorts by class, too, and deals them in
            turn, so that edges have the same classes. "domain" and "site" are columns of the clients.
        cloud_every: rounds from one aggregation of the cloud to the next, kappa_2 >= 1.
        down: bytes a second from the cloud to an edge, >= 0; 0 for no limit.
        up: bytes a second from an edge to the cloud, >= 0; 0 for no limit.
        latency: further seconds of each message between an edge and the cloud, >= 0.

    Raises:
        InputError: a value is out of range, or `number` stands with a column.

    Paper: HierFAVG, Algorithm 1. kappa_1 is the number of steps of a client update, `local.steps`.

    Deviations: the paper weights by the samples of all clients, which all take part; P_e is in proportion then. A
    sampled cohort may leave an edge out. A server rule that uses the total weight gets that of one round. Edges send
    whole models, without the uplink's stages.
    """

    number: int | None = None
    by: EdgesBy = "drawn"
    cloud_every: int = 1
    down: float = 0.0
    up: float = 0.0
    latency: float = 0.0

    name: ClassVar[str] = "edges"
    setting: ClassVar[str] = "[edges]"
    in_own_rounds: ClassVar[bool] = True
    own_round: ClassVar[Any] = staticmethod(edge_round)
    columns: ClassVar[tuple[str, ...]] = ("cloud_bytes_up", "cloud_bytes_down")
    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            *("edges", "another round function"),
            "be left out, because such rounds have no edges",
            "remove [edges], or use a method of plain rounds",
        ),
        Conflict(
            *("edges", "aggregate_every > 1"),
            "not be used together, because a model that travels belongs to no edge",
            "use aggregate_every = 1",
        ),
        Conflict(
            *("edges", "server rule that reads reports"),
            "be left out, because the cloud receives the edges' means and no reports of clients",
            "remove [edges], or use a rule without `updates`",
        ),
    )

    def __post_init__(self) -> None:
        require_one("edges.by", self.by, get_args(EdgesBy), 'set edges.by = "drawn"')
        for name, value in (("edges.number", self.number), ("edges.cloud_every", self.cloud_every)):
            whole = value is None or (isinstance(value, int) and value >= 1)
            require(whole, name, value, "a whole number >= 1", f"set {name} = 2")
        free = self.number is None or self.by in COUNTED
        require(free, "edges.number", self.number, f'left out with edges.by = "{self.by}"', "remove it")
        for name in ("down", "up", "latency"):
            value = getattr(self, name)
            require(0 <= value < inf, f"edges.{name}", value, "a finite number >= 0", f"set edges.{name} = 0")

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(name for name in ("domain", "label") if name == COLUMNS.get(self.by))

    def client_columns(self, census: Census, seed: int) -> Mapping[str, NDArray[np.int64]]:
        return {"edge": self.assigned(census, seed)}

    def assigned(self, census: Census, seed: int) -> NDArray[np.int64]:
        """Return the edge of each training client, int64 [K].

        Raises:
            InputError: there are fewer clients than edges, or the population has no such column.
        """
        facts, clients = dict(census.facts), len(census.clients)
        if census.sites is not None:
            facts["site"] = census.sites
        column = COLUMNS.get(self.by, "")
        if column and column not in facts:
            raise InputError(
                f'edges.by = {self.by!r}: must be "drawn" or "size" for clients without a {column}; '
                'set edges.by = "drawn"'
            )
        if self.by not in COUNTED:
            return np.unique(facts[column], return_inverse=True)[1].astype(np.int64)
        number = 2 if self.number is None else self.number
        fits = number <= clients
        require(fits, "edges.number", number, f"at most {clients}, the training clients", "set a smaller number")
        if self.by == "drawn":
            order = generator(seed, Purpose.EDGES).permutation(clients)
        else:
            order = np.argsort(census.samples if self.by == "size" else facts[column], kind="stable")
        edge, places = np.empty(clients, np.int64), np.arange(clients)
        edge[order] = places % number if self.by == "spread" else places * number // clients
        return edge

    def publish(self, draft: Draft, received: Received, state: State) -> State:
        """Report the bytes between edges and cloud, and the round's virtual seconds."""
        before, after = draft.state.of(self.name), state.of(self.name)
        begins, ends = "models" not in before, "models" not in after
        size, edges = draft.algorithm.model_bytes(draft.fleet.layouts), len(after["weights"])
        down = size * edges if begins else 0
        up = size * int(np.count_nonzero(after["weights"])) if ends else 0
        state = state.measuring({"cloud_bytes_up": up, "cloud_bytes_down": down})
        if draft.fleet.census.devices is None:
            return state
        link = DrawnDevices(down=self.down, up=self.up, latency=self.latency)
        started, slowest = np.zeros(edges) if begins else before["seconds"], np.zeros(edges)
        edge = after["edge"][np.searchsorted(draft.fleet.census.clients, received.rows.clients)]
        np.maximum.at(slowest, edge, update_seconds(draft, received))
        seconds = started + (link.wire(0, size, 0) if begins else 0.0) + slowest
        passed = seconds.max() - started.max() + (link.wire(0, 0, size) if ends else 0.0)
        state = state.measuring({"simulated_seconds": float(passed)})
        return state if ends else state.keeping(self.name, {**after, "seconds": seconds})


def hierfavg(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    """Run FedAvg with edge servers between the clients and the cloud (hierarchical federated averaging).

        w_e <- sum_(k in e) n_k w_k / sum_(k in e) n_k     after each round, kappa_1 local steps
        w   <- sum_e N_e w_e / sum_e N_e                   after kappa_2 rounds

    The table `[edges]` sets the edges and kappa_2; see `Edges`. It gives other methods of plain rounds edges as well.

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update; kappa_1 is its `steps`.
        server: step of the cloud from the mean of the edges to the next global model.

    Paper: Algorithm 1.

    Deviations: as `Edges`.
    """
    return fedavg(participation, local, server).having(Edges())
