"""Runs whose folder is at a URI: worked on here, stored there, continued from there."""

import errno
import fcntl
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import raysim
from partitioning.cli.exit_status import run_command
from partitioning.store.remote import RemoteFolder
from raysim.cli.commands import cli
from raysim.common.errors import InputError, StoppedError
from raysim.report.page import write_report
from raysim.store.location import new_location
from raysim.store.mirror import fetch_run, mirror_to, unstored
from raysim.watching.progress import Watcher
from tests.kit.folders import write_run
from tests.kit.locations import EXPERIMENT, Ends, assert_same, names
from tests.kit.runs import quick_resume, quick_run


@pytest.fixture
def far(tmp_path: Path) -> Path:
    return tmp_path / "far away" / "run"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quick_run(EXPERIMENT, tmp_path_factory.mktemp("whole") / "run", inline=True).folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_run_leaves_at_its_uri_what_it_leaves_in_a_folder(far: Path, whole: Path) -> None:
    done = raysim.run(EXPERIMENT, far.as_uri(), inline=True)
    assert done.uri == far.as_uri()
    assert done.report.read_bytes() == (far / "report.html").read_bytes()
    for name in ("report.html", "wall-clock.json"):  # which `whole` was run without
        (far / name).unlink()
    assert_same(far, whole)


@pytest.mark.parametrize(
    "error", [pytest.param(None, id="stopped"), pytest.param(ZeroDivisionError, id="failed", marks=pytest.mark.slow)]
)
def test_a_run_goes_on_from_its_uri(far: Path, whole: Path, cache: Path, error: type[Exception] | None) -> None:
    watcher = Ends(far, 3, error)
    with pytest.raises(error or StoppedError) as ended:
        quick_run(EXPERIMENT, far.as_uri(), inline=True, watcher=watcher, stop=watcher.stop)
    told = str(ended.value) if error is None else watcher.notices[-1]
    assert told.endswith(f'continue with: raysim.resume("{far.as_uri()}", inline=True)')
    shutil.rmtree(cache)  # as on another machine
    done = quick_resume(f"{far.as_uri()}/fedbn", inline=True)
    assert_same(far, whole)
    assert done.results[0].rounds == 6


def test_what_is_there_at_any_moment_can_be_gone_on_with(far: Path, whole: Path, cache: Path) -> None:
    watcher = Ends(far, 99)
    quick_run(EXPERIMENT, far.as_uri(), inline=True, watcher=watcher)
    begun = [copy for copy in watcher.copies if list(copy.glob("fedbn/checkpoint/*"))]
    assert begun
    shutil.rmtree(cache)
    quick_resume(begun[-1].as_uri(), inline=True)
    assert_same(begun[-1], whole)


def test_a_uri_that_exists_is_refused_and_stays(far: Path) -> None:
    far.mkdir(parents=True)
    (far / "thesis.txt").write_text("all of it")
    with pytest.raises(InputError, match="exists and is not empty: must be a new folder; choose another"):
        raysim.run(EXPERIMENT, far.as_uri(), inline=True)
    assert names(far) == {"thesis.txt"}


def test_wrong_input_leaves_nothing_there(far: Path) -> None:
    wrong = {**EXPERIMENT, "evaluate": {"on": ["test"]}}
    with pytest.raises(InputError) as caught:
        raysim.run(wrong, far.as_uri(), inline=True)
    assert "cache" not in str(caught.value)
    assert not far.exists() or not names(far)


def _put_a_file_at(far: Path) -> None:
    """Put a file where the run's folder was: nothing can be stored there.

    A checkpoint on its way there makes the folder anew, at any moment.
    """
    while not far.is_file():
        shutil.rmtree(far, ignore_errors=True)
        with suppress(IsADirectoryError):
            far.touch()


@pytest.mark.slow
def test_a_store_that_does_not_answer_for_a_while(far: Path) -> None:
    class Breaks(Ends):
        def round(self, number: int, metrics: dict[str, float]) -> None:
            if number == 1:
                _put_a_file_at(far)
            elif number == 5:
                far.unlink()

    watcher = Breaks(far, 99)
    quick_run({**EXPERIMENT, "rounds": 60}, far.as_uri(), inline=True, watcher=watcher)
    assert any("tries again after the next checkpoint" in text for text in watcher.notices)


