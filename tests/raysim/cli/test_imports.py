"""Modules that a command loads, and modules that it must not load, seen from a process of its own."""

import subprocess
import sys
from pathlib import Path

HEAVY = {"torch", "ray", "numpy", "pyarrow", "pandas", "matplotlib", "sklearn", "scipy", "cvxpy", "pydantic"}
READING = {"numpy", "pyarrow", "pydantic"}
UNUSED = {"ray", "sklearn", "cvxpy", "torchvision", "datasets", "mlflow", "wandb", "tensorboard"}
"""Packages that a run on digits has no use for. pyarrow imports pandas where it is installed."""
COMPILER = "torch._dynamo"


def run(module: str, *commands: list[object], status: int = 0) -> tuple[list[str], set[str]]:
    """Return what commands print, one after the other in one process, and the modules in `sys.modules` then."""
    code = (
        f"import sys\nfrom {module} import main\nends = []\n"
        f"for command in {[list(map(str, each)) for each in commands]!r}:\n"
        "    sys.argv = ['command', *command]\n"
        "    try: ends.append(main())\n"
        "    except SystemExit as end: ends.append(end.code)\n"
        "print('\\n' + repr([end or 0 for end in ends]) + '\\n' + ' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    # Libraries speak of leaks at the end of a program.
    assert done.returncode == status and "leak" not in done.stderr, done.stderr
    *printed, ends, modules = done.stdout.splitlines()
    assert ends == repr([status] * len(commands)), done.stderr
    return printed, set(modules.split())


def loaded(module: str, *commands: list[object], status: int = 0) -> set[str]:
    return run(module, *commands, status=status)[1]


def test_help_loads_nothing_that_takes_seconds() -> None:
    commands: list[list[object]] = [["--help"], ["run", "--help"], ["resume", "--help"], ["study", "--help"]]
    assert not loaded("raysim.cli.commands", *commands) & HEAVY


def test_lists_are_printed_without_torch() -> None:
    printed, packages = run("raysim.cli.commands", ["list", "keys"], ["list", "algorithms"])
    assert len(printed) > 300 and not packages & {"torch", "ray", "matplotlib", "sklearn", "pyarrow"}
    for table in ("local", "privacy", "uplink", "downlink", "attack", "devices", "study"):
        assert any(line.startswith(f"{table}.") for line in printed)


def test_a_file_that_cannot_be_read_is_refused_before_torch_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("[data\n")
    files = [tmp_path / "nosuch.toml", "quikstart", tmp_path / "broken.toml"]
    assert not loaded("raysim.cli.commands", *(["run", file] for file in files), status=2) & (HEAVY - READING)


def test_wrong_input_is_refused_before_torch_is_loaded() -> None:
    commands: list[list[object]] = [
        ["run", "quickstart", "--set", "lr=0.1"],
        ["run", "quickstart", "--set", "data.shifts=[]", "--set", "data.dataset=file:nosuch.parquet"],
        ["run", "quickstart", "--address", "nowhere"],
        ["run", "quickstart", "--actors", "0"],
        ["run", "quickstart", "--inline", "--out", Path(__file__).parent],
        ["study", "radfed-study-small", "--set", "local.rate=0.1"],
    ]
    assert not loaded("raysim.cli.commands", *commands, status=2) & {"torch", "ray", "matplotlib", "sklearn"}


def test_an_experiment_of_built_in_parts_is_read_without_torch() -> None:
    """A wrong key is refused at once only if nothing on the way to the checks imports torch at its top."""
    code = (
        "import sys\nfrom raysim.config.experiment import Experiment\nfrom raysim.config.read import read\n"
        "for name in ('quickstart', 'radfed-small'): Experiment.of(read(name))\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    packages = {module.partition(".")[0] for module in done.stdout.split()}
    assert not packages & {"torch", "ray", "scipy", "sklearn", "matplotlib", "rich", "pyarrow"}


def test_help_of_the_partitioner_loads_no_arrays() -> None:
    assert not loaded("partitioning.cli.commands", ["--help"]) & HEAVY


def test_a_run_in_this_process_loads_only_what_it_needs_and_ends_in_silence(tmp_path: Path) -> None:
    tables = '[data]\ndataset = "digits"\n[partition]\nclients = 2\n[local]\noptimizer = "adamw"\n'
    tables += 'execution = "vectorised"\n'
    (tmp_path / "small.toml").write_text(f"rounds = 1\n{tables}[model]\nhidden = [8]\n")
    packages = loaded("raysim.cli.commands", ["run", tmp_path / "small.toml", "--inline", "--out", tmp_path / "run"])
    assert not packages & {*UNUSED, COMPILER}
    assert {"torch", "matplotlib"} <= packages
