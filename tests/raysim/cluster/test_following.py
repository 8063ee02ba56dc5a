"""The end of a job: its run comes here, and nothing that the cluster sends decides more than that."""

import json
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.job_submission import JobStatus

from raysim.cluster.following import finish
from raysim.cluster.head import Head
from raysim.cluster.parcel import send
from raysim.cluster.submitting import ClusterJob
from raysim.common.errors import InputError
from raysim.store.config_file import write_config

JOB = "raysim-exp-1"


class Ended(Head):
    """Head on which a job has ended whose run is in a folder; it takes no job that removes anything."""

    def __init__(self, run: Path, stage: str = f"/tmp/{JOB}/run") -> None:
        self.address, self._read, self._run = "http://127.0.0.1:1", Counter(), run
        self._metadata = {"raysim": json.dumps({"stage": stage, "paths": {}})}

    def lines(self, job: str) -> Iterator[str]:
        stream = StringIO()
        if job != JOB:
            send(self._run, stream)
        yield from stream.getvalue().splitlines()

    def details(self, job: str) -> Any:
        return SimpleNamespace(status=JobStatus.SUCCEEDED, driver_exit_code=0, metadata=self._metadata)

    def submit(self, command: str, job: str, metadata: dict[str, str] | None = None, **environment: Any) -> None:
        if command.startswith("rm "):
            raise ConnectionError("nobody listens")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (folder := tmp_path / "there" / "run").mkdir(parents=True)
    write_config(folder / "config.toml", {"algorithm": [{"name": "fedavg"}]})
    (folder / "run.log").touch()
    return folder


def test_a_run_that_is_here_counts_although_its_copy_stays(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = Ended(run)
    done = finish(head, ClusterJob.of(head, JOB, tmp_path / "here"))
    assert done.folder == tmp_path / "here" and (done.folder / "config.toml").is_file()
    assert f"a copy of the run stays in /tmp/{JOB}/run on the cluster (nobody listens)" in capsys.readouterr().err


def test_a_run_in_a_folder_is_not_brought_to_a_uri(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--out = 's3://bucket/run': must be a folder here, because job 'raysim-exp"):
        ClusterJob.of(Ended(run), JOB, "s3://bucket/run")


def test_a_run_at_a_uri_brings_no_code_to_run(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An experiment above the run's folder would have it for one of its algorithms, and would be read as a whole."""
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "hostile_code.py").write_text(f"open({str(tmp_path / 'it-ran')!r}, 'w')\n")
    table = {"name": "hostile_code:flat", "label": "run"}
    tables = {"modules": [str(tmp_path)], "data": {"dataset": "digits"}, "algorithm": [table]}
    for path in run.iterdir():
        path.rename(run.parent / path.name)
    (run.parent / "config.toml").unlink()
    write_config(run.parent / "config.toml", tables)
    (run / "model.safetensors").touch()
    head = Ended(run, run.as_uri())
    with pytest.raises(InputError, match=r"must be the folder of a run, with a config\.toml"):
        finish(head, ClusterJob.of(head, JOB, run.as_uri()))
    assert not (tmp_path / "it-ran").exists()
