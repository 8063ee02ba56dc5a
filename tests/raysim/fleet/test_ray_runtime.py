"""Rays that this process starts, one after the other."""

import os
from pathlib import Path

import pytest

from raysim.common.errors import InputError
from raysim.fleet.calls import START_SECONDS, ActorTimeouts, fetch_results
from raysim.fleet.client_actors import ClientActors
from raysim.fleet.ray_runtime import LONGEST_FOLDER, NODE_WAIT, _temporary, check_answers

pytestmark = pytest.mark.usefixtures("own_ray")


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:x", "127.0.0.1:9"])
def test_an_address_where_no_cluster_is_fails_at_once(address: str) -> None:
    with pytest.raises(InputError, match=r"address = .*: must be HOST:PORT of a running Ray cluster"):
        check_answers(address)


def test_all_starts_of_ray_fit_into_the_time_that_a_run_waits() -> None:
    """Otherwise nobody reads why they failed."""
    limits = ActorTimeouts()
    assert limits.starts * NODE_WAIT + (limits.starts - 1) * limits.pause < START_SECONDS


@pytest.mark.slow
def test_two_runs_one_after_the_other_that_are_done_before_ray_has_started() -> None:
    for _ in range(2):
        with ClientActors(1):
            pass
    with ClientActors(1) as last:
        assert fetch_results([handle.fingerprint.remote() for handle in last.pool.handles()], 180) == [last.fingerprint]


def test_a_short_link_to_a_long_folder_has_no_room_for_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = Path("/tmp", f"l{os.getpid()}")
    link.symlink_to(tmp_path)
    try:
        monkeypatch.setenv("RAY_TMPDIR", str(link))
        assert len(_temporary()) + len("/raysim-xxxxxxxx") <= LONGEST_FOLDER < len(str(tmp_path))
    finally:
        link.unlink()
