"""The option `topology`: the graph over which clients send each other their models, and its mixing weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from algorithms.core.devices import Devices
from algorithms.core.errors import InputError, require
from algorithms.core.fleet import Fleet
from algorithms.core.keys import Purpose, generator
from algorithms.core.layout import BESIDE, Layout
from algorithms.core.state import State
from algorithms.parts.option import Conflict, Option, Parts, Setting

Ends = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Places of the clients that send, and of those that receive, [E] each."""

Edge = tuple[int, int, float | None]
"""Client from, client to, and the share of the model that goes that way; None without shares."""

Order = Literal["adapt-then-combine", "combine-then-adapt"]

GRAPHS = (
    *("ring", "torus", "complete", "exponential", "one-peer-exponential", "random-regular"),
    *("erdos-renyi", "file"),
)
"""Graphs by name; each client of all but the last two has equally many neighbours."""

DRAWN = {"random-regular": "degree", "erdos-renyi": "probability"}
"""Graphs that are drawn, and the key of each."""

WIDEST = 1000
"""Clients up to which the spectral gap is computed, of a dense matrix."""

SWAPS = 10
"""Swaps by which a random regular graph is made of another one, for each edge."""


@dataclass(frozen=True)
class Gossip:
    """Settings of a round in which clients send their models to each other; see `algorithms.dpsgd`.

    Args:
        push_sum: whether a client sends a share of its weight with the share of its model; see `algorithms.sgp`.
        order: whether clients send the models that they trained, or those that they began with.
    """

    push_sum: bool = False
    order: Order = "adapt-then-combine"


