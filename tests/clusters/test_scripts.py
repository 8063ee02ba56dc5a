"""The shell scripts: their syntax, and what they do with the programs that they start."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.kit.launch_files import CLUSTERS, LAUNCHERS, ROOT, SCRIPTS, loaded, name

RECORDS = '#!/bin/bash\n{{ printf "%s|" {name} "$@"; echo; }} >> "$RECORD"\n'


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that write down how they were called, and are found first; the record."""
    record, folder = tmp_path / "record", tmp_path / "bin"
    folder.mkdir()
    bodies = {
        "python": f'[[ $1 == -c ]] && exec {sys.executable} "$@"\nexit "${{FAILS:-0}}"\n',
        "scontrol": "",
        "srun": 'while [[ $1 == -* ]]; do shift; done\n"$@"\n',
        # What stands after `--` runs on the head; where it fails, other nodes would have to be ended.
        "ray": 'while (($#)) && [[ $1 != -- ]]; do shift; done\nshift\n"$@"\nexit 7\n',
    }
    for program, body in bodies.items():
        path = folder / program
        path.write_text(RECORDS.format(name=program) + body)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("RECORD", str(record))
    return record


def called(record: Path, program: str) -> list[list[str]]:
    lines = [line.split("|")[:-1] for line in record.read_text().splitlines()]
    return [line[1:] for line in lines if line[0] == program]


def bash(script: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = ["bash", str(CLUSTERS / script), *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_shell_is_sound(path: Path) -> None:
    linter = Path(sysconfig.get_path("scripts")) / "shellcheck"
    done = subprocess.run([linter, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert os.access(path, os.X_OK)


@pytest.mark.parametrize("path", LAUNCHERS, ids=name)
def test_commands_on_nodes_are_shell(path: Path) -> None:
    launcher = loaded(path)
    kinds = [launcher, *launcher.get("available_node_types", {}).values()]
    commands = [text for kind in kinds for key, texts in kind.items() if key.endswith("_commands") for text in texts]
    assert commands
    for command in commands:
        done = subprocess.run(["bash", "-n"], input=command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stderr}"


@pytest.mark.parametrize("at_uri", [False, True])
def test_a_run_begins_or_goes_on(programs: Path, tmp_path: Path, at_uri: bool) -> None:
    folder = tmp_path / "run of mine"
    out, options = folder.as_uri() if at_uri else str(folder), ["--actors", "3", "--set", "name=a b"]
    assert bash("run-or-resume.sh", out, "fedavg.toml", *options).returncode == 0
    folder.mkdir()
    (folder / "config.toml").touch()
    again = bash("run-or-resume.sh", out, "fedavg.toml", *options)
    assert again.returncode == 0 and "not with those of fedavg.toml" in again.stderr
    assert [call for call in called(programs, "python") if call[0] == "-m"] == [
        ["-m", "raysim", "run", "fedavg.toml", "--out", out, *options],
        ["-m", "raysim", "resume", out],
    ]


@pytest.mark.parametrize("script", ["run-or-resume.sh", "on-prem/start.sh", "slurm/raysim.sbatch"])
def test_what_is_missing_is_said(programs: Path, script: str) -> None:
    done = bash(script)
    assert done.returncode == 2 and done.stderr.startswith("usage: ") and not programs.exists()


def test_machines_start_by_hand(programs: Path) -> None:
    bash("on-prem/start.sh", "head")
    bash("on-prem/start.sh", "node", "192.0.2.10:6379", "--labels", "site=a")
    head, node = called(programs, "ray")
    assert head[:2] == ["start", "--head"] and {"--num-cpus=0", "--dashboard-host=127.0.0.1", "--block"} <= set(head)
    assert node[:2] == ["start", "--address=192.0.2.10:6379"] and node[-2:] == ["--labels", "site=a"]


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """What Slurm tells a job on two nodes, which finds an environment of its own."""
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "activate").touch()
    given = {"SLURM_JOB_ID": "123456", "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "8"}
    return given | {"RAYSIM_ENVIRONMENT": str(tmp_path / "venv"), "RAYSIM_HEAD": "192.0.2.10"}


def test_slurm_starts_ray_on_all_nodes(programs: Path, job: dict[str, str], tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert bash("slurm/raysim.sbatch", out, "fedavg.toml", "--set", "seed=2", **job).returncode == 0
    (ray,) = called(programs, "ray")
    assert ray[:5] == ["symmetric-run", "--address", "192.0.2.10:23456", "--min-nodes", "2"]
    assert {"--num-cpus=8", "--num-gpus=0"} <= set(ray)
    run = ["-m", "raysim", "run", "fedavg.toml", "--out", out, "--actors", "15", "--set", "seed=2"]
    assert called(programs, "python") == [run]


def test_slurm_removes_rays_files_from_all_nodes(programs: Path, job: dict[str, str]) -> None:
    with (programs.parent / "bin" / "srun").open("a") as srun:
        srun.write("exit 3\n")
    assert bash("slurm/raysim.sbatch", "out", "fedavg.toml", **job).returncode == 0
    folder = Path("/tmp/raysim-123456")
    assert called(programs, "srun")[-1] == ["--ntasks-per-node=1", "rm", "-rf", str(folder)]
    assert not folder.exists()


def test_slurm_leaves_actors_on_gpus_to_the_experiment(programs: Path, job: dict[str, str]) -> None:
    bash("slurm/raysim.sbatch", "out", "fixbn.toml", "--actors", "16", **job, SLURM_GPUS_ON_NODE="4")
    assert "--num-gpus=4" in called(programs, "ray")[0]
    assert called(programs, "python")[0][-2:] == ["--actors", "16"]


def test_slurm_learns_how_the_run_ended(programs: Path, job: dict[str, str]) -> None:
    assert bash("slurm/raysim.sbatch", "out", "fedavg.toml", **job, FAILS="2").returncode == 2


def test_slurm_queues_a_job_again_whose_time_is_over(programs: Path, job: dict[str, str]) -> None:
    slow = programs.parent / "bin" / "python"
    slow.write_text('#!/bin/bash\nkill -USR1 "$(cat "$RECORD.job")"\nsleep 1\n')
    command = ["bash", "-c", 'echo $$ > "$RECORD.job"; exec bash "$@"', "-", str(CLUSTERS / "slurm/raysim.sbatch")]
    subprocess.run([*command, "out", "fedavg.toml"], cwd=ROOT, env={**os.environ, **job}, timeout=60, check=True)
    assert called(programs, "scontrol") == [["requeue", "123456"]]
