"""Errors of Ray that reach the user in one line."""

from typing import Any

import pytest
import ray
from ray.exceptions import ObjectStoreFullError, OutOfDiskError, RayError, RayTaskError

from partitioning.common.disk import DiskFullError
from raysim.fleet.calls import fetch_results

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
