"""`[topology]`: the graph over which clients send each other their models, and files of edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from algorithms.options.topology import GRAPHS, Edge, Topology, wrong_edges
from partitioning.common.paths import absolute
from raysim.common.errors import InputError, check_known
from raysim.config.options import OptionTable

FILE = "file:"
"""Beginning of the name of a graph that a file holds."""

COLUMNS = {"from": "int64", "to": "int64", "weight": "float64"}
"""Columns of a file of edges and their types in Arrow; it may lack the last one."""


class TopologyTable(OptionTable):
    """`[topology]`: the graph over which clients of `dpsgd` and `sgp` send each other their models."""

    complete: ClassVar[Sequence[Mapping[str, Any]]] = (
        {},
        {"graph": "erdos-renyi", "probability": 0.5},
        {"graph": "random-regular", "degree": 4},
    )

    graph: str = Topology.graph
    """Graph: `ring`, `torus`, `complete`, `exponential`, `one-peer-exponential`, `random-regular`, `erdos-renyi`, or
    `file:` and the path of a table with the columns `from`, `to` and perhaps `weight`."""
    directed: bool = Topology.directed
    """Whether each edge goes one way only, as `sgp` allows."""
    probability: float | None = Topology.probability
    """Probability of an edge of `erdos-renyi`, in (0, 1]."""
    degree: int | None = Topology.degree
    """Neighbours of each client in `random-regular`."""
    redraw: Literal["static", "round"] = Topology.redraw
    """Whether a drawn graph is the same in all rounds, or drawn anew in each."""
    mixing: Literal["metropolis-hastings", "uniform"] | None = Topology.mixing
    """Weights: by default those of the file, else `metropolis-hastings`, or `uniform` if the graph is directed."""
    sha256: str | None = None
    """SHA-256 of the file of edges, which raysim writes so that a resumed run has the same ones."""

    @classmethod
    def over(cls, where: str, common: Mapping[str, Any], special: Mapping[str, Any]) -> Self:
        keys, digest = {**common, **special}, None
        graph = str(keys.get("graph", ""))
        if graph in (FILE, FILE.removesuffix(":")):
            raise InputError(
                f'topology.graph = {graph!r}: must name a file of edges; write topology.graph = "{FILE}edges.csv"'
            )
        if graph.startswith(FILE):
            path = absolute("topology.graph", graph.removeprefix(FILE))
            keys["graph"] = f"{FILE}{path}"
        elif "graph" in keys:
            check_known(f"topology.graph = {graph!r}", graph, [*GRAPHS[:-1], f"{FILE}PATH"])
        table = super().over(where, {}, keys)
        if graph.startswith(FILE):
            from partitioning.store.files import sha256  # late: it imports pyarrow

            digest = sha256(path)
        if table.sha256 not in (None, digest):
            raise InputError(
                f"topology.sha256 = {table.sha256!r}: must be that of the file of edges, {digest}; restore the file, "
                "or remove the key in a new run"
            )
        return table.model_copy(update={"sha256": digest})

    @property
    def file(self) -> Path | None:
        """File of edges; None without one."""
        return Path(self.graph.removeprefix(FILE)) if self.graph.startswith(FILE) else None

    def option(self, algorithm: Any = None, labels: Any = None) -> Topology:
        keys = self.model_dump(exclude={"sha256"})
        if self.file is not None:
            keys |= {"graph": "file", "edges": edges_of(self.file, self.directed)}
        return Topology(**keys)


def edges_of(path: Path, directed: bool) -> tuple[Edge, ...]:
    """Read a file of edges; its other columns do not matter.

    Args:
        path: table of any kind that the partitioner reads.
        directed: whether an edge and the one back are two.

    Returns:
        The edges in the order of the file.

    Raises:
        InputError: the file is no such table, or an edge makes no sense.
    """
    import pyarrow as pa  # late: most experiments name no such file

    from partitioning.sources.opening import open_source
    from partitioning.sources.source import read_columns

    source, name = open_source(path), f'topology.graph = "{FILE}{path}"'
    names = [each for each in COLUMNS if each in source.schema.names]
    if names[:2] != ["from", "to"]:
        there = ", ".join(source.schema.names)
        raise InputError(f"{name}: must have the columns from, to and perhaps weight, and has {there}; rename them")
    try:
        table = read_columns(source, names).cast(pa.schema([(each, COLUMNS[each]) for each in names]))
    except pa.ArrowException as error:
        raise InputError(f"{name}: must have whole numbers and weights ({error}); correct the columns") from None
    start, end, *weights = (column.fill_null(-1).to_pylist() for column in table.columns)
    edges = tuple(zip(start, end, *weights or [[None] * len(start)], strict=True))
    for row, must in wrong_edges(edges, directed):
        raise InputError(f"{name}, row {row}, {table.slice(row, 1).to_pylist()[0]}: {must}; correct the row")
    return edges
