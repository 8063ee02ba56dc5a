"""Relative paths that another library would take for an address: every command reads and writes below them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tomli_w

from partitioning.cli.commands import main as partitioning_main
from partitioning.cli.exit_status import run_command
from raysim.cli.commands import cli
from raysim.cli.early import check_run

pytestmark = pytest.mark.usefixtures("drawn")


def ended(*words: str) -> int:
    program, *arguments = words
    with pytest.raises(SystemExit) as end:
        run_command(cli, program, arguments) if program == "raysim" else partitioning_main(arguments)
    return int(end.value.code or 0)


ONE, OTHER = "s3:x", "lr:x=0.1"
"""Folders that look like addresses: of a scheme that libraries know, and of one that they do not."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both folders in the current one, with a table each."""
    monkeypatch.chdir(tmp_path)
    for name in (ONE, OTHER):
        Path(name).mkdir()
        with (tmp_path / name / "table.parquet").open("wb") as file:
            pq.write_table(pa.table({"x": [number / 40 for number in range(40)], "label": [0, 1] * 20}), file)
    return tmp_path


@pytest.mark.parametrize("name", [ONE, OTHER])
def test_a_folder_with_a_colon_is_a_folder(name: str, here: Path) -> None:
    commands = [
        f"partitioning make {name}/table.parquet --out {name}/made --scheme iid --clients 3 --standardise",
        f"partitioning inspect {name}/made",
        f"partitioning verify {name}/made",
        f"partitioning plot {name}/made --out {name}/picture.svg",
        f"raysim export digits {name}/digits.parquet",
        f"raysim devices make --clients 4 --out {name}/devices.parquet",
    ]
    assert [command for command in commands if ended(*command.split())] == []


def test_a_table_beside_the_experiment_file_is_found_by_the_remedy(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "sub").mkdir()
    (here / ONE / "table.parquet").rename(here / "sub" / "table.parquet")
    (here / "sub" / "first.toml").write_text('[data]\ndataset = "file:table.parquet"\n')
    assert ended("raysim", "run", "sub/first.toml") == 2
    said = capsys.readouterr().err
    assert (
        f"{here / 'table.parquet'} is missing; a file of that name lies beside the experiment file: add --set" in said
    )
    check_run("sub/first.toml", [said.split()[-1]], None, None)
    (here / "sub" / "table.parquet").unlink()
    assert ended("raysim", "run", "sub/first.toml") == 2 and "missing; check the path" in capsys.readouterr().err


def test_runs_read_such_folders_and_are_written_to_them(here: Path) -> None:
    table = {
        "rounds": 1,
        "data": {"dataset": "file:table.parquet", "root": ONE},
        "partition": {"clients": 4, "validation_clients": 1, "test_clients": 1},
        "model": {"name": "logistic"},
        "algorithm": [{"name": "fedavg"}],
    }
    (here / OTHER / "one.toml").write_text(tomli_w.dumps({**table, "data": {**table["data"], "root": OTHER}}))
    (here / ONE / "study.toml").write_text(tomli_w.dumps({**table, "study": {"seeds": [0, 1]}}))
    commands = [
        f"raysim devices make --clients 4 --out {ONE}/devices.parquet",
        f"raysim run {OTHER}/one.toml --inline --out {ONE}/run",
        f"raysim run {OTHER}/one.toml --inline --out {OTHER}/timed --set devices.table={ONE}/devices.parquet",
        f"raysim resume {ONE}/run --inline",
        f"raysim report {ONE}/run {OTHER}/timed --out {OTHER}/both.html",
        f"raysim study {ONE}/study.toml --inline --out {OTHER}/study",
        f"raysim report {OTHER}/study",
    ]
    assert [command for command in commands if ended(*command.split())] == []
