"""Actors in another one's place: refused where they compute otherwise, and not tried for ever."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import ray

from algorithms import Block, Local, Participation, fedavg, radfed
from partitioning import Population
from partitioning.cli.exit_status import run_command
from raysim.cli.commands import cli
from raysim.fleet import ray_fleet
from raysim.fleet.calls import ActorTimeouts
from raysim.fleet.client_actor import ClientActor
from raysim.fleet.client_actors import ClientActors
from raysim.fleet.pool import ActorPool
from raysim.fleet.resources import ActorDemand, ActorResources
from raysim.fleet.worker_plan import WorkerPlan
from tests.kit.struck import Faulty, Poison, awake, plan_of, population_at, trained, trained_here

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_ray")]

LOCAL = Local(lr=0.1, batch_size=32)


class Other(ClientActor):
    """An actor that says that it computes with something else."""

    def fingerprint(self) -> dict[str, str]:
        return {**super().fingerprint(), "torch": "another"}


class Broken(ClientActor):
    """An actor that does not start."""

    def __init__(self, *given: Any) -> None:
        raise OSError("no such library")


class Hanging(ClientActor):
    """An actor that takes no end of time to be ready."""

    def prepare(self, *given: Any) -> tuple[dict[str, str] | None, str]:
        while True:
            pass


class ReplacedPool(ActorPool):
    """Actors of which the first ones are as they should be, and all others are not."""

    def __init__(self, actors: int, good: int, other: type[ClientActor], patience: ActorTimeouts) -> None:
        super().__init__(ActorDemand(actors, ActorResources()), None, patience)
        self._good, self._other = good, other

    def _actor(self, number: int, each: ActorResources) -> Any:
        self._good -= 1
        kind = ClientActor if self._good >= 0 else self._other
        return ray.remote(num_cpus=1, max_restarts=0)(kind).remote(number, 1, "cpu", 1.0)


class Replaced(ClientActors):
    """A place with such actors."""

    def __init__(self, actors: int, good: int, other: type[ClientActor], patience: ActorTimeouts) -> None:
        super().__init__(actors, pool=ReplacedPool(actors, good, other, patience))

    def __exit__(self, *_: object) -> None:
        self.pool.end()


@pytest.fixture(scope="module")
def running() -> Iterator[None]:
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> Population:
    return population_at(tmp_path_factory.mktemp("replaced") / "population")


@pytest.fixture
def plan(population: Population, tmp_path: Path) -> WorkerPlan:
    return plan_of(population, fedavg(Participation(cohort=4), LOCAL), tmp_path / "personal")


def test_one_that_computes_otherwise_is_refused(
    running: None, plan: WorkerPlan, population: Population, tmp_path: Path
) -> None:
    struck = tmp_path / "struck"
    struck.mkdir()
    with Replaced(1, 1, Other, ActorTimeouts()) as actors:
        awake(actors, plan)
        with closing(actors.fleet(plan)) as fleet, pytest.raises(RuntimeError, match="client actors differ"):
            trained(Faulty(fleet, "ClientUpdates", struck), plan, population)


def test_the_run_goes_on_without_one_that_does_not_start(running: None, plan: WorkerPlan) -> None:
    told: list[str] = []
    with Replaced(2, 1, Broken, ActorTimeouts(starts=2, look=0.2)) as actors:
        awake(actors, plan)
        with closing(actors.fleet(plan, tell=told.append)) as fleet:
            while not any("goes on without it" in text for text in told):
                (*outcomes,) = fleet.map(Poison(-1), [Block(number, (number,), 1) for number in range(4)])
                assert [client for outcome in outcomes for client in outcome.value] == [0, 1, 2, 3]
    assert "client actor 1 did not start 2 times (OSError: no such library)" in told[-1]


@pytest.mark.parametrize(
    ("kind", "patience", "message"),
    [
        (
            Broken,
            ActorTimeouts(starts=2),
            "one failed 2 times, the last cause: OSError: no such library: until an actor",
        ),
        (Hanging, ActorTimeouts(start=3, place=1), "1 client actors did not start within 3 s; the cluster offers"),
    ],
)
def test_the_driver_stands_in_for_actors_that_never_start(
    running: None,
    plan: WorkerPlan,
    population: Population,
    kind: type[ClientActor],
    patience: ActorTimeouts,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_fleet, "DRIVER_BYTES", 0)  # it waits for an actor until none starts
    radfed_plan = plan_of(population, radfed(Participation(cohort=4), LOCAL, aggregate_every=3), plan.personal)
    told: list[str] = []
    with Replaced(1, 0, kind, patience) as actors, closing(actors.fleet(radfed_plan, tell=told.append)) as fleet:
        found = trained(fleet, radfed_plan, population)
    assert found == trained_here(radfed_plan, population)
    assert message in told[-1]


def test_a_model_that_ends_its_process_ends_the_run_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "deadly.py").write_text(
        "import os, sys, torch\n"
        "DRIVER = os.getpid()\n"
        "class Net(torch.nn.Sequential):\n"
        "    def __init__(self, classes: int) -> None:\n"
        "        super().__init__(torch.nn.Flatten(), torch.nn.Linear(64, classes))\n"
        "    def forward(self, x):\n"
        "        if x.any() and os.getpid() != DRIVER:\n"
        "            sys.stderr.write('deadly samples\\n')\n"
        "            os.kill(os.getpid(), 11)\n"
        "        return super().forward(x)\n"
    )
    (tmp_path / "x.toml").write_text(
        'rounds = 3\n[data]\ndataset = "digits"\n[partition]\nclients = 2\n[model]\nname = "deadly:Net"\n'
        '[algorithm]\nname = "radfed"\naggregate_every = 3\n[local]\nexecution = "sequential"\n[fleet]\nactors = 1\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray_fleet, "DRIVER_BYTES", 0)
    with pytest.raises(SystemExit) as done:
        run_command(cli, "raysim", ["run", "x.toml", "--out", "run"])
    assert done.value.code == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("raysim: radfed: round 1: the actor with client ")
    assert "died 4 times, the last cause: " in last and "Segmentation fault" in last
    assert "Traceback" in (tmp_path / "run" / "run.log").read_text()
