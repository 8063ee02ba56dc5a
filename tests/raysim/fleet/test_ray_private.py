"""Private parts of Ray: found in the tested version, told once and done without in others."""

from dataclasses import replace
from pathlib import Path

import pytest

import raysim
from raysim.cluster import job_files
from raysim.fleet import client_actors, ray_private, ray_runtime, results
from raysim.fleet.ray_private import PACKAGING, START, RayPart, untold
from raysim.watching.progress import Watcher

NAMES = {part: name for name, part in vars(ray_private).items() if isinstance(part, RayPart)}
USERS = (ray_runtime, results, job_files)


class Notices(Watcher):
    """Watcher that keeps the notices."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def notice(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture
def other_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ray that has moved or dropped all its private parts."""
    lacking = {part: replace(part, path=f"{part.path}_of_another_version") for part in NAMES}
    for part, name in NAMES.items():
        for module in USERS:
            monkeypatch.setattr(module, name, lacking[part], raising=False)
    monkeypatch.setattr(client_actors, "START", tuple(lacking[part] for part in START))
    monkeypatch.setattr(job_files, "PACKAGING", tuple(lacking[part] for part in PACKAGING))
    monkeypatch.setattr(ray_private, "_told", set())


def test_the_tested_version_has_every_part() -> None:
    assert set(START + PACKAGING) == set(NAMES) and untold(START) == untold(PACKAGING) == ""


@pytest.mark.parametrize("path", ["ray._private.gone.Part", "ray._raylet.Gone", "ray._private.worker.gone"])
def test_a_missing_part_is_told_once(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_private, "_told", set())
    part = RayPart(path, "the start takes longer")
    assert f"lacks {path}: the start takes longer; results are the same" in untold((part,))
    assert untold((part,)) == ""


@pytest.mark.usefixtures("other_version")
def test_a_version_without_them_gives_the_same_bytes(tmp_path: Path) -> None:
    config = {
        "rounds": 2,
        "data": {"dataset": "digits"},
        "partition": {"clients": 4},
        "model": {"name": "mlp", "hidden": [8]},
    }
    watcher = Notices()
    raysim.run(config, tmp_path / "inline", inline=True)
    raysim.run(config, tmp_path / "ray", actors=1, watcher=watcher)
    inline, other = ((tmp_path / each / "fedavg" / "model.safetensors").read_bytes() for each in ("inline", "ray"))
    assert inline == other
    assert sum("lacks ray._private" in text for text in watcher.texts) == 1


@pytest.mark.usefixtures("other_version")
def test_ray_alone_checks_a_folder_that_raysim_cannot_count(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"")
    with (tmp_path / "large").open("r+b") as file:
        file.truncate(200 * 2**20)  # above the limit of the job server
    assert job_files.checked_folder(tmp_path, "quickstart") == (tmp_path, "quickstart", ())
    assert job_files._sizes(tmp_path)["large"] > 200 * 2**20
