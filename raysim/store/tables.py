"""Columns of an algorithm's tables: their schemas, and the check of columns that a user's own parts add."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from algorithms import Algorithm, Census, Fleet, Option, Privacy, State, Topology
from algorithms.core.returned import Returned, encodes, is_own, name_of, names_of
from algorithms.parts.ordering import engine_kind
from algorithms.parts.rule_columns import RuleColumns
from partitioning.common.text import printable
from raysim.common.errors import InputError
from raysim.common.names import EDGES, LONGEST, NAME, RESULTS
from raysim.fleet.traffic import TRAFFIC
from raysim.store.participation import BYTES, OUTCOMES
from raysim.watching.stopwatch import ROUND_STAGES

UPDATES = pa.schema(
    [
        ("round", pa.int64()),
        ("client", pa.int64()),
        ("block", pa.int64()),
        ("samples", pa.int64()),
        ("steps", pa.int64()),
        ("loss", pa.float64()),
        ("staleness", pa.int64()),
        ("weight", pa.float64()),
        ("nonfinite", pa.string()),
        ("machine_block_seconds", pa.float64()),
        ("machine_actor", pa.int64()),
    ]
)
"""Columns of `updates.parquet`: one row per client update."""

REPORTED = pa.field("reported", pa.map_(pa.string(), pa.float64()))
"""Further column of `updates.parquet`: the numbers that a client update of the user's own returned."""

OUTCOME = pa.field("outcome", pa.string())
"""Further column of `updates.parquet` if devices decide who takes part: "counted", "late" or "vanished"."""

CLIENT_FACTS = ("client", "name", "domain", "site", "device", "split", "samples", "test_samples")
"""Columns about a client that a run does not change; a population without names, domains or sites lacks these."""

ACCOUNTS = (*OUTCOMES.values(), "samples_wasted", *BYTES, "machine_seconds")
"""Columns of a client's sums over a run."""

SCORES = ("test_", "train_")
"""Beginnings of the columns of a client's metrics."""

TAKEN = {*CLIENT_FACTS, *ACCOUNTS, "cluster", "algorithm"}
"""Columns of `clients.parquet`, and that of a frame's algorithm, beside the metrics."""


def metrics_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the columns of `metrics.parquet`: one row per round.

    An evaluation's column is null if the round was not evaluated or the metric is undefined. `seconds*` measure the
    machine. `simulated_seconds` is virtual time, and null without `[devices]`. `late`, `vanished` and `samples_wasted`
    count client updates that never counted, and are null unless the devices decide who takes part.

    Args:
        columns: names of the evaluation's columns.
    """
    whole = ["updates", "nonfinite", "bytes_up", "bytes_down", "exchanges"]
    measured = [f"machine_bytes_{name}" for name in TRAFFIC]
    return pa.schema(
        [
            ("round", pa.int64()),
            ("seconds", pa.float64()),
            *((f"seconds_{stage}", pa.float64()) for stage in ROUND_STAGES),
            ("aggregated", pa.bool_()),
            ("phase", pa.int64()),
            ("train_loss", pa.float64()),
            ("simulated_seconds", pa.float64()),
            ("late", pa.int64()),
            ("vanished", pa.int64()),
            ("samples_wasted", pa.float64()),
            *((name, pa.int64()) for name in (*whole, *measured)),
            *((name, pa.float64()) for name in columns),
        ]
    )


def check_columns(algorithm: Algorithm, measured: Iterable[str]) -> None:
    """Raise InputError if a column of a user's own option or server rule is another column of `metrics.parquet`."""
    options = {option.name: option for phase in algorithm.phases for option in phase.folded}.values()
    ours = [option for option in options if not is_own(option) and not isinstance(option, RuleColumns)]
    taken = {"algorithm", *metrics_schema(()).names, *measured, *Privacy.columns}
    taken |= {column for option in ours for column in option.columns}

    def check(what: str, name: str) -> None:
        if name in taken:
            raise InputError(
                f"{what}: its `columns` has {name!r}: must be a new name, because metrics.parquet has another column "
                "of it; rename it"
            )

    for option in filter(is_own, options):
        inherited: Any = engine_kind(option).columns
        if isinstance(inherited, property):  # they depend on the option's values
            inherited = inherited.__get__(option)
        for column in option.columns:
            if column not in inherited:
                check(f"option {option}", column)
            taken.add(column)
    for rule in (phase.server for phase in algorithm.phases):
        for column in names_of(rule, "columns"):
            check(f"server.rule = {name_of(rule)!r}", column)


def client_facts(options: Iterable[Option], census: Census, seed: int) -> pa.RecordBatch:
    """Return the ids of the training clients, `client`, and the columns about them of some options.

    Raises:
        InputError: a column has the name of another, or no value for each client.
    """
    taken = {*UPDATES.names, REPORTED.name, OUTCOME.name, *TAKEN}
    facts = {"client": pa.array(census.clients)}
    for option in options:
        own = Returned(f"option {option}: `client_columns`", option.client_columns)
        given = option.client_columns(census, seed)
        if not isinstance(given, Mapping):
            raise own.fault(f"return arrays by name, and returns a {type(given).__name__}")
        for name, values in given.items():
            if not encodes(name) or name in taken or name.startswith(SCORES):
                raise own.fault(f"return new names as texts, and {name!a} is another column or no text")
            facts[name] = _fact(own, name, values, len(census.clients))
            taken.add(name)
    return pa.RecordBatch.from_pydict(facts)


def tables_of(options: Iterable[Option], state: State, fleet: Fleet) -> tuple[dict[str, pa.Table], list[str]]:
    """Return the tables of some options after a run, by the names of their files, and a text for each one left out.

    A user's own table that cannot be written beside the others is left out and not refused, because the run is done.
    """
    tables: dict[str, pa.Table] = {}
    left_out = list[str]()
    for option in options:
        given: Any = option.tables(state, fleet)
        if not is_own(option):
            tables |= {f"{name}.parquet": pa.table(dict(columns)) for name, columns in given.items()}
            continue
        if not isinstance(given, Mapping):
            left_out.append(
                f"option {option}: `tables` must return tables by name, and returns a {type(given).__name__}"
            )
            continue
        inherited = {EDGES} if isinstance(option, Topology) else set()
        for name, columns in given.items():
            try:
                tables[f"{name}.parquet"] = _own_table(name, columns, {*RESULTS, *tables} - inherited)
            except Exception as error:  # a user's own values may raise anything
                reason = printable(" ".join(str(error).split()))
                left_out.append(f"option {option}: table {name!a} of `tables` is left out: {reason}")
    return tables, left_out


def _own_table(name: Any, columns: Any, taken: Collection[str]) -> pa.Table:
    """Return a user's own table; raise an error if it cannot be written."""
    is_file = encodes(name) and NAME.fullmatch(name.replace(" ", "_")) and len(name.encode()) <= LONGEST
    if not is_file or f"{name}.parquet".casefold() in map(str.casefold, taken):
        raise ValueError("its name must be new, and of letters, digits, spaces and _")
    table = pa.table(dict(columns))
    pq.write_table(table, pa.BufferOutputStream())
    return table


def _fact(own: Returned, name: str, values: Any, count: int) -> pa.Array:
    try:
        found = pa.array(values)
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        found = None
    if found is None or len(found) != count:
        what = f"a {type(values).__name__}" if found is None else f"an array of {len(found)}"
        raise own.fault(f"return an array of {count} values that Arrow can hold, and {name!r} is {what}")
    return found
