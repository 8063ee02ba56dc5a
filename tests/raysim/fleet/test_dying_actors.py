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
from raysim.fleet.machine import settled
from raysim.fleet.worker_plan import WorkerPlan
from tests.kit.ray import SharedRay
from tests.kit.struck import Faulty, Poison, awake, plan_of, population_at, trained, trained_here

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


def plan_for(name: str, population: Population, folder: Path) -> WorkerPlan:
    return plan_of(population, ALGORITHMS[name], folder / "personal")


REPLACED = "another one takes its place"


@pytest.mark.parametrize(
    ("name", "kind", "fault", "words"),
    [
        pytest.param("fedbn", "ClientUpdates", {}, [REPLACED], id="when it has summed and written personal state"),
        pytest.param(
            "radfed", "ClientUpdates", {"signal": signal.SIGSTOP}, [r"\(no answer within \d+ s\)"], id="by hanging"
        ),
        *[
            pytest.param(*case, id=name, marks=pytest.mark.slow)
            for name, case in {
                "while it takes the candidates' losses": ("choice", "Scores", {}, [REPLACED]),
                "in an evaluation": ("fedavg", "Evaluate", {}, [REPLACED]),
                "while models are redistributed": ("radfed", "ClientUpdates", {}, [REPLACED]),
                "while it sums travelling models": ("radfed", "SumModels", {}, [REPLACED]),
                "with all others at once": ("fedbn", "ClientUpdates", {"times": 2}, ["^client actor 0", "actor 1"]),
            }.items()
        ],
    ],
)
def test_an_actor_dies(
    actors: ClientActors,
    population: Population,
    tmp_path: Path,
    name: str,
    kind: str,
    fault: dict[str, int],
    words: list[str],
) -> None:
    plan, told, struck = plan_for(name, population, tmp_path), list[str](), tmp_path / "struck"
    struck.mkdir()
    with settled(1):
        undisturbed = trained_here(plan_for(name, population, tmp_path / "here"), population)
    with closing(actors.fleet(plan, tell=told.append)) as fleet:
        assert trained(Faulty(fleet, kind, struck, **fault), plan, population) == undisturbed
    assert list(struck.iterdir())
    deaths = sorted(text for text in told if "died" in text)
    assert len(deaths) == len(words) and all(map(re.search, words, deaths)), told


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
