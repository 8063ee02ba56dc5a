"""Each client's metrics and its part in a run, in the table `clients.parquet`; and both by kind of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from algorithms import Algorithm, Block, Fleet, Output, State
from algorithms.core.fleet import map_joined
from algorithms.rounds.clusters import UNCHOSEN
from partitioning import Population
from partitioning.measures.statistics import gini
from raysim.measures.evaluate import EvaluationTarget, Targets, blocks_on, evaluate, models_of_owners, put_models
from raysim.measures.metrics import Score, Values
from raysim.measures.scoring import Chosen, Evaluate
from raysim.store.tables import CLIENT_FACTS


@dataclass(frozen=True, eq=False)
class EachClient:
    """Clients of a population, to be scored one by one.

    Args:
        facts: columns about all clients in the order of their ids, among `CLIENT_FACTS`.
        tests: own test parts of training clients, and all samples of clients that never train.
        training: training parts of training clients.
    """

    facts: Mapping[str, Any]
    tests: tuple[EvaluationTarget, ...]
    training: EvaluationTarget

    @classmethod
    def of(cls, population: Population, excluded: Sequence[int] = ()) -> EachClient:
        """Return the clients of a population; `excluded` are training clients that are not scored."""
        honest = np.setdiff1d(population.train_clients, excluded)
        held_out = np.sort(np.concatenate([population.validation_clients, population.test_clients]))
        sizes, own = population.sizes, population.test_sizes
        given = {"name": population.names, "domain": population.domains, "site": population.sites}
        facts = {
            "client": np.arange(len(population)),
            **{name: column.cast(pa.string()) for name, column in given.items() if column is not None},
            "split": pa.array(population.splits.tolist()),
            "samples": sizes,
            "test_samples": np.where(population.splits == "train", own, sizes),
        }
        tests = (
            EvaluationTarget.of_clients("local", honest, own, "test", population),
            EvaluationTarget.of_clients("held_out", held_out, sizes, "all", population),
        )
        training = EvaluationTarget.of_clients("train", honest, sizes - own, "train", population)
        return cls(facts, tuple(target for target in tests if len(target.owners)), training)

    def table(
        self,
        state: State,
        algorithm: Algorithm,
        fleet: Fleet,
        targets: Targets,
        accounts: Mapping[str, NDArray[Any]],
        of_clients: pa.RecordBatch,
    ) -> pa.Table:
        """Score the clients; return a row for each.

        A client with personal state is scored with its own model, everybody else as in an evaluation. A training part
        is scored if its client took part in the run, so that a short run on many clients does not pass all of them; if
        no client did, as in centralised training, all are scored.

        Args:
            state: state of the written model.
            algorithm: parts of the algorithm.
            fleet: fleet that runs the blocks.
            targets: metrics of the run.
            accounts: sums of each training client, in the census's order; see `participation`.
            of_clients: further facts of the training clients, by `client`.
        """
        census, clients = fleet.census, len(self.facts["client"])
        columns = dict(self.facts)
        if census.devices is not None:
            kinds = pa.array(census.devices.kinds).take(pa.array(census.devices.kind(census.clients)))
            columns["device"] = _placed(census.clients, kinds, clients)
        columns = {name: columns[name] for name in CLIENT_FACTS if name in columns}
        for name, sums in accounts.items():
            if name != "samples":
                columns[name] = _placed(census.clients, pa.array(sums), clients).fill_null(0)
        part = census.clients[accounts["updates"] > 0]
        trained = self.training if not len(part) else self.training.only(np.isin(self.training.owners, part))
        for prefix, several in (("test", self.tests), ("train", (trained,))):
            scored = [each for each in several if len(each.owners)]
            models = [models_of_owners(each, state, algorithm, fleet, targets.shape) for each in scored]
            owners = np.concatenate([np.zeros(0, np.int64), *(each.owners for each in scored)])
            if len(state.models) > 1:
                found = columns.get("cluster", np.full(clients, UNCHOSEN))
                found[owners] = np.concatenate([np.zeros(0, np.int64), *models])
                columns["cluster"] = found
            if not scored:
                continue
            values = Values.joined(
                [_scores(each, own, state, algorithm, fleet, targets) for each, own in zip(scored, models, strict=True)]
            )
            for name, numbers, defined in zip(targets.names, values.numbers.T, values.defined.T, strict=True):
                columns[f"{prefix}_{name}"] = _placed(owners, pa.array(numbers, mask=~defined), clients)
        for name in of_clients.schema.names[1:]:
            columns[name] = _placed(np.asarray(of_clients.column("client")), of_clients.column(name), clients)
        return pa.table(columns)


def by_kind(
    state: State, algorithm: Algorithm, fleet: Fleet, targets: Targets, accounts: Mapping[str, NDArray[np.int64]]
) -> dict[str, dict[str, float]]:
    """Return participation and metrics of each kind of devices; nothing without devices.

    Args:
        state: state of the written model.
        algorithm: parts of the algorithm.
        fleet: fleet that runs the blocks.
        targets: data to evaluate on; if they have clients' own test parts, the metrics are those of `local`.
        accounts: sums of each training client, in the census's order; see `AlgorithmFolder.accounts`.

    Returns:
        By kind: `clients`, those that `never` took part, the sums of its accounts, `gini` of its clients' updates (0
        if all have equally many), and the metrics.
    """
    census = fleet.census
    if census.devices is None:
        return {}
    kinds = census.devices.kind(census.clients)
    found: dict[str, dict[str, float]] = {}
    for number in np.unique(kinds).tolist():
        own = {name: accounts[name][kinds == number] for name in accounts if name != "machine_seconds"}
        sums = {name: int(values.sum()) for name, values in own.items()}
        never = int((own["updates"] == 0).sum())
        numbers = {"clients": len(own["updates"]), "never": never, **sums, "gini": gini(own["updates"])}
        found[census.devices.kinds[number]] = numbers
    local = next((target for target in targets.targets if target.name == "local"), None)
    if local is None or len(found) < 2:
        return found
    parts = []
    owned = census.devices.kind(local.owners)
    for number in np.unique(owned).tolist():
        parts.append(replace(local.only(owned == number), name=f"{number}"))
    for column, value in evaluate(state, algorithm, fleet, replace(targets, targets=tuple(parts))).items():
        part, _, metric = column.partition("_")
        if part.isdecimal():
            found[census.devices.kinds[int(part)]][metric] = value
    return found


class ScoreEach(Evaluate):
    """Function of a fleet: score each client of a block; the value is `Values`, [clients, metrics]."""

    def objects(self, block: Block) -> int:
        return 0

    def join(self, left: Values, right: Values) -> Values:
        return Values.joined([left, right])

    def _output(self, score: Score, keys: list[NDArray[np.int64]], counts: NDArray[np.int64]) -> Output:
        owners = self.ranked(score, keys, counts)
        values = [metric.value(owners) for metric in self.metrics]
        return Output(
            Values(np.stack([each.numbers for each in values], -1), np.stack([each.defined for each in values], -1))
        )


def _scores(
    target: EvaluationTarget,
    each: list[Chosen] | None,
    state: State,
    algorithm: Algorithm,
    fleet: Fleet,
    targets: Targets,
) -> Values:
    """Return each owner's metrics under its model, [owners, metrics]."""
    own_statistics = target.part == "all" and algorithm.sharing.outsider == "own"
    function = ScoreEach(
        target.part, targets.metrics, algorithm.local.loss, None, own_statistics, state.round, target.name
    )
    blocks = blocks_on(target, [each], targets.shape)
    values: Values = map_joined(fleet, function, blocks, put_models(state, fleet))[0]
    return values


def _placed(clients: NDArray[np.int64], column: pa.Array, count: int) -> pa.Array:
    """Return a column of different clients, by their ids below `count`, as one of all; null for the others."""
    places = np.full(count, -1)
    places[clients] = np.arange(len(clients))
    return column.take(pa.array(places, mask=places < 0))
