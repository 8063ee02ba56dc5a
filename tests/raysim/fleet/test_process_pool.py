"""Processes for whole calls, as the trials of a study are."""

from typing import Any

import pytest
import ray

from raysim.common.errors import RetriesSpentError
from raysim.fleet import process_pool
from raysim.fleet.process_pool import ProcessPool


def test_a_call_that_fits_no_node_any_more_is_not_awaited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes: list[list[dict[str, Any]]] = [[{"Resources": {"CPU": 2.0}}], [{"Resources": {"CPU": 1.0}}]]
    waits: list[float] = []

    def wait(references: list[Any], num_returns: int = 1, timeout: float = 0) -> tuple[list[Any], list[Any]]:
        waits.append(timeout)
        return [], references

    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(process_pool, "living_nodes", lambda: nodes[min(len(waits), len(nodes)) - 1])
    pool = ProcessPool(None, 2)
    pool._under_way["a call"] = "a trial"
    with pytest.raises(RetriesSpentError, match="none of Ray's 1 living nodes has 2 CPUs; start a node that has"):
        pool.next()
    assert waits == [process_pool.LOOK_SECONDS] * 2, "a node that fits is waited for"
