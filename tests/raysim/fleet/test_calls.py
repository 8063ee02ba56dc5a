"""How long work may take, as told by how long it took so far; and what is left of an actor's last words."""

import pytest
from ray.exceptions import ActorDiedError, OutOfMemoryError

from raysim.fleet.calls import MESSAGE_LENGTH, ActorLostError, ActorTimeouts, CallTimes, _cause

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
