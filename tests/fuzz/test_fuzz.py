"""A few newly drawn cases of each fuzzer in every run of the tests; a failure names the command that repeats its case.

Set RAYSIM_FUZZ_SEED to draw the cases of an earlier run.
"""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from pathlib import Path

import pytest

from partitioning import InputError
from tests.fuzz import devices
from tests.fuzz.disturbed.cases import Case
from tests.fuzz.disturbed.cases import survive as survive_disturbance
from tests.fuzz.files.harness import survive as survive_file
from tests.fuzz.inputs.refusals import Workplace as Inputs
from tests.fuzz.populations.harness import Workplace as Populations
from tests.fuzz.populations.harness import check as check_population
from tests.fuzz.populations.sound import EXPERIMENT
from tests.fuzz.stored import Stores
from tests.fuzz.text import cluster, names
from tests.kit.runs import quick_run

pytestmark = pytest.mark.usefixtures("drawn")

SEED = int(os.environ.get("RAYSIM_FUZZ_SEED") or random.SystemRandom().randrange(2**20))
"""First of the seeds that follow one another in each test."""

# Ray's client passes it to aiohttp.
SSL = pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")


def hold(name: str, cases: int, wrong: Callable[[int], object], options: str = "{seed} {stop}") -> None:
    """Assert that the drawn cases of a fuzzer hold.

    Args:
        name: name of the fuzzer.
        cases: number of cases.
        wrong: whatever is wrong with the case of a seed.
        options: arguments of the fuzzer that repeat a case.
    """
    for seed in range(SEED, SEED + cases):
        found = wrong(seed)
        assert not found, f"{found}; uv run python -m tests.fuzz {name} {options.format(seed=seed, stop=seed + 1)}"


FIRST = "--first {seed} --count 1"


@pytest.fixture(params=[pytest.param(1, id="few"), pytest.param(10, id="many", marks=pytest.mark.slow)])
def times(request: pytest.FixtureRequest) -> int:
    """Return how many times the few cases of each run of the tests to draw."""
    factor: int = request.param
    return factor


def test_tables_of_devices(times: int) -> None:
    hold("devices", 50 * times, lambda seed: devices.check(seed)[1])


def test_stored_files(tmp_path: Path, times: int) -> None:
    stores = Stores(tmp_path, ("fedbn",))
    hold("stored", times, lambda seed: stores.stopped(seed).wrong or stores.going_on(seed).wrong)


@pytest.fixture(scope="module")
def populations(tmp_path_factory: pytest.TempPathFactory) -> Populations:
    return Populations.at(tmp_path_factory.mktemp("populations"))


def test_populations(populations: Populations, times: int) -> None:
    def wrong(seed: int) -> str:
        check_population(seed, populations)  # raises an error of its own
        return ""

    hold("populations", 4 * times, wrong)


@pytest.mark.parametrize("file", ["clients.parquet", "shard-00000.arrow"], ids=["when opened", "when read"])
def test_a_cache_that_is_damaged_says_that_it_can_go(
    populations: Populations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    sound = next(sound for sound in populations.sounds if sound.name == "images")
    config = {**EXPERIMENT, "data": {"population": str(sound.folder)}}
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    shutil.copytree(populations.root / "cache", tmp_path / "cache")
    (decoded,) = (tmp_path / "cache" / "decoded").glob("[!.]*")
    damaged = bytearray((decoded / file).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (decoded / file).write_bytes(damaged)
    with pytest.raises(InputError, match=f"or remove {decoded}, and raysim makes it again"):
        quick_run(config, tmp_path / "run", inline=True)
    shutil.rmtree(decoded)
    quick_run(config, tmp_path / "run", inline=True)


def test_data_files(tmp_path: Path, times: int) -> None:
    def wrong(seed: int) -> str:
        (tmp_path / f"{seed}").mkdir()
        return survive_file(seed, tmp_path / f"{seed}").wrong

    hold("files", times, wrong, FIRST)


@pytest.fixture
def inputs() -> Iterator[Inputs]:
    place = Inputs()
    yield place
    place.close()


def test_commands(inputs: Inputs, times: int) -> None:
    with ThreadPoolExecutor(2) as pool:
        outcomes = dict(enumerate(pool.map(inputs.case, range(SEED, SEED + 6 * times)), SEED))
    hold("inputs", 6 * times, lambda seed: outcomes[seed].wrong, FIRST)


@pytest.mark.parametrize(("room", "cases"), [("run", 1), ("population", 1), ("refusal", 5)])
def test_names(room: str, cases: int, times: int) -> None:
    hold("names", cases * times, lambda seed: names.check(seed, room)[1], f"{{seed}} {{stop}} {room}")


@SSL
def test_job_servers(times: int) -> None:
    hold("jobs", 3 * times, lambda seed: cluster.check(seed)[1])


@SSL
def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / cluster.JOB).symlink_to(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    with cluster.serving(cluster.Hostile(2, tmp_path)) as address:
        status, shown = cluster.followed(address)
    assert status == 2 and not (tmp_path / "elsewhere").exists(), shown


def test_disturbed_runs(tmp_path: Path, times: int) -> None:
    """Inline alone, because a Ray of several nodes takes longer to start than all other cases."""
    drawn = (case for case in map(Case, count(SEED)) if not case.on_grid and not case.on_own_ray)
    for case in islice(drawn, times):
        (folder := tmp_path / f"{case.seed}").mkdir()
        outcome = survive_disturbance(case, folder, None)
        again = f"uv run python -m tests.fuzz disturbed --first {case.seed} --count 1"
        assert outcome.injured and not outcome.wrong, f"{case}: {outcome}; {again}"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, which builds the library that strikes")
def test_writes(times: int) -> None:
    options = ["--only", "population", "--first", f"{SEED}", "--count", f"{2 * times}"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "writes", *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(options)}: {done.stdout}\n{done.stderr}"
