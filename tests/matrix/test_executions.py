"""The comparison of runs: it sees every file that a run leaves."""

import shutil
from pathlib import Path

import click
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

from raysim.store.summary import read_summary, write_summary
from tests.kit.runs import assert_same
from tests.matrix.__main__ import to_freeze
from tests.matrix.configurations import CONFIGURATIONS
from tests.matrix.executions import differing, digests, run_as


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("ifca by an own rule", "clusters.safetensors"),
        ("ifca by an own rule", "model.safetensors"),
        ("redrawn gossip", "edges.parquet"),
    ],
)
def test_every_file_of_results_is_compared(name: str, file: str, tmp_path: Path) -> None:
    one, other, algorithm = tmp_path / "one", tmp_path / "other", CONFIGURATIONS[name]["algorithm"]["name"]
    found = {"one": run_as("inline", name, one)}
    shutil.copytree(one, other)
    changed = other / algorithm / file
    if changed.suffix == ".parquet":
        pq.write_table(pq.read_table(changed).slice(0, 1), changed)
    elif file == "model.safetensors":  # the same numbers in another shape
        save_file({key: each.reshape(-1, 1) for key, each in load_file(changed).items()}, changed)
    else:
        save_file({key: 0 * each for key, each in load_file(changed).items()}, changed)
    summary = other / algorithm / "summary.json"
    write_summary(summary, read_summary(summary, used=()))  # it has the files' checksums
    assert differing({**found, "other": digests(other)}) == [f"other: {changed.stem}"]
    with pytest.raises(AssertionError, match=file):
        assert_same(one, other, algorithm)


def test_a_configuration_that_a_file_of_digests_lacks_differs() -> None:
    assert differing({"inline": {"model": "5e"}}, {}) == ["inline: model"]


def test_errors_are_not_written_as_digests() -> None:
    ran, failed = {"model": "5e"}, {"error": "KeyError: 'x'"}
    assert to_freeze({"fedavg": {"inline": ran, "stopped": ran}}) == {"fedavg": ran}
    with pytest.raises(click.UsageError, match="'fedbn' raised KeyError: 'x'"):
        to_freeze({"fedavg": {"inline": ran}, "fedbn": {"inline": ran, "stopped": failed}})
