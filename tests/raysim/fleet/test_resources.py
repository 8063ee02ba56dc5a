"""What nodes hold, what is said where they do not, and what crosses between them: exact, and without Ray."""

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import raysim
from raysim.common.errors import InputError
from raysim.fleet.resources import ActorDemand, ActorResources, described
from raysim.fleet.traffic import StoredValue, Traffic
from tests.kit.ray import moved_since

NODES: list[dict[str, Any]] = [
    {
        "NodeID": "a",
        "Resources": {"CPU": 64.0, "GPU": 1.0},
        "Labels": {"accelerator-type": "H100", "ray.io/node-id": "1"},
    },
    {"NodeID": "b", "Resources": {"CPU": 1.0, "GPU": 8.0}, "Labels": {"accelerator-type": "A100"}},
    {"NodeID": "head", "Resources": {"memory": 1.0}, "Labels": {}},
]


@pytest.mark.parametrize(
    ("each", "held"),
    [
        (ActorResources(), [64, 1, 0]),
        (ActorResources(2), [32, 0, 0]),
        # Per node the scarcer of the two counts: 65 CPUs and 9 GPUs hold three of these, not 18.
        (ActorResources(1, 0.5), [2, 1, 0]),
        (ActorResources(1, 2), [0, 1, 0]),
        (ActorResources(1, 1, {"accelerator-type": "A100"}), [0, 1, 0]),
        (ActorResources().at("york"), [0, 0, 0]),
    ],
)
def test_a_node_holds_what_all_of_its_resources_hold(each: ActorResources, held: list[int]) -> None:
    assert [each.on(node) for node in NODES] == held


def test_as_many_as_the_nodes_hold_or_as_are_asked_for() -> None:
    half = ActorResources(1, 0.5)
    assert [ActorDemand(wanted, half).planned(NODES) for wanted in (None, 2)] == [[None] * 3, [None] * 2]
    with pytest.raises(InputError, match=r"fleet.actors = 4 of 1 CPU and 0.5 GPU each: .*; set fleet.actors = 3, or"):
        ActorDemand(4, half).planned(NODES)


def test_nodes_are_described_by_kind() -> None:
    assert described([*NODES, NODES[2]]) == (
        "2 x (0 CPU), 1 x (64 CPU, 1 GPU, accelerator-type=H100), 1 x (1 CPU, 8 GPU, accelerator-type=A100)"
    )


@pytest.mark.parametrize("labels", [{"": "x"}, {"a b": "x"}, {"zone": "in(a, b)"}, {"zone": "!a"}, {"zone": "é"}])
def test_labels_that_no_node_can_have_are_refused(labels: dict[str, str]) -> None:
    ActorDemand(1, ActorResources(labels={"ray.io/accelerator-type": "H100", "zone": "eu-1.b"}))
    with pytest.raises(InputError, match=r"^fleet.labels = .*: must be a node's label"):
        ActorDemand(1, ActorResources(labels=labels))


def test_a_large_model_crosses_once_to_each_node_and_a_small_one_by_the_driver() -> None:
    traffic, large = Traffic(), StoredValue(200_000, host="a")
    large.made("home", traffic)
    for host in ("a", "b", "b", "c"):
        large.taken(host, "home", traffic)
    assert (traffic.out, traffic.into) == ({"a": 400_000}, {"b": 200_000, "c": 200_000})
    before, small = deepcopy(traffic), StoredValue(1000, host="a")
    small.made("home", traffic)
    small.taken("b", "home", traffic)
    small.taken("b", "home", traffic)
    during = moved_since(before, traffic)
    assert (during.crossed, during.into["b"], during.into["home"]) == (3000, 2000, 1000)
    assert before.crossed == 400_000


def test_what_the_driver_puts_goes_to_each_node_once() -> None:
    traffic, held = Traffic(), StoredValue(80, np.zeros(10))
    for host in ("home", "a", "a", "b"):
        held.taken(host, "home", traffic)
    assert traffic.by_node() == {
        "a": {"bytes_in": 80, "bytes_out": 0},
        "b": {"bytes_in": 80, "bytes_out": 0},
        "home": {"bytes_in": 0, "bytes_out": 160},
    }


@pytest.mark.parametrize(
    ("fleet", "message"),
    [
        ({"pinned": True}, "fleet.pinned = true with inline: must be false"),
        ({"group": 0}, "fleet.group = 0"),
    ],
)
def test_what_cannot_be_had_is_refused(tmp_path: Any, fleet: dict[str, Any], message: str) -> None:
    experiment = {"data": {"dataset": "digits"}, "partition": {"clients": 3}, "fleet": fleet}
    with pytest.raises(InputError, match=message):
        raysim.run(experiment, tmp_path / "run", inline=True)
