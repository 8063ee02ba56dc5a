"""What a record says of the code that made it, in a checkout of its own."""

import subprocess
from pathlib import Path

import pytest

import raysim
from raysim.reproduction.provenance import commit, machine
from raysim.store.summary import write_summary


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, in the place of raysim's own."""
    for name in ("raysim/__init__.py", "algorithms/a.py", "partitioning/b.py", "pyproject.toml", "README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "Begin")):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    monkeypatch.setattr(raysim, "__file__", str(tmp_path / "raysim" / "__init__.py"))
    return tmp_path


def test_code_as_it_was_committed_has_a_plain_name(checkout: Path) -> None:
    (checkout / "README.md").write_text("Other words.")
    (checkout / "mine.toml").write_text("")
    (checkout / "docs").mkdir()
    (checkout / "docs" / "claims.json").write_text("{}")
    assert len(commit() or "") == 40


@pytest.mark.parametrize("name", ["raysim/__init__.py", "algorithms/new.py", "pyproject.toml"])
def test_code_that_was_changed_or_added_is_marked(checkout: Path, name: str) -> None:
    (checkout / name).write_text("changed = True")
    assert (commit() or "").endswith("+")


def test_outside_of_a_checkout_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raysim, "__file__", str(tmp_path / "raysim" / "__init__.py"))
    assert commit() is None


def test_a_machine_names_the_gpu_of_the_trials(tmp_path: Path) -> None:
    for name, gpu in (("a", "none"), ("b", "NVIDIA H100"), ("c", "NVIDIA H100")):
        folder = tmp_path / "trials" / name / "fedavg"
        folder.mkdir(parents=True)
        write_summary(folder / "summary.json", {"fingerprint": {"gpu": gpu}})
    assert ", NVIDIA H100, torch " in machine(tmp_path)
    assert "cores, torch " in machine(tmp_path / "trials")
