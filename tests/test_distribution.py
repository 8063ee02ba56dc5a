"""The distribution: its metadata, namesakes of its packages, other systems, and its wheel in a bare environment."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from raysim.common.distribution import VERSION

ROOT = Path(__file__).parent.parent

ELSEWHERE = """
import sys, os
import click, numpy, pyarrow.parquet, pyarrow.csv, rich.console, scipy.sparse, threadpoolctl
from pathlib import Path
# Windows has none of these.
sys.modules["fcntl"] = None
for name in ("sysconf", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC"):
    delattr(os, name)
sys.platform = "win32"
from partitioning.common import bounds
bounds._field = lambda path, name: int(Path("nowhere").read_text())
from partitioning.cli.commands import main
for command in sys.argv[1:]:
    try:
        main(command.split())
    except SystemExit as end:
        assert not end.code, command
"""


@pytest.mark.parametrize("name", ["algorithms", "partitioning"])
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_namesake_of_a_package_is_named_in_one_line(name: str, kind: str, tmp_path: Path) -> None:
    namesake = tmp_path / name / "__init__.py" if kind == "folder" else tmp_path / f"{name}.py"
    namesake.parent.mkdir(exist_ok=True)
    namesake.touch()
    done = subprocess.run(
        [sys.executable, "-m", "raysim", "list", "recipes"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"raysim: {tmp_path / name}") and "rename it" in done.stderr


def test_packages_in_folders_of_their_own_are_no_namesakes(tmp_path: Path) -> None:
    """A Ray job unpacks each package into a folder of its own."""
    packages = ("raysim", "algorithms", "partitioning")
    for name in packages:
        shutil.copytree(ROOT / name, tmp_path / f"{name}-unpacked" / name)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(tmp_path / f"{name}-unpacked") for name in packages)}
    command = [sys.executable, "-m", "raysim", "list", "recipes"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_partitioner_runs_without_what_windows_lacks(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("x,label\n" + "".join(f"{i},{i % 3}\n" for i in range(60)))
    commands = ["make table.csv --out made --scheme dirichlet --clients 4", "verify made", "inspect made"]
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *commands], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and (tmp_path / "made" / "manifest.json").is_file(), done.stderr


def test_no_text_tells_to_install_raysim_from_the_index() -> None:
    """The index has another project under the name raysim."""
    paths = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    paths += [
        path
        for package in ("raysim", "algorithms", "partitioning", "clusters")
        for path in ROOT.glob(f"{package}/**/*")
    ]
    for path in paths:
        if path.is_file() and path.suffix in (".py", ".md", ".toml", ".yaml", ".sh", ".j2"):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"pip install .?raysim|raysim(-fl)?\[", text), path


@pytest.mark.slow
def test_the_wheel_runs_the_quickstart_in_a_bare_environment(tmp_path: Path) -> None:
    """With pip, which knows nothing of uv; it takes minutes, and needs the package index."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    uv = shutil.which("uv") or pytest.skip("needs uv")
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", tmp_path, ROOT], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"raysim_fl-{VERSION}-py3-none-any.whl"
    (tmp_path / "tested.txt").write_text("\n".join(project["tool"]["uv"]["constraint-dependencies"]))
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "bare"], check=True)
    there = tmp_path / "bare" / "bin"
    pip = [there / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", tmp_path / "tested.txt", wheel], check=True)
    run_quickstart(there, tmp_path, "--inline")


@pytest.mark.slow
def test_the_lowest_declared_versions_run_the_quickstart(tmp_path: Path) -> None:
    """With client actors, because Ray's bound is the one that moves; it takes minutes, and needs the package index."""
    uv = shutil.which("uv") or pytest.skip("needs uv")
    there = tmp_path / "lowest" / "bin"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, there.parent], check=True)
    # Without uv's settings, which pin the tested versions.
    pip = [uv, "pip", "install", "--quiet", "--no-config", "--python", there / "python"]
    subprocess.run([*pip, "--resolution", "lowest-direct", ROOT], cwd=tmp_path, check=True)
    run_quickstart(there, tmp_path, "--actors", "2")


def run_quickstart(there: Path, folder: Path, *options: str) -> None:
    """Run the commands of an environment, the quickstart among them."""
    bare = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "UV_", "VIRTUAL_ENV"))}
    small = [*options, "--out", "run", "--set", "rounds=5"]
    for command in (["raysim", "--version"], ["raysim", "run", "quickstart", *small], ["partitioning", "--help"]):
        done = subprocess.run(
            [there / command[0], *command[1:]], cwd=folder, env=bare, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr and " lacks " not in done.stderr
    assert (folder / "run" / "report.html").is_file()
