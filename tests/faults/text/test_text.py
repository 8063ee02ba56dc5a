"""Hostile names: a few cases of `tests.faults.text.names` and of `tests.faults.text.cluster`; the modules run many."""

from pathlib import Path

import pytest

from tests.faults.text import cluster, names

MANY = 100

# Ray's client passes it to aiohttp.
SSL = pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")


@pytest.mark.parametrize(("seed", "room"), [(1003, "run"), (1004, "population")])
def test_names_are_only_shown(seed: int, room: str) -> None:
    assert names.check(seed, room)[1] == ""


@pytest.mark.parametrize("seed", range(20))
def test_arguments_are_refused_in_a_line(seed: int) -> None:
    assert names.check(seed, "refusal")[1] == ""


@pytest.mark.parametrize("seed", range(1))
def test_names_of_clients_sites_and_devices_are_only_shown(seed: int) -> None:
    assert names.check(seed, "owners")[1] == ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, MANY))
def test_many_names_of_clients_sites_and_devices(seed: int) -> None:
    assert names.check(seed, "owners")[1] == ""


@SSL
@pytest.mark.parametrize("seed", [0, 1, 4, 5, 7, 8])
def test_a_job_server_decides_nothing_here(seed: int) -> None:
    assert cluster.check(seed)[1] == ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(MANY))
def test_many_names(seed: int) -> None:
    assert names.check(2000 + seed)[1] == ""


@SSL
def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / cluster.JOB).symlink_to(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    with cluster.serving(cluster.Hostile(2, tmp_path)) as address:
        status, shown = cluster.followed(address)
    assert status == 2 and not (tmp_path / "elsewhere").exists(), shown


@SSL
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(MANY))
def test_many_job_servers(seed: int) -> None:
    assert cluster.check(2000 + seed)[1] == ""
