"""The fleet on Ray: who holds the weights, what is measured, and what is refused."""

import os
import subprocess
import sys
import threading
import time
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import ray
import torch
from ray.experimental import get_object_locations

import partitioning
import raysim
from algorithms import (
    Algorithm,
    Block,
    Compute,
    DivergedError,
    Function,
    Local,
    Output,
    Participation,
    PersonalStore,
    State,
    Worker,
    begin,
    dpsgd,
    fedasync,
    fedavg,
    next_round,
    radfed,
)
from algorithms.core.layout import Packed
from algorithms.parts.option import Draft
from raysim.common.errors import InputError
from raysim.config.tables import FleetTable
from raysim.data.sources import load
from raysim.fleet import ray_fleet, remote_files, worker_plan
from raysim.fleet.client_actors import ClientActors
from raysim.fleet.dispatch import ReadyActor
from raysim.fleet.model_plan import ModelPlan
from raysim.fleet.ray_fleet import RayFleet
from raysim.fleet.ray_runtime import ENDING
from raysim.fleet.traffic import INLINE_LIMIT, Traffic, array_bytes
from raysim.fleet.worker_plan import WorkerPlan
from tests.kit.ray import SharedRay, moved_since
from tests.kit.struck import ROW_BYTES

LOCAL = Local(lr=0.1, batch_size=32)
HALF = Participation(cohort=4)


@pytest.fixture
def actors(shared_ray: SharedRay) -> ClientActors:
    return shared_ray.place(2)


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = load("digits")
    path = tmp_path_factory.mktemp("fleet") / "population"
    partitioning.make(source.train, path, scheme="iid", clients=8)
    return path


def fleet_of(
    actors: ClientActors, population: Path, hidden: int, block: int = 1, algorithm: Algorithm | None = None
) -> RayFleet:
    model = ModelPlan("mlp", {"hidden": (hidden,)}, (1, 8, 8), 10, seed=1)
    algorithm = algorithm or fedavg(HALF, LOCAL)
    return actors.fleet(WorkerPlan(population, model, algorithm, population.parent / "personal", block).resolved())


class Searched:
    """Dispatcher with work that no actor may have, which counts how often its groups are searched."""

    count = 0

    @property
    def waits(self) -> bool:
        self.count += 1
        return True

    def next(self, number: int, held: int) -> None:
        """Return no task."""


def test_groups_are_searched_once_for_all_actors() -> None:
    fleet: Any = RayFleet.__new__(RayFleet)
    fleet._crew = SimpleNamespace(ready={number: ReadyActor(None, "host") for number in range(8)})
    fleet._maps = [SimpleNamespace(dispatcher=(searched := Searched()), deaths=())]
    fleet._hand_out()
    assert searched.count == 1


def test_of_several_updates_that_diverge_the_first_client_is_named(actors: ClientActors, population: Path) -> None:
    fleet = fleet_of(actors, population, 8)
    algorithm = fedavg(HALF, Local(lr=1.0, weight_decay=1e3))
    state = start(fleet, 8)
    first = Draft.of(state, algorithm, fleet).attended().drawn[0]
    with pytest.raises(DivergedError, match=f"^client {first} in round 1: entry .* is not finite"):
        next_round(state, algorithm, fleet)


def start(fleet: RayFleet, hidden: int) -> State:
    return begin(ModelPlan("mlp", {"hidden": (hidden,)}, (1, 8, 8), 10, seed=1).build(), fleet, 0)


def stored_sizes(references: list[Any]) -> list[int]:
    """Sizes of the objects that Ray holds in a node's store; it learns where they are a moment after they are made."""
    deadline = time.monotonic() + 60
    while True:
        stored = [place for place in get_object_locations(references).values() if place["node_ids"]]
        if len(stored) == len(references) or time.monotonic() > deadline:
            return [place["object_size"] for place in stored]
        time.sleep(0.05)


