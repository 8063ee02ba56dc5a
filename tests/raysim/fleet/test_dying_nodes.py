"""Nodes that die in the middle of a round: with models on them, with what clients keep, or the last one that fits."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster

import raysim
from raysim.common.errors import RetriesSpentError
from raysim.watching.progress import Watcher
from tests.kit.ray import nodes as cluster_of
from tests.kit.ray import sockets_collected
from tests.kit.runs import quick_run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_ray")]

EXPERIMENT: dict[str, Any] = {
    "rounds": 6,
    "data": {"dataset": "digits"},
    "partition": {"scheme": "iid", "clients": 10, "test_clients": 2},
    # Large enough that Ray leaves models on the node where they were made: below 100 KB the driver holds them.
    "model": {"name": "mlp", "hidden": [1000], "norm": "batch"},
    "local": {"lr": 0.1, "batch_size": 32},
    "fleet": {"block": 1, "group": 3},
    "evaluate": {"every": 2},
}
# No aggregation before the end, and an evaluation, which copies the models, every second round: after an odd round a
# node has the only copies of its models, however far its client updates are.
RADFED = {**EXPERIMENT, "algorithm": {"name": "radfed", "cohort": 6, "aggregate_every": 6}}
FEDBN = {**EXPERIMENT, "algorithm": {"name": "fedbn", "cohort": 6}}


@dataclass
class Nodes:
    """A head on which no actor fits, and two nodes for one actor each."""

    cluster: Cluster
    there: list[Any] = field(default_factory=list)

    def complete(self) -> None:
        with sockets_collected():
            while len(self.there) < 2:
                self.there.append(self.cluster.add_node(num_cpus=1))

    def remove(self, node_id: str = "") -> None:
        """Remove a node with an id that begins so."""
        node = next(each for each in self.there if each.node_id.startswith(node_id))
        self.there.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)


@dataclass
class Removing(Watcher):
    """Removes nodes when a round is written: the client updates of the next one are under way.

    A run's log tells which node had the first actor. This one takes a group of every round, whenever the other is
    ready.
    """

    nodes: Nodes
    number: int
    log: Path | None = None
    """Log of the run of which the first actor's node is removed; None to remove both nodes."""
    told: list[str] = field(default_factory=list)
    removed: float = 0.0

    def round(self, number: int, metrics: dict[str, float]) -> None:
        if number == self.number and not self.removed:
            if self.log is None:
                self.nodes.remove()
                self.nodes.remove()
            else:
                first = re.search(r"is ready, on node (\w+)", self.log.read_text())
                assert first is not None
                self.nodes.remove(first[1])
            self.removed = time.monotonic()

    def notice(self, text: str) -> None:
        self.told.append(text)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    with cluster_of(noticed=True) as started:
        yield Nodes(started)


@pytest.fixture
def nodes(cluster: Nodes) -> Nodes:
    cluster.complete()
    return cluster


def files(run: raysim.Run) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(run.folder.glob("*/*.safetensors"))}


@pytest.mark.parametrize(
    ("experiment", "number"),
    [
        pytest.param(RADFED, 3, id="models in flight on it"),
        pytest.param(FEDBN, 3, id="clients keep what was written there"),
    ],
)
def test_a_node_dies(nodes: Nodes, tmp_path: Path, experiment: dict[str, Any], number: int) -> None:
    undisturbed = quick_run(experiment, tmp_path / "inline", inline=True)
    watcher = Removing(nodes, number, tmp_path / "struck" / "run.log")
    struck = quick_run(experiment, tmp_path / "struck", actors=2, address=nodes.cluster.address, watcher=watcher)
    assert files(struck) == files(undisturbed)
    assert [result.metrics for result in struck.results] == [result.metrics for result in undisturbed.results]
    # In which words depends on what was under way, and on whether Ray or the other end of a connection is faster.
    assert any("client actor" in text for text in watcher.told)
    again = "repeating the rounds since round 0" in (struck.folder / "run.log").read_text()
    assert again == (experiment is RADFED)


def test_no_node_is_left(nodes: Nodes, tmp_path: Path) -> None:
    watcher = Removing(nodes, 2)
    message = r"fedbn: no client actor is left, and none of Ray's 1 living nodes has the 1 CPU of one; start a node"
    with pytest.raises(RetriesSpentError, match=message):
        raysim.run(FEDBN, tmp_path / "run", actors=2, address=nodes.cluster.address, watcher=watcher)
    assert time.monotonic() - watcher.removed < 60
