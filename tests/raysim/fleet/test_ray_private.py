"""Private parts of Ray: found in the tested version, told once and done without in others."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from raysim.cluster import submitting
from raysim.fleet import ray_private, ray_runtime
from raysim.fleet.ray_private import (
    NODE,
    PACKAGING,
    START,
    TOKEN_SETTINGS,
    TOKENS,
    RayPart,
    draw_apart,
    sent_sizes,
    untold,
)
from tests.kit.runs import quick_run
from tests.kit.workers import ROOT

pytestmark = pytest.mark.usefixtures("own_ray")

NAMES = {part: name for name, part in vars(ray_private).items() if isinstance(part, RayPart)}

RUN = """
import json
import sys
from dataclasses import replace
from raysim.fleet import client_actors, ray_private, ray_runtime, calls
from raysim.watching.progress import Watcher
from tests.kit.runs import quick_run

class Notices(Watcher):
    def notice(self, text):
        print(text)

parts = {name: part for name, part in vars(ray_private).items() if isinstance(part, ray_private.RayPart)}
lacking = {name: replace(part, path=f"{part.path}_of_another_version") for name, part in parts.items()}
for module in (ray_runtime, calls):
    for name in parts.keys() & vars(module).keys():
        setattr(module, name, lacking[name])
client_actors.START = tuple(lacking.values())
out, config = sys.argv[1], json.loads(sys.argv[2])
quick_run({**config, "algorithm": [{"name": "fedavg"}, {"name": "fedprox"}]}, out, actors=1, watcher=Notices())
"""
"""Run with a Ray that has moved or dropped all its private parts."""


def test_the_tested_version_has_every_part() -> None:
    assert set(START + PACKAGING) == set(NAMES) and untold(START) == untold(PACKAGING) == ""


@pytest.mark.parametrize("path", ["ray._private.gone.Part", "ray._raylet.Gone", "ray._private.worker.gone"])
def test_a_missing_part_is_told_once(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_private, "_told", set())
    part = RayPart(path, "the start takes longer")
    assert f"lacks {path}: the start takes longer; results are the same" in untold((part,))
    assert untold((part,)) == ""


def test_a_start_does_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in (NODE, TOKENS, TOKEN_SETTINGS):
        monkeypatch.setattr(ray_runtime, NAMES[part], replace(part, path=f"ray._private.gone.{part.name}"))
    with ray_runtime._token(tmp_path), ray_runtime.lean():
        assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(tmp_path / "token")


def test_a_version_without_them_gives_the_same_bytes(tmp_path: Path) -> None:
    """In a process of its own: that Ray also starts what raysim leaves out, and ends it when it likes."""
    config = {"rounds": 2, "data": {"dataset": "digits"}, "partition": {"clients": 4}, "model": {"hidden": [8]}}
    command = [sys.executable, "-c", RUN, str(tmp_path / "ray"), json.dumps(config)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    quick_run({**config, "algorithm": {"name": "fedavg"}}, tmp_path / "inline", inline=True)
    inline, other = ((tmp_path / each / "fedavg" / "model.safetensors").read_bytes() for each in ("inline", "ray"))
    assert inline == other
    assert done.stdout.count("lacks ray._private") == 1


def test_ray_alone_checks_a_folder_that_raysim_cannot_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = {part: replace(part, path=f"{part.path}_of_another_version") for part in PACKAGING}
    for part in PACKAGING:
        monkeypatch.setattr(ray_private, NAMES[part], lacking[part])
    monkeypatch.setattr(ray_private, "PACKAGING", tuple(lacking.values()))
    (tmp_path / "large").write_bytes(b"")
    with (tmp_path / "large").open("r+b") as file:
        file.truncate(200 * 2**20)  # above the limit of the job server
    assert submitting.checked_folder(tmp_path, "quickstart") == (tmp_path, "quickstart", ())
    assert sent_sizes(tmp_path, [])["large"] > 200 * 2**20


def test_a_version_that_lacks_a_module_draws_nothing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_private, "DRAWING", ("ray._private.gone", "ray._private.worker"))
    draw_apart()