@dataclass(frozen=True)
class Mixing:
    """Matrix P, by which client i becomes sum_j P[i, j] m_j; each column sums to 1.

    Args:
        senders: place j of each arc's sender, int64 [E], ascending for each receiver.
        receivers: place i of each arc's receiver, int64 [E], ascending.
        shares: P[i, j] of each arc, float64 [E].
        own: P[i, i] of each client, float64 [n].
    """

    senders: NDArray[np.int64]
    receivers: NDArray[np.int64]
    shares: NDArray[np.float64]
    own: NDArray[np.float64]

    def among(self, present: NDArray[np.bool_]) -> Mixing:
        """Return the mixing if only some clients are present, [n]: a share that reaches nobody stays at its sender."""
        both = present[self.senders] & present[self.receivers]
        kept = np.bincount(self.senders[~both], self.shares[~both], len(self.own))
        own = np.where(present, self.own + kept, 1.0)
        return Mixing(self.senders[both], self.receivers[both], self.shares[both], own)

    def applied(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return P v for one number of each client, [n]."""
        received = np.bincount(self.receivers, self.shares * values[self.senders], len(self.own))
        return self.own * values + received

    def received_by(self, place: int) -> list[tuple[int, float]]:
        """Return what a client mixes: the place of each sender, its own among them, and the share, by place."""
        arcs = slice(*np.searchsorted(self.receivers, [place, place + 1]))
        sent = zip(self.senders[arcs].tolist(), self.shares[arcs].tolist(), strict=True)
        return sorted([*sent, (place, float(self.own[place]))])

    @property
    def spectral_gap(self) -> float:
        """1 - |lambda_2|; in symmetric mixing |lambda_2| is the factor by which disagreement shrinks, or less."""
        matrix = np.diag(self.own)
        matrix[self.receivers, self.senders] = self.shares
        symmetric = np.array_equal(matrix, matrix.T)
        values = np.linalg.eigvalsh(matrix) if symmetric else np.linalg.eigvals(matrix)
        return 1 - float(np.sort(np.abs(values))[-2])


@dataclass(frozen=True)
class Topology(Option):
    """Graph over which clients send each other their models, and the weights of their mixing.

        metropolis-hastings: P[i, j] = 1 / (1 + max(d_i, d_j)),   uniform: P[i, j] = 1 / (1 + d_j),
        P[j, j] = 1 - sum_i P[i, j],   d_j: number of clients to which j sends

    Args:
        graph: "ring", "torus", "complete", "exponential" (neighbours at the distances 1, 2, 4, ...),
            "one-peer-exponential" (at one of these distances, another each round; directed), "random-regular" (`degree`
            neighbours each), "erdos-renyi" (each pair with `probability`), or "file" with its `edges`.
        directed: whether each edge goes one way, such as to the next client of a ring.
        probability: probability of an edge of "erdos-renyi", in (0, 1].
        degree: number of clients to which each one sends in "random-regular", >= 1.
        redraw: whether a drawn graph is "static", or drawn anew in each "round".
        mixing: rule of the weights; None for those of the edges, else for "metropolis-hastings", or for "uniform" if
            the graph is directed.
        edges: client from, client to, and the share P[to, from], or None if no edge has one.

    Raises:
        InputError: a value is wrong, or means nothing to the graph.

    Paper: exponential graphs: Assran et al., 2019, appendix A; Metropolis-Hastings: Xiao and Boyd, 2004.
    """

    graph: str = "ring"
    directed: bool = False
    probability: float | None = None
    degree: int | None = None
    redraw: Literal["static", "round"] = "static"
    mixing: Literal["metropolis-hastings", "uniform"] | None = None
    edges: tuple[Edge, ...] = field(default=(), repr=False)

    name: ClassVar[str] = "topology"
    in_own_rounds: ClassVar[bool] = True
    setting: ClassVar[str] = "[topology]"
    columns: ClassVar[tuple[str, ...]] = ("consensus",)
    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            *("topology", "models for a server"),
            "be left out, because its clients send each other nothing",
            "move it to [algorithm.topology] of dpsgd or sgp",
        ),
        Conflict(
            *("directed graph", "D-PSGD"),
            "have no direction, because D-PSGD's weights must be doubly stochastic",
            "use sgp, or another graph",
        ),
        Conflict(
            *("unequal shares", "D-PSGD"),
            "be left out if degrees differ, because D-PSGD's weights must be doubly stochastic",
            "remove topology.mixing, or use sgp",
        ),
    )

    def __post_init__(self) -> None:
        known = self.graph in GRAPHS
        require(known, "topology.graph", self.graph, f"one of {', '.join(GRAPHS)}", 'set topology.graph = "ring"')
        for graph, key in DRAWN.items():
            given = (getattr(self, key) is not None) == (self.graph == graph)
            where = f'given with topology.graph = "{graph}" alone'
            require(given, f"topology.{key}", getattr(self, key), where, "add it, or remove it")
        share = self.probability is None or 0 < self.probability <= 1
        require(share, "topology.probability", self.probability, "in (0, 1]", "set topology.probability = 0.2")
        require(self.degree is None or self.degree > 0, "topology.degree", self.degree, ">= 1", "set it to 4")
        drawn = self.redraw == "static" or self.graph in DRAWN
        require(drawn, "topology.redraw", self.redraw, f'"static" without one of {", ".join(DRAWN)}', "remove it")
        listed = not self.edges or self.graph == "file"
        require(listed, "topology.graph", self.graph, '"file" with edges of its own', 'set topology.graph = "file"')
        weighted = {weight is not None for *_, weight in self.edges}
        require(len(weighted) < 2, "topology.edges", "weights of some", "weights of all edges or of none", "add them")
        for number, must in wrong_edges(self.edges, self.is_directed):
            raise InputError(f"topology.edges[{number}] = {self.edges[number]}: {must}; correct the edge")
        fits = self.mixing is None or not (True in weighted or (self.is_directed and self.mixing != "uniform"))
        require(fits, "topology.mixing", self.mixing, '"uniform" if directed, none if edges have weights', "remove it")

    @property
    def is_directed(self) -> bool:
        """Whether edges go one way."""
        return self.directed or self.graph == "one-peer-exponential"

    @property
    def is_fixed(self) -> bool:
        """Whether all rounds have one graph."""
        return self.redraw == "static" and self.graph != "one-peer-exponential"

    @property
    def settings(self) -> Mapping[str, str | Setting]:
        unequal = self.mixing == "uniform" and self.graph in GRAPHS[-2:]
        return {
            **super().settings,
            "directed graph": f'topology.graph = "{self.graph}", directed,' if self.is_directed else "",
            "unequal shares": 'topology.mixing = "uniform"' if unequal else "",
            "models for a server": _with_server,
            "D-PSGD": _without_push_sum,
        }

    def matrix(self, clients: NDArray[np.int64], seed: int, round_number: int) -> Mixing:
        """Return the mixing of a round.

        Args:
            clients: ids of all training clients, ascending, int64 [n].
            seed: seed of the run.
            round_number: round, starting at 1.

        Raises:
            InputError: these clients cannot have such a graph, or the only graph of all rounds is not connected.
        """
        return _matrix(self, clients.tobytes(), seed, 0 if self.is_fixed else round_number)

    def describe(self, clients: NDArray[np.int64], seed: int) -> str:
        mixing, n = self.matrix(clients, seed, 1), len(clients)
        sent = np.bincount(mixing.senders, minlength=n)
        kind = f"{'directed ' if self.is_directed else ''}graph {self.graph} of {n} clients"
        gap = f"spectral gap {mixing.spectral_gap:.4g}" if 1 < n <= WIDEST else "spectral gap not computed"
        once = gap if self.is_fixed else "another graph each round"
        others = " to ".join(map(str, sorted({int(sent.min()), int(sent.max())})))
        return f"{kind}: each sends to {others} others; {once}"

    def tables(self, state: State, fleet: Fleet) -> Mapping[str, Mapping[str, NDArray[Any]]]:
        clients, sent = fleet.census.clients, state.of(self.name)
        senders, receivers = np.divmod(sent.get("arcs", clients[:0]), len(clients))
        messages = sent.get("messages", clients[:0])
        nbytes = messages * message_bytes(fleet.layouts.personal)
        return {"edges": {"from": clients[senders], "to": clients[receivers], "messages": messages, "bytes": nbytes}}


def wrong_edges(edges: Sequence[Edge], directed: bool) -> Iterator[tuple[int, str]]:
    """Yield the number of each edge that makes no sense, and what it must do instead."""
    earlier: set[tuple[int, int]] = set()
    for number, (start, end, weight) in enumerate(edges):
        ends = (start, end) if directed else (min(start, end), max(start, end))
        if start == end or min(ends) < 0:
            yield number, "must name two different clients"
        if ends in earlier:
            yield number, "must stand once"
        if weight is not None and not 0 < weight <= 1:
            yield number, "must have a weight in (0, 1]"
        earlier.add(ends)


def message_bytes(layout: Layout) -> int:
    """Return the bytes of a model among a client's personal entries, as it is sent to a neighbour."""
    return layout.only(lambda entry: entry.kind not in BESIDE).nbytes


def _with_server(parts: Parts, _: Devices | None) -> str:
    return "" if isinstance(parts.own_round, Gossip) else "an algorithm that sends models to a server"


def _without_push_sum(parts: Parts, _: Devices | None) -> str:
    return "dpsgd" if isinstance(parts.own_round, Gossip) and not parts.own_round.push_sum else ""


@lru_cache(4)
def _matrix(topology: Topology, ids: bytes, seed: int, counter: int) -> Mixing:
    """Return the mixing of a round, of which all clients' ids and the counter of its draws are the key."""
    clients = np.frombuffer(ids, np.int64)
    n, weights = len(clients), np.array([weight for *_, weight in topology.edges], np.float64)
    require(n > 1, "topology with training clients", n, ">= 2", "raise partition.clients")
    ends = _of_edges(topology, clients) if topology.graph == "file" else _ends(topology, n, seed, counter)
    senders, receivers = ends if topology.is_directed else (np.r_[ends], np.r_[ends[::-1]])
    arcs, first = np.unique(receivers * n + senders, return_index=True)
    receivers, senders = np.divmod(arcs, n)
    sent = np.bincount(senders, minlength=n)
    uniform = topology.mixing == "uniform" or (topology.mixing is None and topology.is_directed)
    shares = 1 / (1 + (sent[senders] if uniform else np.maximum(sent[senders], sent[receivers])))
    if len(weights) and not np.isnan(weights).any():
        shares = weights[first % len(weights)]
    own: NDArray[np.float64] = np.ones(n) - np.bincount(senders, shares, n)
    mixing = Mixing(senders, receivers, shares, own)
    if topology.is_fixed:
        _check(topology, mixing, clients)
    return mixing


def _check(topology: Topology, mixing: Mixing, clients: NDArray[np.int64]) -> None:
    """Raise InputError if a graph is not connected, or a client sends more than its whole model."""
    from scipy.sparse import coo_array  # late, for the time of a start
    from scipy.sparse.csgraph import connected_components

    n, name = len(clients), f'topology.graph = "{topology.graph}"'
    if (mixing.own < -1e-9).any():
        client, sum_ = clients[np.argmin(mixing.own)], 1 - mixing.own.min()
        raise InputError(f"{name}: the weights from client {client} sum to {sum_:g}: must be at most 1; lower them")
    graph = coo_array((np.ones(len(mixing.shares)), (mixing.senders, mixing.receivers)), (n, n))
    parts, _ = connected_components(graph, directed=True, connection="strong")
    if parts > 1:
        drawn = f'raise topology.{DRAWN.get(topology.graph, "")}, or set topology.redraw = "round"'
        raise InputError(
            f"{name}: must be connected, and {n} clients have {parts} parts between which no model travels both ways; "
            f"{drawn if topology.graph in DRAWN else 'add edges'}"
        )


def _of_edges(topology: Topology, clients: NDArray[np.int64]) -> Ends:
    edges = np.array([(start, end) for start, end, _ in topology.edges], np.int64).reshape(-1, 2)
    unknown = edges[~np.isin(edges, clients)]
    if len(unknown):
        raise InputError(
            f'topology.graph = "file" with an edge of client {unknown[0]}: must join training clients, which are '
            f"{clients[0]} to {clients[-1]}; remove the edge"
        )
    senders, receivers = np.searchsorted(clients, edges).T
    return senders, receivers


def _ends(topology: Topology, n: int, seed: int, counter: int) -> Ends:
    """Return the ends of a named graph's edges: one arc of each, and perhaps both."""
    draws, places, powers = generator(seed, Purpose.GRAPH, counter), np.arange(n), 2 ** np.arange((n - 1).bit_length())
    one = powers[[(counter - 1) % len(powers)]]
    hops = {"ring": [1], "complete": places[1:], "exponential": powers, "one-peer-exponential": one}
    if topology.graph == "torus":
        rows = max(row for row in range(1, int(n**0.5) + 1) if n % row == 0)
        allowed = f"used with a product of two numbers >= 2 of clients, not with {n}"
        require(rows > 1, "topology.graph", "torus", allowed, 'set topology.graph = "ring"')
        row, column = np.divmod(places, n // rows)
        beside = row * (n // rows) + (column + 1) % (n // rows)
        return np.r_[places, places], np.r_[beside, (places + n // rows) % n]
    if topology.graph == "erdos-renyi":
        # The k-th pair is k mod n and the (k // n + 1)-th client after it; the first half has each pair once.
        pairs = n * (n - 1) // (1 if topology.directed else 2)
        found = draws.choice(pairs, draws.binomial(pairs, topology.probability or 0.0), replace=False, shuffle=False)
        return found % n, (found + found // n + 1) % n
    if topology.graph == "random-regular":
        return _regular(n, topology.degree or 0, topology.directed, draws)
    steps = np.array(hops[topology.graph])[:, None]
    return np.tile(places, len(steps)), ((places + steps) % n).ravel()


def _regular(n: int, degree: int, directed: bool, draws: np.random.Generator) -> Ends:
    """Return a random regular graph: pairs of edges of a circulant graph swap their ends."""
    fits = degree < n and (directed or n * degree % 2 == 0)
    require(fits, "topology.degree", degree, f"below {n}, and even if the number of clients is odd", "change it")
    if directed:
        ahead = np.concatenate([draws.choice(n - 1, degree, replace=False) for _ in range(n)])
        senders = np.repeat(np.arange(n), degree)
        return senders, (senders + 1 + ahead) % n
    hops = [*range(1, degree // 2 + 1), *([n // 2] if degree % 2 else [])]
    edges = sorted({(min(c, (c + hop) % n), max(c, (c + hop) % n)) for hop in hops for c in range(n)})
    there = set(edges)
    for one, other, turned in draws.integers([len(edges), len(edges), 2], size=(SWAPS * len(edges), 3)).tolist():
        (a, b), (c, d) = edges[one], edges[other][:: -1 if turned else 1]
        swapped = (min(a, d), max(a, d)), (min(c, b), max(c, b))
        if len({a, b, c, d}) == 4 and not there.intersection(swapped):
            there.difference_update((edges[one], edges[other]))
            there.update(swapped)
            edges[one], edges[other] = swapped
    senders, receivers = np.array(edges, np.int64).T
    return senders, receivers
