"""Client actors that die, or hang, at any point: the bytes are those of a run to which nothing happened."""

import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from algorithms import Block, Local, Participation, PowerOfChoice, fedavg, fedbn, radfed
from partitioning import Population
from raysim.common.errors import RetriesSpentError
from raysim.fleet.calls import ActorTimeouts
from raysim.fleet.client_actors import ClientActors
from raysim.fleet.inline import InlineWorkplace
from raysim.fleet.machine import settled
from raysim.fleet.worker_plan import WorkerPlan
from tests.kit.ray import SharedRay
from tests.kit.struck import Faulty, Poison, awake, plan_of, population_at, trained

HALF, LOCAL = Participation(cohort=4), Local(lr=0.1, batch_size=32)
ALGORITHMS = {
    "fedavg": fedavg(HALF, LOCAL),
    "radfed": radfed(HALF, LOCAL, aggregate_every=3),
    "fedbn": fedbn(HALF, LOCAL),
    "choice": fedbn(Participation(cohort=4, by=PowerOfChoice(6)), LOCAL),
}
TIMEOUTS = ActorTimeouts(factor=2, floor=4, unseen=60, retries=1, starts=2, place=1, look=0.2)


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> Population:
    return population_at(tmp_path_factory.mktemp("dying") / "population")


@pytest.fixture(scope="module")
def actors(
    shared_ray: SharedRay, population: Population, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClientActors]:
    shared_ray.start()
    with ClientActors(2, timeouts=TIMEOUTS) as running:
        awake(running, plan_for("fedavg", population, tmp_path_factory.mktemp("awake")))
        yield running


@pytest.fixture(scope="module")
def undisturbed(population: Population, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[object, ...]]:
    """What each algorithm comes to in this process."""
    found = {}
    for name, algorithm in ALGORITHMS.items():
        plan = plan_of(population, algorithm, tmp_path_factory.mktemp(name) / "personal")
        with settled(1), InlineWorkplace() as place, closing(place.fleet(plan)) as fleet:
            found[name] = trained(fleet, plan, population)
    return found


@pytest.fixture
def struck(tmp_path: Path) -> Path:
    """Where whoever is struck leaves a file."""
    folder = tmp_path / "struck"
    folder.mkdir()
    return folder


def plan_for(name: str, population: Population, folder: Path) -> WorkerPlan:
    return plan_of(population, ALGORITHMS[name], folder / "personal")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param("fedbn", "ClientUpdates", id="when it has summed client updates and written personal state"),
        pytest.param("choice", "Scores", id="while it takes the candidates' losses", marks=pytest.mark.slow),
        pytest.param("fedavg", "Evaluate", id="in an evaluation", marks=pytest.mark.slow),
        pytest.param("radfed", "ClientUpdates", id="while models are redistributed", marks=pytest.mark.slow),
        pytest.param("radfed", "SumModels", id="while it sums travelling models"),
    ],
)
def test_an_actor_dies(
    actors: ClientActors,
    population: Population,
    undisturbed: dict[str, tuple[object, ...]],
    tmp_path: Path,
    struck: Path,
    name: str,
    kind: str,
) -> None:
    plan, told = plan_for(name, population, tmp_path), []
    with closing(actors.fleet(plan, tell=told.append)) as fleet:
        assert trained(Faulty(fleet, kind, struck), plan, population) == undisturbed[name]
    assert list(struck.iterdir())
    deaths = [text for text in told if "died" in text]
    assert len(deaths) == 1 and "another one takes its place" in deaths[0]


@pytest.mark.slow
def test_all_actors_die_at_once(
    actors: ClientActors,
    population: Population,
    undisturbed: dict[str, tuple[object, ...]],
    tmp_path: Path,
    struck: Path,
) -> None:
    plan, told = plan_for("fedbn", population, tmp_path), []
    with closing(actors.fleet(plan, tell=told.append)) as fleet:
        assert trained(Faulty(fleet, "ClientUpdates", struck, times=2), plan, population) == undisturbed["fedbn"]
    assert sorted(text[:20] for text in told) == ["client actor 0 died ", "client actor 1 died "]


def test_an_actor_that_hangs_is_ended(
    actors: ClientActors,
    population: Population,
    undisturbed: dict[str, tuple[object, ...]],
    tmp_path: Path,
    struck: Path,
) -> None:
    plan, told = plan_for("radfed", population, tmp_path), []
    with closing(actors.fleet(plan, tell=told.append)) as fleet:
        faulty = Faulty(fleet, "ClientUpdates", struck, signal.SIGSTOP)
        assert trained(faulty, plan, population) == undisturbed["radfed"]
    assert len(told) == 1 and re.search(r"died \(no answer within \d+ s\)", told[0])


# A dying process may lose the value of its previous call. Not every attempt shows this race.
@pytest.mark.parametrize("attempt", [1, *(pytest.param(number, marks=pytest.mark.slow) for number in range(2, 9))])
def test_a_client_that_is_poison_is_named(
    actors: ClientActors, population: Population, tmp_path: Path, attempt: int
) -> None:
    plan = plan_for("fedavg", population, tmp_path)
    blocks = [Block(number, (10 + number,), 1) for number in range(8)]
    with closing(actors.fleet(plan)) as fleet, pytest.raises(RetriesSpentError) as error:
        list(fleet.map(Poison(12), blocks))
    words = r"Poison: the actor with client 12 died 2 times, the last cause: .+; its last output: this client is poison"
    error.match(words)
    assert "\n" not in str(error.value)
