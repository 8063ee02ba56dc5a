"""The files of `ray up`: as Ray itself checks them before it asks a cloud for anything."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ray.autoscaler._private.util import prepare_config, validate_config

from tests.kit.launch_files import LAUNCHERS, ROOT, loaded, name


@pytest.fixture(params=LAUNCHERS, ids=name)
def launcher(request: pytest.FixtureRequest) -> dict[str, Any]:
    return loaded(request.param)


def test_all_are_found() -> None:
    assert [name(path) for path in LAUNCHERS] == ["aws/cluster.yaml", "gcp/cluster.yaml", "on-prem/cluster.yaml"]


def test_ray_takes_it(launcher: dict[str, Any]) -> None:
    validate_config(prepare_config(launcher))


@pytest.mark.parametrize("wrong", [{"idle_minutes": 5}, {"auth": {"user": "raysim"}}, {"max_workers": "two"}])
def test_ray_refuses_what_is_wrong(launcher: dict[str, Any], wrong: dict[str, Any]) -> None:
    ready = prepare_config(launcher)
    with pytest.raises(jsonschema.ValidationError):
        validate_config({**ready, **wrong})


def test_the_head_has_no_work(launcher: dict[str, Any]) -> None:
    types = launcher.get("available_node_types")
    if types:
        assert types[launcher["head_node_type"]]["resources"] == {"CPU": 0}
    else:
        assert "--num-cpus=0" in launcher["head_start_ray_commands"][-1]


def test_nobody_else_gets_in(launcher: dict[str, Any]) -> None:
    head, worker = launcher["head_start_ray_commands"][-1], launcher["worker_start_ray_commands"][-1]
    assert "--dashboard-host=127.0.0.1" in head
    assert "--autoscaling-config=~/ray_bootstrap_config.yaml" in head, "or the head starts no nodes"
    asked = " ".join(launcher.get("docker", {}).get("run_options", [])) or None
    assert all("RAY_AUTH_MODE=token" in (asked or command) for command in (head, worker))
    assert launcher["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert "security_group" not in launcher["provider"], "Ray's own rules open ssh only"


def test_there_is_room_for_the_nodes(launcher: dict[str, Any]) -> None:
    ready = prepare_config(launcher)
    for kind in ready["available_node_types"].values():
        assert 0 <= kind["min_workers"] <= kind["max_workers"] <= ready["max_workers"]
    assert any(kind["min_workers"] for kind in ready["available_node_types"].values())


def test_what_is_copied_is_there(launcher: dict[str, Any]) -> None:
    ours = [Path(source) for source in launcher["file_mounts"].values() if not source.startswith("~")]
    assert all((ROOT / path).exists() for path in ours)
    if launcher["provider"]["type"] == "local":
        assert {"algorithms", "partitioning", "raysim", "clusters", "pyproject.toml"} <= {str(path) for path in ours}


def test_given_machines_are_all_used() -> None:
    (path,) = (path for path in LAUNCHERS if path.parent.name == "on-prem")
    launcher = loaded(path)
    assert launcher["min_workers"] == launcher["max_workers"] == len(launcher["provider"]["worker_ips"])


@pytest.mark.parametrize("path", [path for path in LAUNCHERS if path.parent.name != "on-prem"], ids=name)
def test_clouds_have_nodes_of_both_kinds(path: Path) -> None:
    types = loaded(path)["available_node_types"]
    assert set(types) == {"head", "cpu", "gpu"}
    assert "GPU" not in types["cpu"]["resources"] and types["gpu"]["resources"]["GPU"] >= 1
    for kind in ("cpu", "gpu"):
        assert types[kind]["labels"] == {"raysim.io/kind": kind}
