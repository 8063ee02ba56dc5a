"""The benchmark itself works: all four ways run on a small load."""

from pathlib import Path

import pytest
import ray

from tests.benchmarks.overhead import Load, measure


@pytest.mark.benchmark
def test_all_four_ways_are_measured(tmp_path: Path) -> None:
    ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        found = measure(Load("small", 6, 20, 4), repeats=1, rounds=2, folder=tmp_path)
    finally:
        ray.shutdown()
    assert list(found) == ["plain", "two at once", "1 actor", "2 actors"]
    assert all(seconds > 0 for seconds in found.values())
