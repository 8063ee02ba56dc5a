"""Populations that a URI names: fetched once, whole, checked, and by one process of several."""

import re
import shutil
import threading
from pathlib import Path

import pytest

import partitioning
from partitioning import InputError, Population
from partitioning.cli.commands import main
from partitioning.store.fetching import copy_to_cache
from partitioning.store.manifest import MANIFEST
from partitioning.store.remote import RemoteFolder, is_uri
from partitioning.store.writing import write_folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def far(tmp_path, table):
    """A population where only a URI leads, its name one that a URI must escape."""
    made = partitioning.make(table, tmp_path / "far away" / "p", scheme="iid", clients=4, test=table.slice(0, 20))
    return made.path.as_uri()


def there(uri: str) -> Path:
    return Path(RemoteFolder.of(uri).path)


def test_only_uris_are_fetched():
    assert all(is_uri(name) for name in ("s3://bucket/x", "gs://bucket", "file:///x"))
    assert not any(is_uri(name) for name in ("x", "/x", "./x", "C:/x", "file:x", Path("s3://bucket"), "://x"))


def test_a_population_is_fetched_once(far, cache):
    told = []
    folder = partitioning.fetch(far, told=lambda *seen: told.append(seen))
    population = Population.open(folder)
    assert folder == cache / "populations" / population.digest
    assert population.digest == Population.open(there(far)).digest
    assert partitioning.verify(folder) == []
    assert told[-1] == (told[-1][1],) * 2 and told[-1][1] > 0
    # Without its files it could not be fetched again.
    for path in there(far).iterdir():
        if path.name != MANIFEST:
            path.unlink()
    assert partitioning.fetch(far, told=lambda *seen: pytest.fail("it was copied again")) == folder


def test_what_is_damaged_in_the_cache_is_fetched_again(far):
    folder = partitioning.fetch(far)
    (folder / "shard-00000.arrow").write_bytes(b"torn")
    assert partitioning.fetch(far) == folder
    assert partitioning.verify(folder) == []


def test_the_draft_of_a_killed_process_goes(far, cache):
    with write_folder(cache / "populations" / Population.open(there(far)).digest) as killed:
        pass
    killed.mkdir()
    folder = partitioning.fetch(far)
    assert [path for path in folder.parent.iterdir() if path.suffix != ".lock"] == [folder]


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        pytest.param(lambda path: path.unlink(), r"has no shard-00000\.arrow", id="missing"),
        pytest.param(lambda path: path.write_bytes(b"x" * path.stat().st_size), "its sha256 is not", id="changed"),
    ],
)
def test_a_damaged_file_leaves_nothing_behind(far, cache, harm, told):
    harm(there(far) / "shard-00000.arrow")
    with pytest.raises(InputError, match=told):
        partitioning.fetch(far)
    assert not [path for path in (cache / "populations").iterdir() if path.suffix != ".lock"]


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("file:///no/such/place", r"file:///no/such/place has no manifest\.json: correct the address"),
        ("ftp://host/x", "ftp://host/x cannot be read .*Unrecognized filesystem"),
        (
            "s3://me:secret@bucket/x?region=here&endpoint_override=127.0.0.1:1&scheme=http",
            "Could not connect to server",
        ),
        ("s3://bucket/x?colour=red", "Unexpected query parameter in S3 URI: 'colour'"),
    ],
)
def test_what_cannot_be_reached_is_told_in_a_line(capsys, uri, told):
    with pytest.raises(SystemExit, match=r"^2$"):
        main(["inspect", uri])
    error = capsys.readouterr().err
    assert error.startswith("partitioning: ") and error.count("\n") == 1
    assert re.search(told, error) and "secret" not in error


def test_one_of_several_at_once_copies(far):
    folder, opened = there(far), []

    def chunks(name):
        opened.append(name)
        yield (folder / name).read_bytes()

    content, found = (folder / MANIFEST).read_bytes(), []
    threads = [threading.Thread(target=lambda: found.append(copy_to_cache(content, chunks, far))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1 and len(found) == 4
    assert sorted(opened) == sorted(path.name for path in folder.iterdir() if path.name != MANIFEST)


def test_the_command_line_takes_uris(far, tmp_path, capsys):
    for arguments in (["verify", far], ["inspect", far], ["plot", far, "--out", str(tmp_path / "p.png")]):
        with pytest.raises(SystemExit, match=r"^0$"):
            main(arguments)
        assert far in capsys.readouterr().out.replace("\n", "")


def test_a_remote_folder_is_listed_read_and_written(tmp_path):
    remote = RemoteFolder.of((tmp_path / "new").as_uri())
    assert remote.files() == {}
    (tmp_path / "x").write_bytes(b"12345")
    remote.store(tmp_path / "x", "deep/in/x")
    remote.store(tmp_path / "x", "y")
    assert remote.files() == {"deep/in/x": 5, "y": 5}
    assert (remote.read("y"), remote.name, remote.parent.files()["new/y"]) == (b"12345", "new", 5)
    remote.fetch("deep/in/x", tmp_path / "back" / "x")
    assert (tmp_path / "back" / "x").read_bytes() == b"12345"
    remote.remove("y")
    assert list(remote.files()) == ["deep/in/x"]
    shutil.rmtree(tmp_path / "new")
    with pytest.raises(InputError, match=r"has no deep/in/x: correct the address"):
        remote.read("deep/in/x")
