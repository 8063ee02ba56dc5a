"""Relative paths that another library would take for an address: every command reads and writes below them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tomli_w

from partitioning.cli.commands import main as partitioning_main
from partitioning.cli.exit_status import run_command
from raysim.cli.commands import cli


def ended(*words: str) -> int:
    program, *arguments = words
    with pytest.raises(SystemExit) as end:
        run_command(cli, program, arguments) if program == "raysim" else partitioning_main(arguments)
    return int(end.value.code or 0)


@pytest.mark.parametrize("name", ["s3:x", "lr:x=0.1"])
def test_a_folder_with_a_colon_is_a_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (here := Path(name)).mkdir()
    with (here / "table.parquet").open("wb") as file:
        pq.write_table(pa.table({"x": [number / 40 for number in range(40)], "label": [0, 1] * 20}), file)
    table = {
        "rounds": 1,
        "data": {"dataset": "file:table.parquet", "root": name},
        "partition": {"clients": 4, "validation_clients": 1, "test_clients": 1},
        "model": {"name": "logistic"},
        "algorithm": [{"name": "fedavg"}],
    }
    (here / "one.toml").write_text(tomli_w.dumps(table))
    (here / "study.toml").write_text(tomli_w.dumps({**table, "study": {"seeds": [0, 1]}}))
    commands = [
        f"partitioning make {name}/table.parquet --out {name}/made --scheme iid --clients 3 --standardise",
        f"partitioning inspect {name}/made",
        f"partitioning verify {name}/made",
        f"partitioning plot {name}/made --out {name}/picture.svg",
        f"raysim export digits {name}/digits.parquet",
        f"raysim devices make --clients 4 --out {name}/devices.parquet",
        f"raysim run {name}/one.toml --inline --out {name}/run",
        f"raysim run {name}/one.toml --inline --out {name}/timed --set devices.table={name}/devices.parquet",
        f"raysim resume {name}/run --inline",
        f"raysim report {name}/run {name}/timed --out {name}/both.html",
        f"raysim study {name}/study.toml --inline --out {name}/study",
        f"raysim report {name}/study",
    ]
    assert [command for command in commands if ended(*command.split())] == []