class Away(Ends):
    """Watcher that puts a file where the run's folder at the URI was, after the last round."""

    def round(self, number: int, metrics: dict[str, float]) -> None:
        if number == 6:
            self.there = self._far.rename(self._far.with_name("there"))
            _put_a_file_at(self._far)

    def back(self) -> None:
        """Put the folder at the URI back."""
        self._far.unlink()
        self.there.rename(self._far)


def left_here(far: Path, watcher: Away) -> Path:
    """Run to the end without the store, and return the folder that has all files."""
    # No checkpoint may be on its way when the store goes.
    late = {**EXPERIMENT, "checkpoint": {"every": 99}}
    with pytest.raises(RuntimeError, match="the run has ended, and its files are in") as caught:
        quick_run(late, far.as_uri(), inline=True, watcher=watcher)
    told, _, remedy = str(caught.value).partition(": store them with ")
    assert remedy == f'raysim.resume("{far.as_uri()}")'
    return Path(told.rpartition(" ")[2])


def test_a_run_that_could_not_be_stored_at_the_end_is_stored_by_a_resume(far: Path, cache: Path, whole: Path) -> None:
    watcher = Away(far, 99)
    folder = left_here(far, watcher)
    assert folder.is_relative_to(cache) and (folder / "fedbn" / "model.safetensors").is_file()
    watcher.back()
    assert not (far / "fedbn" / "model.safetensors").is_file()
    again = Ends(far, 99)
    quick_resume(far.as_uri(), inline=True, watcher=again)
    assert again.copies == [], "no round is run again"
    assert "the run continues from the copy" in again.notices[0]
    assert_same(far, whole)
    quick_resume(far.as_uri(), inline=True, watcher=(third := Ends(far, 99)))
    assert "continues from the copy" not in third.notices[0]


def test_the_only_complete_copy_of_a_run_is_never_removed(far: Path) -> None:
    watcher = Away(far, 99)
    folder = left_here(far, watcher)
    far.unlink()
    with pytest.raises(InputError, match=f'must not be lost; continue that run with raysim.resume."{folder}"'):
        raysim.run(EXPERIMENT, far.as_uri(), inline=True)
    watcher.there.rename(far)
    (far / "config.toml").write_text("another run")
    with pytest.raises(InputError, match="holds files of an earlier run there that could not be stored"):
        raysim.resume(far.as_uri(), inline=True)
    assert (folder / "fedbn" / "model.safetensors").is_file()


def test_a_mark_stays_true_while_files_are_stored(tmp_path: Path) -> None:
    """A process may be killed before it has stored all that an earlier one could not."""

    class Fails(RemoteFolder):
        def store(self, path: Path, name: str) -> None:
            marked.append(list(unstored(folder) or ()))
            if fails:
                raise OSError("away")
            super().store(path, name)

    folder, fails, marked = tmp_path / "here", [True], list[list[str]]()
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / name).write_text(name)
    upload = mirror_to(folder, Fails.of((tmp_path / "there").as_uri()), {})
    with pytest.raises(OSError, match="away"):
        upload()
    assert unstored(folder) == {}
    fails.clear()
    upload()
    assert marked == [[], [], ["a"], ["a", "b"]] and unstored(folder) is None


def test_what_names_others_is_stored_after_them(tmp_path: Path) -> None:
    class Listed(RemoteFolder):
        def store(self, path: Path, name: str) -> None:
            stored.append(name)
            super().store(path, name)

    stored: list[str] = []
    folder, remote = tmp_path / "here", RemoteFolder.of((tmp_path / "there").as_uri())
    files = [
        "a/checkpoint/round-1.safetensors",
        "a/metrics.journal",
        "a/personal/1.bin",
        "a/summary.json",
        "config.toml",
    ]
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    upload = mirror_to(folder, Listed(remote.uri, remote.system, remote.path), {})
    upload()
    assert sorted(stored) == files == sorted(remote.files())
    assert stored[-2:] == ["a/checkpoint/round-1.safetensors", "a/summary.json"]
    stored.clear()
    (folder / "a/personal/1.bin").unlink()
    (folder / "a/metrics.journal").write_text("more")
    upload()
    assert stored == ["a/metrics.journal"]
    assert sorted(remote.files()) == [name for name in files if name != "a/personal/1.bin"]


