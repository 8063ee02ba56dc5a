"""Populations and runs in a bucket, of a store that `uv run --with "moto[server]" pytest -m slow ...` brings."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

import partitioning
import raysim
from partitioning.store.remote import RemoteFolder
from raysim.common.errors import InputError, StoppedError
from raysim.data.sources import load
from raysim.report.page import write_report
from tests.kit.locations import EXPERIMENT, Ends, assert_same
from tests.kit.runs import quick_resume, quick_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def options() -> Iterator[str]:
    """The end of a URI that names a store on this machine, in which there is a bucket `raysim`."""
    moto: Any = pytest.importorskip("moto.server", reason='run it with: uv run --with "moto[server]"')
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {"region": "us-east-1", "scheme": "http", "endpoint_override": f"{host}:{port}"}
    made = fs.S3FileSystem(access_key="key", secret_key="secret", allow_bucket_creation=True, **options)
    made.create_dir("raysim")
    yield "?" + "&".join(f"{name}={value}" for name, value in options.items())
    server.stop()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    return tmp_path / "cache"


def test_a_run_of_a_population_in_a_bucket_is_stopped_and_goes_on_there(
    options: str, tmp_path: Path, cache: Path
) -> None:
    made = partitioning.make(load("digits").train, tmp_path / "p", scheme="iid", clients=6, test_clients=2)
    far, home = f"s3://raysim/p{options}", f"s3://raysim/runs/one{options}"
    for path in made.path.iterdir():
        RemoteFolder.of(far).store(path, path.name)
    config = {key: value for key, value in EXPERIMENT.items() if key != "partition"} | {"data": {"population": far}}
    whole = quick_run(config, tmp_path / "whole", inline=True).folder
    watcher = Ends(tmp_path / "nothing", 3)
    with pytest.raises(
        StoppedError, match=r"stopped after round 4; .*; continue with: raysim\.resume\(\"s3://raysim/runs/one\?"
    ):
        quick_run(config, home, inline=True, watcher=watcher, stop=watcher.stop)
    shutil.rmtree(cache)
    done = quick_resume(home, inline=True)
    assert_same(done.folder, whole)
    names = {str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file()}
    assert set(RemoteFolder.of(home).files()) == names
    assert write_report([home], tmp_path / "page.html").stat().st_size > 10_000
    with pytest.raises(InputError, match="exists and is not empty: must be a new folder"):
        raysim.run(config, home, inline=True)


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("s3://nosuchbucket/p", r"s3://nosuchbucket/p\?\S+ has no manifest.json: correct the address"),
        ("s3://raysim/nothing", "has no manifest.json: correct the address"),
    ],
)
def test_what_is_not_there(options: str, uri: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        partitioning.fetch(uri + options)


def test_a_bucket_that_cannot_be_written_is_told_before_training(options: str) -> None:
    with pytest.raises(InputError, match=r"s3://nosuchbucket/run\?\S+ \(.*\) cannot be written"):
        raysim.run(EXPERIMENT, f"s3://nosuchbucket/run{options}", inline=True)
