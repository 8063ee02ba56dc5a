"""Nodes that see neither the driver's population nor its run's folder: each with a cache of its own."""

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray

import partitioning
import raysim
from partitioning import Population
from raysim.common.errors import InputError, StoppedError
from raysim.data.sources import load
from raysim.fleet.ray_runtime import running
from raysim.fleet.remote_files import PopulationSender, pieces, receive
from raysim.simulation.stop import Stop
from raysim.watching.progress import Watcher
from tests.kit.ray import nodes as cluster_of
from tests.kit.runs import quick_resume, quick_run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_ray")]

EXPERIMENT: dict[str, Any] = {
    "rounds": 60,
    "data": {"dataset": "digits"},
    "partition": {"scheme": "iid", "clients": 10, "test_clients": 2},
    "model": {"name": "mlp", "hidden": [12], "norm": "batch"},
    "algorithm": {"name": "fedbn", "cohort": 6},
    "local": {"lr": 0.1, "batch_size": 32},
    "evaluate": {"every": 0},
}

ELSEWHERE = Path("/proc/self/cwd")
"""A folder that is another one in each process: the nodes' processes work elsewhere than the driver."""


@dataclass(frozen=True)
class Nodes:
    """A head on which no actor fits, and two nodes for one actor each."""

    address: str
    caches: tuple[Path, ...]

    def copies(self) -> list[list[str]]:
        """The populations that each node has a copy of."""
        return [sorted(path.name for path in cache.glob("populations/*")) for cache in self.caches]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    caches = tuple(tmp_path_factory.mktemp("cache") for _ in range(2))
    each = [{"num_cpus": 1, "env_vars": {"RAYSIM_CACHE": str(cache)}} for cache in caches]
    with cluster_of(*each) as started:
        yield Nodes(started.address, caches)


@pytest.fixture(autouse=True)
def here(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The driver works, and caches, where nobody else does; the nodes' caches are empty."""
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    yield
    for cache in nodes.caches:
        shutil.rmtree(cache / "populations", ignore_errors=True)


class Stops(Watcher):
    """Asks a run to stop after its second round."""

    def __init__(self) -> None:
        self.stop = Stop()

    def round(self, number: int, metrics: dict[str, float]) -> None:
        self.stop.asked = number == 2


class Slow(Watcher):
    """Slows rounds down until both actors are ready: else a run ends before the second node's actor has started."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "run.log"

    def round(self, number: int, metrics: dict[str, float]) -> None:
        if self._log.read_text().count("is ready") < 2:
            time.sleep(1)


def stopped(name: str) -> Path:
    """A run that was stopped, in a folder of which only this process sees the files."""
    watcher = Stops()
    with suppress(StoppedError):
        quick_run(EXPERIMENT, name, inline=True, watcher=watcher, stop=watcher.stop)
    return ELSEWHERE / name


def models(folder: Path) -> list[bytes]:
    return [(folder / "fedbn" / f"{name}.safetensors").read_bytes() for name in ("model", "personal")]


def test_nodes_are_given_the_population_and_keep_their_entries_with_the_driver(nodes: Nodes) -> None:
    quick_run(EXPERIMENT, "whole", inline=True)
    folder = stopped("run")
    quick_resume(folder, actors=2, address=nodes.address, watcher=Slow(folder))
    assert models(folder) == models(Path("whole"))
    digest = Population.open("whole/population").digest
    for cache in nodes.caches:
        assert partitioning.verify(cache / "populations" / digest) == []
    log = (folder / "run.log").read_text()
    assert log.count("raysim copies it there") == 2


def test_a_ray_of_several_nodes_that_this_process_has_needs_no_address(nodes: Nodes) -> None:
    quick_run(EXPERIMENT, "whole", inline=True)
    folder = stopped("run")
    with running(1, nodes.address):
        quick_resume(folder, actors=2, watcher=Slow(folder))
    assert models(folder) == models(Path("whole"))


def test_another_run_finds_the_copies(nodes: Nodes) -> None:
    for name in ("first", "second"):
        folder = stopped(name)
        quick_resume(folder, actors=2, address=nodes.address, watcher=Slow(folder))
    assert "raysim copies it there" in Path("first/run.log").read_text()
    assert "raysim copies it there" not in Path("second/run.log").read_text()


def test_files_come_in_pieces_that_readers_share(nodes: Nodes, tmp_path: Path) -> None:
    content = bytes(range(256)) * 10
    (tmp_path / "file").write_bytes(content)
    (tmp_path / "empty").touch()
    with running(1, nodes.address):  # else Ray starts another cluster
        sender = ray.remote(PopulationSender).options(num_cpus=0).remote(tmp_path, 100)
        assert b"".join(pieces(sender, "file")) == content
        assert [len(piece) for piece in pieces(sender, "file")] == [100] * 25 + [60]
        assert list(pieces(sender, "empty")) == []
        shared, again, other = ray.get([sender.piece.remote("file", number) for number in (0, 0, 1)])
        assert shared == again != other


def test_a_population_that_must_not_be_copied(nodes: Nodes) -> None:
    folder = stopped("run")
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("copies = true", "copies = false"))
    with pytest.raises(InputError, match=r"every node must see /proc/self/cwd/run/population; \S+ does not"):
        raysim.resume(folder, actors=2, address=nodes.address)
    assert nodes.copies() == [[], []]


def test_each_node_fetches_what_a_uri_names_by_itself(nodes: Nodes, tmp_path: Path) -> None:
    population = partitioning.make(load("digits").train, tmp_path / "far", scheme="iid", clients=8)
    config = {key: value for key, value in EXPERIMENT.items() if key != "partition"}
    config |= {"data": {"population": population.path.as_uri()}, "rounds": 2}
    # The driver's copy is in a cache that the nodes see in vain: theirs are others.
    one = quick_run(config, "one", actors=2, address=nodes.address)
    assert models(one.folder) == models(quick_run(config, "other", inline=True).folder)
    assert (one.folder / "fedbn" / "personal.safetensors").is_file()


def test_a_node_whose_cache_cannot_be_written_is_told_in_a_line(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    population = partitioning.make(load("digits").train, tmp_path / "far", scheme="iid", clients=8)
    (tmp_path / "file").touch()
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"RAYSIM_CACHE on \S+: must be a writable folder, .*/file/pop"):
        receive(population.digest, population.path.as_uri(), None)