def test_reports_are_of_runs_wherever_they_are(
    far: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(far, ["fedavg"], rounds=2, every=1, targets=["held_out"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"^0$"):
        main_with(monkeypatch, "report", far.as_uri())
    assert capsys.readouterr().out == "report.html\n"
    assert Path("report.html").read_bytes() == write_report([far], tmp_path / "other.html").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "quickstart", "--inline", "--out", "nosuch://bucket/x"], "Unrecognized filesystem"),
        (["resume", "file:///nosuch/run"], "must be the folder of a run"),
        (["report", "file:///nosuch/run"], "must be the folder of a run"),
    ],
)
def test_what_cannot_be_reached_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"^2$"):
        main_with(monkeypatch, *arguments)
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("raysim: ") and told in error


def main_with(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["raysim", *arguments])
    run_command(cli, "raysim")


@dataclass(frozen=True)
class Objects(RemoteFolder):
    """Store that takes any name, as one of objects does."""

    names: tuple[str, ...] = ()

    def files(self) -> dict[str, int]:
        return dict.fromkeys(self.names, 1)

    def fetch(self, name: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


@pytest.mark.parametrize("name", ["../outside", "fedavg/../../outside", "{}/outside"])
def test_no_file_is_fetched_to_a_place_outside_of_the_folder(name: str, tmp_path: Path) -> None:
    remote, name = RemoteFolder.of(tmp_path.as_uri()), name.format(tmp_path)
    objects = Objects(remote.uri, remote.system, remote.path, ("config.toml", name))
    with pytest.raises(InputError, match=r"has an entry '.*outside': must have none outside of the folder"):
        fetch_run(objects, tmp_path / "here")
    assert list(tmp_path.iterdir()) == []


def test_files_that_loggers_remove_meanwhile_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Listed(RemoteFolder):
        def store(self, path: Path, name: str) -> None:
            (folder / "watch" / "journal").unlink(missing_ok=True)
            super().store(path, name)

    folder, remote = tmp_path / "here", RemoteFolder.of((tmp_path / "there").as_uri())
    (folder / "watch").mkdir(parents=True)
    upload = mirror_to(folder, Listed(remote.uri, remote.system, remote.path), {})
    for name in ("config.toml", "watch/journal", "watch/lock"):
        (folder / name).touch()
    is_file = Path.is_file

    def goes(path: Path) -> bool:
        there = is_file(path)
        if path.name == "lock":
            path.unlink(missing_ok=True)
        return there

    monkeypatch.setattr(Path, "is_file", goes)
    upload()
    assert set(remote.files()) == {"config.toml"}


def test_a_cache_on_a_file_system_without_locks_serves(far: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", flock)
    with new_location(far.as_uri(), Watcher()) as location:
        location.folder.mkdir()
        (location.folder / "config.toml").touch()
    assert names(far) == {"config.toml"}


def wrong_at(far: Path, watcher: Watcher) -> None:
    """A run whose input turns out to be wrong, and whose first files cannot be removed again."""
    with new_location(far.as_uri(), watcher) as location:
        location.folder.mkdir()
        (location.folder / "config.toml").touch()
        location.store()
        (location.folder / "config.toml").unlink()
        _put_a_file_at(far)
        raise InputError("wrong")


def test_a_run_that_left_nothing_is_not_offered_again(far: Path) -> None:
    watcher = Ends(far, 99)
    with pytest.raises(InputError, match="wrong"):
        wrong_at(far, watcher)
    assert "cannot be removed" in watcher.notices[-1] and "continue with" not in watcher.notices[-1]


def test_a_half_stored_run_is_named_by_its_uri(far: Path) -> None:
    far.mkdir(parents=True)
    (far / "config.toml").touch()
    with pytest.raises(InputError, match=rf"^{far.as_uri()}: must be the folder of a run with a config.toml"):
        raysim.resume(far.as_uri(), inline=True)
