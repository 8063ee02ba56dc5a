"""Limits of calls, which follow from earlier ones; errors of Ray and last words of actors, each in one line."""

from typing import Any

import pytest
import ray
from ray.exceptions import (
    ActorDiedError,
    ObjectStoreFullError,
    OutOfDiskError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
)

from partitioning.common.disk import DiskFullError
from raysim.fleet.calls import MESSAGE_LENGTH, ActorLostError, ActorTimeouts, CallTimes, _cause, fetch_results

TIMEOUTS = ActorTimeouts(factor=10, floor=1, unseen=500)


def test_a_limit_follows_from_what_was_slowest_of_its_kind() -> None:
    times = CallTimes()
    assert times.limit("a kind", 100, 1, TIMEOUTS) == 500
    times.add("a kind", [2.0, 4.0], 300)
    times.add("a kind", [1.0], 100)
    assert times.limit("a kind", 1000, 1, TIMEOUTS) == pytest.approx(1 + 10 * 1000 * 6 / 300)
    # However few samples there are, a block may take as long as the slowest one did.
    assert times.limit("a kind", 1, 2, TIMEOUTS) == 1 + 10 * 2 * 4.0
    assert times.limit(b"another kind", 1, 1, TIMEOUTS) == 500


def test_how_much_work_a_call_takes_follows_the_latest_pace() -> None:
    times = CallTimes()
    assert times.samples("a kind", 0.05) == 0
    times.add("a kind", [1.0], 10)
    times.add("a kind", [1.0], 100)
    assert times.samples("a kind", 0.05) == 5
    times.add("a kind", [1.0], 0)
    assert times.samples("a kind", 0.05) == 5


def test_ray_says_in_one_line_that_it_ended_an_actor_for_memory() -> None:
    error = OutOfMemoryError("1 worker(s) were killed due to the node running low on memory.\nTop 10 memory users: ...")
    assert _cause(error) == "1 worker(s) were killed due to the node running low on memory."


def test_words_are_short() -> None:
    assert len(_cause(OutOfMemoryError("x" * 10_000))) == MESSAGE_LENGTH + 3
    assert _cause(ActorDiedError()) == "The actor died unexpectedly before finishing this task"
    assert str(ActorLostError("it said so")) == "a client actor died: it said so"


FULL = (OutOfDiskError("Local disk is full"), ObjectStoreFullError("no room"))
OF_A_CALL = [RayTaskError("run", "Traceback", each).as_instanceof_cause() for each in FULL]


@pytest.mark.parametrize("error", [*FULL, *OF_A_CALL])
def test_a_node_without_room_for_models_is_named(error: RayError, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(
        DiskFullError, match=r"its object store is full, and so is the disk .*; free space there, or st"
    ):
        fetch_results([])
