"""`[topology]`: the graph over which clients send each other their models, and files of edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
from pyarrow.csv import read_csv

from algorithms.options.topology import GRAPHS, Topology
from partitioning.common.paths import absolute, open_regular, read_parquet
from partitioning.store.files import sha256
from raysim.common.errors import InputError, one_input_error
from raysim.config.check import known
from raysim.config.options import OptionTable

FILE = "file:"
"""Beginning of the name of a graph that a file holds."""

COLUMNS = pa.schema([("from", pa.int64()), ("to", pa.int64()), ("weight", pa.float64())])
"""Columns of a file of edges; it may lack the last one."""


class TopologyTable(OptionTable):
    """`[topology]`: the graph over which clients of `dpsgd` and `sgp` send each other their models."""

    complete: ClassVar[Sequence[Mapping[str, Any]]] = (
        {},
        {"graph": "erdos-renyi", "probability": 0.5},
        {"graph": "random-regular", "degree": 4},
    )

    graph: str = Topology.graph
    """Graph: `ring`, `torus`, `complete`, `exponential`, `one-peer-exponential`, `random-regular`, `erdos-renyi`, or
    `file:` and a path: a table in CSV or Parquet with the columns `from`, `to` and perhaps `weight`."""
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
        table = super().over(where, common, special)
        if table.graph.startswith(FILE):
            path = absolute("topology.graph", table.graph.removeprefix(FILE))
            edges_of(path, table.directed)
            digest = sha256(path)
            if table.sha256 not in (None, digest):
                raise InputError(
                    f"topology.sha256 = {table.sha256!r}: must be that of {path}, {digest}; restore the file, or "
                    "remove the key in a new run"
                )
            table = table.model_copy(update={"graph": f"{FILE}{path}", "sha256": digest})
        elif table.sha256 is not None:
            raise InputError(f"topology.sha256 = {table.sha256!r}: must stand with a file of edges; remove it")
        table.option()
        return table

    def option(self, algorithm: Any = None, labels: Any = None) -> Topology:
        keys = self.model_dump(exclude={"sha256"})
        if self.graph.startswith(FILE):
            edges = edges_of(Path(self.graph.removeprefix(FILE)), self.directed)
            keys |= {"graph": "file", "edges": edges}
        else:
            known("topology.graph", self.graph, dict.fromkeys((*GRAPHS[:-1], f"{FILE}PATH")))
        with one_input_error():
            return Topology(**keys)


def edges_of(path: Path, directed: bool) -> tuple[tuple[int, int, float | None], ...]:
    """Read a file of edges.

    Args:
        path: table in CSV or Parquet, by the ending of its name.
        directed: whether an edge and the one back are two.

    Returns:
        client from, client to, and the share of the model that goes that way, or None without weights.

    Raises:
        InputError: the file is no such table, or an edge makes no sense.
    """
    name = f'topology.graph = "{FILE}{path}"'
    try:
        with open_regular(path) as stream:
            table = read_parquet(path) if path.suffix == ".parquet" else read_csv(stream)
        missing = {"from", "to"} - set(table.column_names)
        if missing or set(table.column_names) - set(COLUMNS.names) or table.num_columns > len(COLUMNS):
            raise InputError(
                f"{name}: must have the columns from, to and perhaps weight, and has {', '.join(table.column_names)}; "
                "rename them"
            )
        columns = [table.column(each).cast(COLUMNS.field(each).type).to_pylist() for each in sorted(table.column_names)]
    except (OSError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{name}: must be a readable table of edges ({reason}); check the file") from None
    columns = columns if len(columns) > 2 else [*columns, [None] * table.num_rows]
    weighted, seen = "weight" in table.column_names, set[tuple[int, int]]()
    for row, (start, end, weight) in enumerate(zip(*columns, strict=True)):
        pair = (start, end) if directed or None in (start, end) else (min(start, end), max(start, end))
        fault = (
            "must name two different clients" if None in (start, end) or start == end else
            "must have a weight in (0, 1]" if weighted and not (weight is not None and 0 < weight <= 1) else
            "must stand once" if pair in seen else ""
        )  # fmt: skip
        if fault:
            raise InputError(f"{name}, row {row}, from {start} to {end}: {fault}; correct the row")
        seen.add(pair)
    if not seen:
        raise InputError(f"{name}: must have edges, and has no row; add some")
    return tuple(zip(*columns, strict=True))