def test_redistributed_weights_never_reach_the_driver(actors: ClientActors, population: Path) -> None:
    fleet = fleet_of(actors, population, hidden=1000)
    algorithm = radfed(HALF, LOCAL, aggregate_every=3)
    model_bytes = 4 * fleet.layouts.shared.floats
    assert model_bytes > 2 * INLINE_LIMIT
    state = next_round(start(fleet, 1000), algorithm, fleet)
    before = deepcopy(fleet.traffic)
    state = next_round(state, algorithm, fleet)
    during = moved_since(before, fleet.traffic)
    # Of four models that went from actor to actor the driver saw nothing, the actors took each of them once.
    assert during.driver < 1000 and during.inlined == 0
    assert 4 * model_bytes <= during.moved < 4 * model_bytes + 1000
    # Ray itself says the same: each is an object of a node's store, not a value in the driver's memory.
    references = [traveller.reference.object() for traveller in state.travelling_models]
    sizes = stored_sizes(references)
    assert len(sizes) == 4 and min(sizes) >= model_bytes
    # The round that aggregates brings one partial sum a call, of which there are at most as many as blocks.
    before = deepcopy(fleet.traffic)
    next_round(state, algorithm, fleet)
    sums = moved_since(before, fleet.traffic).driver // (2 * model_bytes)
    assert 1 <= sums <= 4


def test_the_store_for_other_nodes_outlives_its_process_and_leaves_the_engines_class_as_it_is(
    actors: ClientActors, population: Path, tmp_path: Path
) -> None:
    actors.pool.handles()
    fleet = fleet_of(actors, population, 8, algorithm=dpsgd(Participation(), LOCAL))
    layout = fleet.layouts.personal
    signatures = [str(signature(each)) for each in (PersonalStore.put, PersonalStore.get)]
    _, server = remote_files.store_of(replace(fleet._plan, personal=tmp_path / "personal"))
    away = remote_files.RemotePersonalStore(PersonalStore(tmp_path / "away", layout), server)
    written = Packed(np.arange(layout.floats, dtype=layout.floating), np.arange(layout.integers))
    before = away.append(written)
    process = psutil.Process(int(before.file.partition("-")[0]))
    ray.kill(server, no_restart=False)
    process.wait(60)
    after = away.append(written)
    assert before.file != after.file
    for location in (before, after):
        assert away.read(location).floats.tolist() == written.floats.tolist()
        assert (tmp_path / "personal" / location.file).exists()
    # Ray alters the class of an actor, in this process too.
    assert [str(signature(each)) for each in (PersonalStore.put, PersonalStore.get)] == signatures


def test_gossip_brings_the_driver_sums_and_the_actors_each_message(actors: ClientActors, population: Path) -> None:
    algorithm = dpsgd(Participation(), LOCAL)
    fleet = fleet_of(actors, population, hidden=1000, block=2, algorithm=algorithm)
    model_bytes = 4 * fleet.layouts.personal.floats
    state = next_round(start(fleet, 1000), algorithm, fleet)
    before = deepcopy(fleet.traffic)
    next_round(state, algorithm, fleet)
    during = moved_since(before, fleet.traffic)
    # Eight clients on a ring in four blocks: each block takes its own two messages and the two beside them.
    messages = 4 * 4 * model_bytes
    # Each call also takes the initial model; in the round's two maps there are at most as many calls as blocks.
    starts = 2 * 4 * model_bytes
    assert messages <= during.moved <= messages + starts + 2000 and during.inlined == 0
    # At most a sum in float64 a block, beside the rows; and the initial model, which each of the two maps may put.
    assert during.driver <= 4 * 2 * model_bytes + 2 * model_bytes + 2000


def test_small_models_are_inlined_and_counted_apart(actors: ClientActors, population: Path) -> None:
    fleet = fleet_of(actors, population, hidden=16)
    algorithm = radfed(HALF, LOCAL, aggregate_every=5)
    next_round(start(fleet, 16), algorithm, fleet)
    assert fleet.traffic.inlined == 4 * 4 * fleet.layouts.shared.floats


