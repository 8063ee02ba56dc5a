"""`[topology]`: graphs by name and from files, and what is refused in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from algorithms import Topology
from algorithms.options.topology import GRAPHS, Mixing
from raysim.common.errors import InputError
from raysim.config.experiment import Experiment
from raysim.config.topology import TopologyTable
from tests.kit.runs import quick_run

SPARE = {"erdos-renyi": {"probability": 0.4}, "random-regular": {"degree": 4}}


def dense(mixing: Mixing) -> np.ndarray:
    matrix = np.diag(mixing.own)
    matrix[mixing.receivers, mixing.senders] = mixing.shares
    return matrix


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("graph", GRAPHS[:-1])
@pytest.mark.parametrize("clients", [2, 6, 9, 16, 30])
def test_every_graph_mixes_without_loss(graph: str, clients: int, directed: bool) -> None:
    """Columns sum to 1 in every graph; rows do so without direction, and the matrix is symmetric."""
    if (graph, clients) in (("torus", 2), ("random-regular", 2)):
        return
    topology = Topology(
        graph, directed=directed, redraw="round" if graph in SPARE else "static", **SPARE.get(graph, {})
    )
    ids = 3 * np.arange(clients)
    for number in (1, 2):
        matrix = dense(topology.matrix(ids, 5, number))
        assert (matrix >= 0).all() and (np.diag(matrix) > 0).all()
        np.testing.assert_allclose(matrix.sum(0), 1, rtol=1e-12)
        if not topology.is_directed:
            np.testing.assert_array_equal(matrix, matrix.T)
        again = dense(topology.matrix(ids, 5, number))
        np.testing.assert_array_equal(matrix, again)


@pytest.mark.parametrize(
    ("topology", "neighbours"),
    [
        (Topology("ring"), {1, 11}),
        (Topology("ring", directed=True), {1}),
        (Topology("torus"), {1, 3, 4, 8}),
        (Topology("exponential"), {1, 2, 4, 8, 10, 11}),
        (Topology("exponential", directed=True), {1, 2, 4, 8}),
        (Topology("complete"), set(range(1, 12))),
    ],
)
def test_graphs_have_the_neighbours_of_their_definition(topology: Topology, neighbours: set[int]) -> None:
    matrix = dense(topology.matrix(np.arange(12), 0, 1))
    assert set(np.flatnonzero(matrix[:, 0]).tolist()) - {0} == neighbours
    np.testing.assert_allclose(matrix[matrix > 0], 1 / (1 + len(neighbours)))


def test_one_peer_graphs_take_the_distances_in_turn() -> None:
    topology, distances = Topology("one-peer-exponential"), []
    for number in range(1, 6):
        mixing = topology.matrix(np.arange(8), 0, number)
        (distance,) = set(((mixing.receivers - mixing.senders) % 8).tolist())
        distances.append(distance)
    assert distances == [1, 2, 4, 1, 2]
    product = np.linalg.multi_dot([dense(topology.matrix(np.arange(8), 0, number)) for number in (3, 2, 1)])
    np.testing.assert_allclose(product, 1 / 8)  # a power of two of clients agree after one turn


@pytest.mark.parametrize(("clients", "degree"), [(10, 3), (7, 4), (12, 11), (40, 6)])
def test_random_regular_graphs_are_regular_and_drawn(clients: int, degree: int) -> None:
    topology = Topology("random-regular", degree=degree, redraw="round")
    found = [dense(topology.matrix(np.arange(clients), 0, number)) > 0 for number in (1, 2)]
    for matrix in found:
        assert (matrix.sum(0) == degree + 1).all() and (matrix == matrix.T).all()
    assert np.array_equal(*found) == (degree == clients - 1)


def test_pairs_of_a_random_graph_are_all_equally_likely() -> None:
    topology = Topology("erdos-renyi", probability=0.3, redraw="round")
    for clients in (6, 7):
        met = sum(dense(topology.matrix(np.arange(clients), 1, number)) > 0 for number in range(1, 2001))
        shares = met[~np.eye(clients, dtype=bool)] / 2000
        assert shares.min() > 0.25 and shares.max() < 0.35


def test_the_spectral_gap_is_that_of_the_eigenvalues() -> None:
    ring = Topology("ring").matrix(np.arange(10), 0, 1)
    assert ring.spectral_gap == pytest.approx(1 - (1 + 2 * np.cos(2 * np.pi / 10)) / 3)
    one_way = Topology("ring", directed=True).matrix(np.arange(10), 0, 1)
    assert one_way.spectral_gap == pytest.approx(1 - abs(1 + np.exp(2j * np.pi / 10)) / 2)
    assert Topology("complete").matrix(np.arange(10), 0, 1).spectral_gap == pytest.approx(1)


def test_absent_clients_keep_everything_and_lose_nothing() -> None:
    for topology in (Topology("exponential"), Topology("exponential", directed=True)):
        present = np.array([True, True, False, True, False, True, True])
        matrix = dense(topology.matrix(np.arange(7), 0, 1).among(present))
        np.testing.assert_allclose(matrix.sum(0), 1)
        np.testing.assert_array_equal(matrix[~present], np.eye(7)[~present])
        assert topology.is_directed or np.array_equal(matrix, matrix.T)


def edges(path: Path, **columns: Any) -> Path:
    """Write a file of edges."""
    pq.write_table(pa.table(columns), path)
    return path


def test_a_file_gives_edges_and_weights(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("from,to,weight\n0,2,0.5\n4,2,0.25\n")
    table = TopologyTable.over("topology", {"graph": f"file:{path}"}, {})
    matrix = dense(table.option().matrix(np.array([0, 2, 4]), 0, 1))
    np.testing.assert_allclose(matrix, [[0.5, 0.5, 0], [0.5, 0.25, 0.25], [0, 0.25, 0.75]])
    plain = edges(tmp_path / "edges.parquet", to=[1, 2, 0], **{"from": [0, 1, 2]})
    table = TopologyTable.over("topology", {"graph": f"file:{plain}", "directed": True}, {})
    matrix = dense(table.option().matrix(np.arange(3), 0, 1))
    np.testing.assert_allclose(matrix, [[0.5, 0, 0.5], [0.5, 0.5, 0], [0, 0.5, 0.5]])


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"from": [0], "till": [1]}, "must have the columns from, to and perhaps weight, and has from, till; rename"),
        ({"from": [0], "to": [0]}, "row 0, .*'to': 0.*: must name two different clients; correct"),
        ({"from": [0, None], "to": [1, 2]}, "row 1, .*'from': None.*: must name two different clients"),
        ({"from": [0, 1], "to": [1, 0]}, "row 1, .*: must stand once"),
        ({"from": [0], "to": [1], "weight": [1.5]}, r"row 0, .*: must have a weight in \(0, 1\]"),
        ({"from": [0, 1], "to": [1, 2], "weight": [0.5, None]}, r"row 1, .* must have a weight in \(0, 1\]"),
        ({"from": ["a"], "to": ["b"]}, "must have whole numbers and weights"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(columns: dict[str, Any], text: str, tmp_path: Path) -> None:
    path = edges(tmp_path / "edges.parquet", **columns)
    with pytest.raises(InputError, match=text) as refused:
        TopologyTable.over("topology", {"graph": f"file:{path}"}, {})
    assert "\n" not in str(refused.value) and str(path) in str(refused.value)


def experiment(name: str, **topology: Any) -> dict[str, Any]:
    return {
        "rounds": 2,
        "data": {"dataset": "digits", "test": 0.1},
        "partition": {"scheme": "iid", "clients": 8},
        "model": {"name": "logistic"},
        "algorithm": {"name": name, "topology": topology},
    }


@pytest.mark.parametrize(
    ("name", "topology", "text"),
    [
        ("dpsgd", {"graph": "rnig"}, r"topology.graph = 'rnig': did you mean 'ring'\? It must be one of ring, torus, "),
        ("dpsgd", {"graph": "foo"}, "topology.graph = 'foo': must be one of ring, .*, erdos-renyi, file:PATH; use one"),
        ("dpsgd", {"graph": "ring", "degree": 3}, 'topology.degree = 3: must be given with .*"random-regular" alone'),
        ("dpsgd", {"graph": "erdos-renyi"}, "topology.probability = None: must be given with"),
        ("dpsgd", {"graph": "erdos-renyi", "probability": 1.5}, r"topology.probability = 1.5: must be in \(0, 1\]"),
        ("dpsgd", {"graph": "ring", "redraw": "round"}, "topology.redraw = 'round': must be \"static\" without one of"),
        ("sgp", {"directed": True, "mixing": "metropolis-hastings"}, 'topology.mixing = .*: must be "uniform" if dir'),
        (
            "dpsgd",
            {"directed": True},
            'topology.graph = "ring", directed, with dpsgd: must have no direction, .* use sgp',
        ),
        ("dpsgd", {"graph": "one-peer-exponential"}, "one-peer-exponential.* with dpsgd: must have no direction"),
        ("dpsgd", {"graph": "erdos-renyi", "probability": 0.9, "mixing": "uniform"}, "with dpsgd: must be left out"),
        (
            "fedavg",
            {"graph": "ring"},
            r"\[topology\] with an algorithm that sends models to a server: must be left out",
        ),
        (
            "dpsgd",
            {"graph": "ring", "sha256": "00"},
            "topology.sha256 = '00': must be that of the file of edges, None; ",
        ),
        ("dpsgd", {"graph": "file:/nowhere/edges.csv"}, "/nowhere/edges.csv cannot be opened .*: check the path"),
    ],
)
def test_a_wrong_table_is_refused_in_one_line(name: str, topology: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text) as refused:
        Experiment.of(experiment(name, **topology))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"privacy": {"noise": 1.0, "clip": 1.0}}, r"rounds of its own with \[privacy\]: must be left out"),
        ({"uplink": {"chain": [{"name": "top-k", "share": 0.1}]}}, r"uplink .* remove \[uplink\]"),
        ({"downlink": {"chain": [{"name": "top-k", "share": 0.1}]}}, r"downlink.* remove \[downlink\]"),
        ({"server": {"aggregate": "median"}}, 'server.aggregate = "median" with rounds of its own: must be'),
        ({"server": {"rule": "adam"}}, "server.rule = .*must be 'assign' if there is no server"),
        ({"candidates": 4, "cohort": 2}, "PowerOfChoice.* with rounds of its own: must be left out"),
        ({"deadline": 3.0}, "algorithm.deadline = 3.0 with an algorithm with rounds of its own: must not be used"),
    ],
)
def test_what_needs_a_server_is_refused(keys: dict[str, Any], text: str, tmp_path: Path) -> None:
    config = experiment("dpsgd")
    config["algorithm"] |= keys
    config |= {"devices": {"compute": 10.0}} if "deadline" in keys else {}
    with pytest.raises(InputError, match=text) as refused:
        quick_run(config, tmp_path / "run", inline=True)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("topology", "text"),
    [
        (
            {"graph": "erdos-renyi", "probability": 0.05},
            "must be connected, and 8 clients have . parts .*; raise topology",
        ),
        ({"graph": "random-regular", "degree": 8}, "topology.degree = 8: must be below 8"),
    ],
)
def test_a_graph_that_the_clients_cannot_have_is_refused_before_training(
    topology: dict[str, Any], text: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=f"dpsgd: topology.graph.*{text}|dpsgd: {text}") as refused:
        quick_run(experiment("dpsgd", **topology), tmp_path / "run", inline=True)
    assert "\n" not in str(refused.value)


def test_edges_outside_the_clients_and_heavy_ones_are_refused(tmp_path: Path) -> None:
    ends = {"from": [0, 1, 2, 3, 4, 5, 6], "to": [1, 2, 3, 4, 5, 6, 9]}
    path = edges(tmp_path / "far.parquet", **ends)
    with pytest.raises(InputError, match="an edge of client 9: must join training clients, which are 0 to 7"):
        quick_run(experiment("dpsgd", graph=f"file:{path}"), tmp_path / "run", inline=True)
    path = edges(tmp_path / "none.parquet", **{each: pa.array([], pa.int64()) for each in ends})
    with pytest.raises(InputError, match=r"must be connected, and 8 clients have 8 parts .*; add edges"):
        quick_run(experiment("dpsgd", graph=f"file:{path}"), tmp_path / "run", inline=True)
    path = edges(tmp_path / "heavy.parquet", **{**ends, "to": [1, 2, 3, 4, 5, 6, 7]}, weight=[0.6] * 7)
    with pytest.raises(InputError, match=r"the weights from client 1 sum to 1\.2: must be at most 1; lower them"):
        quick_run(experiment("dpsgd", graph=f"file:{path}"), tmp_path / "run", inline=True)


def test_a_changed_file_of_edges_is_refused_on_resume(tmp_path: Path) -> None:
    path = edges(tmp_path / "edges.parquet", **{"from": [0, 1, 2], "to": [1, 2, 3]})
    first = TopologyTable.over("topology", {"graph": f"file:{path}"}, {})
    edges(path, **{"from": [0, 1, 2], "to": [1, 2, 4]})
    with pytest.raises(
        InputError, match=r"topology.sha256 = .*: must be that of the file of edges, .*; restore the file"
    ):
        TopologyTable.over("topology", first.model_dump(exclude_none=True), {})


@pytest.mark.parametrize("graph", ["file", "file:"])
def test_a_file_of_edges_without_a_name_is_refused(graph: str) -> None:
    with pytest.raises(InputError, match="must name a file of edges; write"):
        TopologyTable.over("topology", {}, {"graph": graph})
