"""A cluster of two nodes, one a site each, and a head without CPUs: what crosses between them, and what may not."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from ray.cluster_utils import Cluster
from ray.experimental import get_object_locations

import partitioning
import raysim
from algorithms import Algorithm, Edges, Local, Participation, begin, fedavg, fedbn, next_round, radfed
from partitioning import Population
from raysim.common.errors import InputError
from raysim.data.sources import load
from raysim.fleet.client_actors import ClientActors
from raysim.fleet.inline import InlineWorkplace
from raysim.fleet.machine import settled
from raysim.fleet.model_plan import ModelPlan
from raysim.fleet.traffic import INLINE_LIMIT, array_bytes
from raysim.fleet.worker_plan import WorkerPlan
from tests.kit.ray import moved_since, nodes
from tests.kit.runs import quick_run
from tests.kit.struck import ROW_BYTES, trained

pytestmark = pytest.mark.usefixtures("own_ray")

LOCAL = Local(lr=0.1, batch_size=32)
WAIT_SECONDS = 60
MODEL = ModelPlan("mlp", {"hidden": (400,)}, (1, 8, 8), 10, seed=1)
NORMED = ModelPlan("mlp", {"hidden": (400,), "norm": "batch"}, (1, 8, 8), 10, seed=1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    north, south = ({"num_cpus": cpus, "labels": {"site": site}} for cpus, site in ((2, "north"), (1, "south")))
    with nodes(north, south) as started:
        yield started


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> Population:
    """Ten hospitals in two cities, each of which has images of its own; two are held out."""
    table = load("digits").train
    hospital = np.arange(table.num_rows) % 10
    city = pa.array(np.where(hospital % 3, "north", "south"))
    table = table.append_column("hospital", pa.array(hospital)).append_column("city", city)
    path = tmp_path_factory.mktemp("nodes") / "population"
    return partitioning.make(table, path, scheme="natural", column="hospital", site="city", test_clients=2, seed=3)


def plan_of(population: Population, algorithm: Algorithm, personal: Path, model: ModelPlan = MODEL) -> WorkerPlan:
    return WorkerPlan(population.path, model, algorithm, personal, block=1).resolved()


EXPERIMENT: dict[str, Any] = {
    "rounds": 2,
    "model": {"name": "mlp", "hidden": [16]},
    "algorithm": {"name": "fedavg"},
    "local": {"lr": 0.1, "batch_size": 32},
}


def test_a_pinned_populations_clients_are_updated_on_their_sites_and_those_of_several_not_in_one_place(
    cluster: Cluster, population: Population, tmp_path: Path
) -> None:
    experiment = {**EXPERIMENT, "data": {"population": str(population.path)}, "fleet": {"block": 3}}
    inline = quick_run(experiment, tmp_path / "inline", inline=True).folder / "fedavg"
    experiment["fleet"] = {"block": 3, "pinned": True, "actors": 1}
    experiment["algorithm"] = [{"name": "fedavg"}, {"name": "centralized"}]
    with pytest.raises(InputError, match=r"fleet.pinned = true: must be false for UnionUpdate, which needs"):
        quick_run(experiment, tmp_path / "run", address=cluster.address)
    pinned = tmp_path / "run" / "fedavg"
    assert (inline / "model.safetensors").read_bytes() == (pinned / "model.safetensors").read_bytes()
    summaries = [json.loads((run / "summary.json").read_text()) for run in (inline, pinned)]
    assert summaries[0]["metrics"] == summaries[1]["metrics"]
    updates = pq.read_table(pinned / "updates.parquet").to_pydict()
    assert population.sites is not None
    # Actor 0 is in the north, actor 1 in the south; each has opened its own site's shards alone.
    sites = population.sites.to_pylist()
    assert [sites[client] for client in updates["client"]] == [("north", "south")[n] for n in updates["machine_actor"]]
    assert len(set(updates["machine_actor"])) == 2
    blocks: dict[int, set[str]] = {}
    for block, client in zip(updates["block"], updates["client"], strict=True):
        blocks.setdefault(block, set()).add(sites[client])
    assert all(len(names) == 1 for names in blocks.values())
    traffic = summaries[1]["machine_traffic"]
    crossed = sum(pq.read_table(pinned / "metrics.parquet")["machine_bytes_crossed"].to_pylist())
    assert len(traffic) == 3 and sum(node["bytes_in"] for node in traffic.values()) >= crossed > 0
    assert " bytes in, " in (tmp_path / "run" / "run.log").read_text()


@pytest.mark.parametrize(
    ("fleet", "message"),
    [
        ({"labels": {"zone": "moon"}}, r"a client actor takes 1 CPU and label zone=moon: must fit a node, and Ray has"),
        ({"gpus_per_actor": 1}, r"takes 1 CPU and 1 GPU: must fit a node, .*1 x \(2 CPU, site=north\)"),
        ({"actors": 4}, r"fleet.actors = 4 of 1 CPU each: must fit Ray's nodes, which hold 3 and are"),
        ({"labels": {"site": "south"}, "actors": 2}, r"which hold 1 and are .*; set fleet.actors = 1, or less"),
        ({"pinned": True, "actors": 2}, r"fleet.actors = 2 of .* label site=south each of site 'south': must fit"),
        ({"pinned": True, "labels": {"zone": "moon"}}, r"of site 'north' takes 1 CPU and label site=north and label z"),
    ],
)
def test_what_no_node_has_is_refused_in_a_line(
    cluster: Cluster, population: Population, tmp_path: Path, fleet: dict[str, Any], message: str
) -> None:
    experiment = {**EXPERIMENT, "data": {"population": str(population.path)}, "fleet": fleet}
    with pytest.raises(InputError, match=message) as error:
        raysim.run(experiment, tmp_path / "run", address=cluster.address)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


# From here on actors take all CPUs, to the end.


@pytest.fixture(scope="module")
def actors(cluster: Cluster) -> Iterator[ClientActors]:
    with ClientActors(None, address=cluster.address) as running:
        assert running.workers == 3
        yield running


ALGORITHMS = {
    "fedavg": fedavg(Participation(), LOCAL),
    "radfed": radfed(Participation(cohort=5), LOCAL, aggregate_every=3),
    "fedbn": fedbn(Participation(cohort=4), LOCAL),
    "edges": fedavg(Participation(), LOCAL).having(Edges(by="site", cloud_every=2)),
}


@pytest.mark.parametrize(
    ("name", "group"), [("fedavg", 1), ("fedavg", 2), ("radfed", 8), ("fedbn", "auto"), ("edges", 8)]
)
def test_groups_of_any_size_give_the_bytes_of_one_process(
    actors: ClientActors, population: Population, tmp_path: Path, name: str, group: Any
) -> None:
    plan = plan_of(population, ALGORITHMS[name], tmp_path / "inline", NORMED)
    with settled(1), InlineWorkplace() as place, closing(place.fleet(plan)) as fleet:
        here = trained(fleet, plan, population)
    plan = plan_of(population, ALGORITHMS[name], tmp_path / "actors", NORMED)
    with closing(ClientActors(None, group=group, pool=actors.pool).fleet(plan)) as fleet:
        assert trained(fleet, plan, population) == here


def test_a_round_sends_a_sum_a_group_and_a_model_a_node(
    actors: ClientActors, population: Population, tmp_path: Path
) -> None:
    plan = plan_of(population, ALGORITHMS["fedavg"], tmp_path)
    for group, sums in ((1, 8), (2, 4), (4, 2), (8, 1)):
        with closing(ClientActors(None, group=group, pool=actors.pool).fleet(plan)) as fleet:
            state = begin(plan.module(), fleet, 0)
            model, one = array_bytes(state.model), 8 * fleet.layouts.shared.floats
            assert model > INLINE_LIMIT
            state = next_round(state, plan.algorithm, fleet)
            before = deepcopy(fleet.traffic)
            state = next_round(state, plan.algorithm, fleet)
            during = moved_since(before, fleet.traffic)
        assert state.report is not None
        nodes, sent = len(during.into) - 1, sums * one + ROW_BYTES * len(state.report.updates)
        assert during.driver == model + sent
        assert during.into[actors.pool.home] == sent
        assert during.crossed == nodes * model + sent
        assert 1 <= nodes <= min(2, sums)


def test_an_edge_is_summed_on_one_node(actors: ClientActors, population: Population, tmp_path: Path) -> None:
    plan = plan_of(population, ALGORITHMS["edges"], tmp_path)
    with closing(ClientActors(None, group=8, pool=actors.pool).fleet(plan)) as fleet:
        state, edges = next_round(begin(plan.module(), fleet, 0), plan.algorithm, fleet), 2
        before = deepcopy(fleet.traffic)
        state = next_round(state, plan.algorithm, fleet)
        during, model = moved_since(before, fleet.traffic), array_bytes(state.model)
    assert state.report is not None
    sent = edges * 8 * fleet.layouts.shared.floats + ROW_BYTES * len(state.report.updates)
    assert during.into[actors.pool.home] == sent
    assert during.driver == edges * model + sent and during.crossed == edges * model + sent


def nodes_of(models: list[ray.ObjectRef], copies: int) -> list[set[str]]:
    """Return each model's nodes, when Ray knows of this number of copies.

    A node reports a copy to the driver on its own time, perhaps after the call that fetched it has ended.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        nodes = [set(place["node_ids"]) for place in get_object_locations(models).values()]
        if sum(map(len, nodes)) >= len(models) + copies or time.monotonic() > deadline:
            return nodes
        time.sleep(0.05)