def test_the_driver_holds_small_models_until_an_actor_is_ready_and_waits_before_large_ones(
    actors: ClientActors, population: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raysim.Actors(1) as starting, starting.place(FleetTable()) as place:
        held, model = travelled(place, population)
        assert any(held)
        for most, helps in ((2**28, True), (2**10, False)):
            monkeypatch.setattr(ray_fleet, "DRIVER_BYTES", most)
            assert (ray_fleet.DRIVER in actors_of_gossip(place, population)) is helps
    held, other = travelled(actors, population)
    assert not any(held)
    np.testing.assert_array_equal(model, other)


def travelled(place: ClientActors, population: Path) -> tuple[list[bool], np.ndarray]:
    """Return which models the driver holds after a round of redistribution, and the model after the aggregation."""
    algorithm = radfed(HALF, LOCAL, aggregate_every=3)
    with closing(fleet_of(place, population, hidden=16)) as fleet:
        state = next_round(start(fleet, 16), algorithm, fleet)
        held = [isinstance(each.reference.value, Packed) for each in state.travelling_models]
        for _ in range(2):
            state = next_round(state, algorithm, fleet)
        return held, state.model.floats


def actors_of_gossip(place: ClientActors, population: Path) -> set[float]:
    """Return the numbers of those that run a round of gossip, the driver's among them."""
    algorithm = dpsgd(Participation(), LOCAL)
    with closing(fleet_of(place, population, hidden=16, algorithm=algorithm)) as fleet:
        report = next_round(start(fleet, 16), algorithm, fleet).report
        assert report is not None
        return {facts["actor"] for facts in report.machine.values()}


def test_an_aggregating_round_brings_one_sum_a_block(actors: ClientActors, population: Path) -> None:
    driver = {}
    for block in (1, 2, 4):
        fleet = fleet_of(actors, population, hidden=500, block=block)
        state = start(fleet, 500)
        next_round(state, fedavg(HALF, LOCAL), fleet)
        driver[block] = fleet.traffic.driver - array_bytes(state.model)
    one = 8 * fleet.layouts.shared.floats
    assert [driver[block] // one for block in (1, 2, 4)] == [4, 2, 1]


def test_each_version_is_put_once_and_each_model_comes_back_once(actors: ClientActors, population: Path) -> None:
    fleet, algorithm = fleet_of(actors, population, hidden=100), fedasync(HALF, LOCAL, concurrency=3)
    state, before = start(fleet, 100), deepcopy(fleet.traffic)
    for _ in range(3):
        state = next_round(state, algorithm, fleet)
    computed = 3 * 4 + len(state.of("arrivals")["computed"])
    # Three client updates begin with the first version, and one with each version that follows.
    versions = computed - 2
    rows = ROW_BYTES * computed
    assert moved_since(before, fleet.traffic).driver == (computed + versions) * array_bytes(state.model) + rows


def test_a_round_of_nobody_leaves_the_model(actors: ClientActors, population: Path) -> None:
    fleet = fleet_of(actors, population, 8)
    state = start(fleet, 8)
    after = next_round(state, fedavg(Participation(cohort=4, active=1e-9), LOCAL), fleet)
    assert after.round == 1 and after.report is not None and not len(after.report.updates)
    assert after.model is state.model


def test_both_actors_work(actors: ClientActors, population: Path) -> None:
    """Not in each round: on a busy machine one, or the driver, may have done all blocks before the other looks up."""
    fleet = fleet_of(actors, population, hidden=16)
    state, seen, end = start(fleet, 16), set(), time.monotonic() + 60
    while not {0.0, 1.0} <= seen and time.monotonic() < end:
        state = next_round(state, fedavg(Participation(), LOCAL), fleet)
        assert state.report is not None
        seen |= {machine["actor"] for machine in state.report.machine.values()}
    assert {0.0, 1.0} <= seen <= {-1.0, 0.0, 1.0}


@dataclass(frozen=True)
class Threads(Function):
    """Tells with how many threads a block runs, and whether kernels are deterministic."""

    def objects(self, block: Block) -> int:
        return 0

    def join(self, left: Any, right: Any) -> Any:
        return left | right

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        return Output({(torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())})


def test_actors_compute_on_the_threads_that_the_configuration_says(actors: ClientActors, population: Path) -> None:
    fleet = fleet_of(actors, population, hidden=16)
    outcomes = list(fleet.map(Threads(), [Block(number, (), 1) for number in range(4)]))
    assert all(outcome.value == {(1, True)} for outcome in outcomes)


@pytest.mark.parametrize(
    ("gpus", "message"), [(1.5, "a whole number"), (1, "1 CPU and 1 GPU: must fit a"), (0.5, "0.5 GPU: must")]
)
def test_gpus_that_cannot_be_had_are_refused_at_once(actors: ClientActors, gpus: float, message: str) -> None:
    with pytest.raises(InputError, match=message), ClientActors(1, 1, gpus) as wanting:
        wanting.pool.handles()


def test_auto_without_a_gpu_is_refused_in_one_line(actors: ClientActors) -> None:
    message = r'fleet.gpus_per_actor = "auto": must be a number if Ray has no GPU; set fleet.gpus_per_actor = 0'
    with pytest.raises(InputError, match=message), ClientActors(None, gpus_per_actor="auto") as wanting:
        wanting.fit({}, 1)


def test_actors_share_a_fingerprint(actors: ClientActors) -> None:
    assert actors.fingerprint["gpu"] == "none"


def test_raysim_switches_the_uv_hook_off_by_itself() -> None:
    code = "import os; import raysim; assert os.environ['RAY_ENABLE_UV_RUN_RUNTIME_ENV'] == '0'"
    bare = {name: value for name, value in os.environ.items() if name != "RAY_ENABLE_UV_RUN_RUNTIME_ENV"}
    subprocess.run([sys.executable, "-c", code], check=True, env=bare)


def test_block_sizes_follow_the_cohort_alone(population: Path) -> None:
    plan = WorkerPlan(population, ModelPlan("logistic", {}, (1, 8, 8), 10, 0), fedavg(HALF, LOCAL), population.parent)
    assert [plan.block_size(m) for m in (1, 10, 11, 40, 100, 1000, 100_000)] == [1, 1, 2, 2, 4, 10, 100]
    fused = plan.resolved()
    assert [fused.block_size(m) for m in (1, 2, 3, 9, 10, 100, 1000, 100_000)] == [1, 1, 2, 5, 5, 5, 10, 100]
    assert replace(fused, block=7).block_size(3) == 7


def test_blocks_on_a_gpu_are_halves_of_the_cohort_that_fit(population: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sizes(model: ModelPlan, local: Local = LOCAL) -> list[int]:
        plan = WorkerPlan(population, model, fedavg(HALF, local), population.parent, device="cuda")
        return [plan.block_size(m) for m in (1, 2, 3, 9, 100, 1000)]

    logistic = ModelPlan("logistic", {}, (1, 8, 8), 10, 0)
    assert sizes(logistic) == [1, 1, 2, 5, 50, 64]
    # 41 million values, so 3 models fit 512 MiB.
    assert sizes(ModelPlan("mlp", {"hidden": [6400, 6400]}, (1, 8, 8), 10, 0)) == [1, 1, 2, 3, 3, 3]
    # Outputs of the layers are 64 and 10 values for each of 7 samples.
    monkeypatch.setattr(worker_plan, "GPU_OUTPUT_BYTES", 5 * 7 * 74 * 4)
    assert sizes(logistic, replace(LOCAL, batch_size=7)) == [1, 1, 2, 5, 5, 5]
    assert sizes(logistic, replace(LOCAL, batch_size="full"))[-1] == 1
    # One after the other, clients gain nothing from large blocks.
    assert sizes(logistic, replace(LOCAL, compute=Compute("sequential"))) == [1, 1, 1, 1, 4, 10]


def test_array_bytes_looks_inside() -> None:
    packed = Packed(np.zeros(3, np.float32), np.zeros(2, np.int64))
    assert array_bytes({"a": [packed, (1, "x")], "b": None}) == 28
    assert moved_since(Traffic(1, 1, 1), Traffic(5, 4, 3)) == Traffic(4, 3, 2)


def test_a_ray_starts_when_the_one_before_has_ended(shared_ray: SharedRay) -> None:
    shared_ray.start()
    ended = threading.Event()
    before = threading.Thread(target=ended.wait)
    before.start()
    ENDING.append(before)
    with ClientActors(1, gpus_per_actor=99, address="127.0.0.1:9") as actors:
        time.sleep(0.2)
        assert actors.pool.handles(wait=False) == []
        ended.set()
        with pytest.raises(InputError):
            actors.pool.handles()
    assert before not in ENDING