def test_redistributed_models_go_from_node_to_node(
    actors: ClientActors, population: Population, tmp_path: Path
) -> None:
    plan = plan_of(population, radfed(Participation(), LOCAL, aggregate_every=20), tmp_path)
    with closing(ClientActors(None, group=2, pool=actors.pool).fleet(plan)) as fleet:
        state, size = begin(plan.module(), fleet, 0), 4 * fleet.layouts.shared.floats
        state = next_round(state, plan.algorithm, fleet)
        crossed = 0
        # In a round in which one node did all the work, nothing crosses.
        while not crossed and state.round < 15:
            before, travelling_models, traffic = state, state.travelling_models, deepcopy(fleet.traffic)
            state = next_round(state, plan.algorithm, fleet)
            during = moved_since(traffic, fleet.traffic)
            # Ray itself says where they are: never with the driver, which is on the head.
            nodes = nodes_of([each.reference.object() for each in travelling_models], during.crossed // size)
            assert all(nodes) and actors.pool.home not in set().union(*nodes)
            # Those that are on two nodes have crossed, and beside them only the rows on their way to the driver.
            twice, rows = sum(len(each) == 2 for each in nodes), 4 * ROW_BYTES * len(nodes)
            assert during.crossed // size == twice and during.crossed % size < rows
            assert max(during.into[actors.pool.home], during.out[actors.pool.home], during.inlined) < rows < size
            crossed += twice
            assert before.travelling_models is travelling_models
    assert crossed > 0
