"""The command line: what a person sees, and how it ends."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from shutil import copytree

import pytest

from algorithms.names import ALGORITHMS
from raysim.cli.commands import SECTIONS, cli
from raysim.cli.listing import LISTS, keys_of, sections
from raysim.config.algorithm import AlgorithmTable
from raysim.config.check import table_of
from raysim.config.read import recipes
from raysim.config.sampling import OortTable
from raysim.data.catalogue import DATASETS
from raysim.models.build import MODELS
from tests.kit.commands import Cli, run_raysim
from tests.kit.runs import quick_run

SMALL = [
    *("--set", "rounds=2", "--set", "partition.clients_per_domain=2", "--set", "algorithm.fraction=0.5"),
    *("--set", "model.hidden=[8]", "--set", "evaluate.every=0"),
]
FORMS = ("hf:OWNER/NAME", "synthetic:ALPHA,BETA,CLIENTS", "NAME,NAME", "shifted:NAME")


@pytest.fixture
def raysim(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command in this process."""
    return partial(run_raysim, capsys)


def test_run_shows_a_table_the_report_and_what_is_next(raysim: Cli, tmp_path: Path) -> None:
    status, out, err = raysim("run", "quickstart", "--inline", "--out", tmp_path / "run", *SMALL)
    assert status == 0
    assert "fedavg" in out and "radfed" in out and "bytes up" in out
    assert str(tmp_path / "run" / "report.html") in out and "next" in out
    assert "radfed: rounds 1 to 2" in err and (tmp_path / "run" / "report.html").exists()
    assert (tmp_path / "run" / "radfed" / "model.safetensors").exists()


def test_reports_of_several_runs(raysim: Cli, tmp_path: Path) -> None:
    quick_run("quickstart", tmp_path / "one", changes=SMALL[1::2], inline=True)
    copytree(tmp_path / "one", tmp_path / "two")
    status, out, _ = raysim("report", tmp_path / "one", tmp_path / "two", "--out", tmp_path / "both.html")
    assert status == 0 and out.strip() == str(tmp_path / "both.html")
    page = (tmp_path / "both.html").read_text()
    assert "one/fedavg" in page and "two/radfed" in page


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("algorithms", [*ALGORITHMS, "module:function"]),
        ("models", [*MODELS, "module:Class"]),
        ("datasets", [*DATASETS, "file:", "folder:", *FORMS]),
        ("recipes", list(recipes())),
    ],
)
def test_list(raysim: Cli, kind: str, names: list[str]) -> None:
    status, out, _ = raysim("list", kind)
    lines = out.splitlines()
    assert status == 0 and [line.split()[0].split("PATH")[0] for line in lines] == names
    assert all(len(line.split()) > 3 for line in lines)


def test_export_feeds_the_partitioner(raysim: Cli, tmp_path: Path) -> None:
    status, out, _ = raysim("export", "digits", tmp_path / "digits.parquet")
    assert status == 0 and out.strip() == str(tmp_path / "digits.parquet")
    from partitioning.cli.commands import main

    made = ["make", str(tmp_path / "digits.parquet"), "--out", str(tmp_path / "p"), "--scheme", "iid", "--clients", "5"]
    with pytest.raises(SystemExit) as done:
        main(made)
    assert done.value.code == 0
    raw = ["--set", f"data.population={tmp_path / 'p'}"]
    (tmp_path / "x.toml").write_text("rounds = 1\n[model]\nhidden = [8]\n")
    assert raysim("run", tmp_path / "x.toml", "--inline", "--out", tmp_path / "run", *raw)[0] == 0


@pytest.mark.parametrize(
    ("kind", "key"),
    [("algorithms", "label"), ("losses", None), ("models", "renorm_r_max = 3.0"), ("schemes", None), ("uplink", None)],
)
def test_list_keys(raysim: Cli, kind: str, key: str | None) -> None:
    names = [name for name in LISTS[kind]() if ":" not in name]
    for name in names:
        # With docstrings that lack a parameter this fails.
        keys = dict(keys_of(kind, name))
        assert key is None or key in keys
        assert all(said and "\n" not in said for said in keys.values())
    status, out, err = raysim("list", kind, names[-1])
    assert status == 0 and out and not err


def test_listed_keys_are_keys_of_the_file() -> None:
    keys = {key.partition(" ")[0] for key, _ in keys_of("algorithms", "fedavg")}
    assert {"over", "deadline", "late", "oort.alpha"} <= keys
    assert keys <= {
        *table_of(ALGORITHMS["fedavg"], ("participation", "local", "server"), AlgorithmTable).model_fields,
        *(f"oort.{key}" for key in OortTable.model_fields),
    }


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("fedbuff", {"active", "sampling", "candidates", "over", "deadline", "late", "oort"}),
        ("fedtan", {"candidates", "over", "deadline", "late", "oort"}),
        ("centralized", {"fraction", "cohort", "active", "sampling", "candidates", "over", "deadline", "late", "oort"}),
        ("radfed", set()),
        ("radfedi", {"sampling", "candidates", "oort"}),
        ("scaffold", {"active", "late"}),
        ("fedavg", set()),
    ],
)
def test_an_algorithm_lists_only_the_keys_that_it_takes(name: str, refused: set[str]) -> None:
    common = {"fraction", "cohort", "active", "sampling", "candidates", "over", "deadline", "late", "oort"}
    keys = {re.split(r"[ .]", key)[0] for key, _ in keys_of("algorithms", name)}
    assert common - keys == refused


def test_list_keys_of_one(raysim: Cli) -> None:
    status, out, _ = raysim("list", "algorithms", "fedprox")
    assert status == 0 and any(line.startswith("proximal = 0.01") for line in out.splitlines())


WRONG: list[tuple[list[str], str]] = [
    (["run", "quikstart"], "did you mean 'quickstart'"),
    (["run", "nosuch.toml"], "nosuch.toml"),
    (["run", "runs/first"], "experiment file 'runs/first': must be a file that exists; check the path"),
    (["study", "runs/first"], "study 'runs/first': must be a file, or the folder of a study, that exists; check the"),
    (["resume", "first", "--set", "rounds=9"], "must be left out, because a run resumes with the keys that it began"),
    (["reproduce", "fedbn-quick", "--full"], "must run in its own setting; leave --full out"),
    (["run", "quickstart", "--set", "local.epoch=3"], "did you mean 'local.epochs'"),
    (
        ["run", "radfed-small", "--set", "partition.label_alpha=-1"],
        "raysim: partition.label_alpha = -1: should be greater than 0",
    ),
    (["run", "radfed-small", "--set", "partition.clients=1798"], "1798"),
    (["run", "quickstart", "--set", "model.name=cnn", "--set", "model.hidden=[3]"], "model.hidden"),
    (["run", "quickstart", "--actors", "many"], "--actors"),
    (["run", "quickstart", "--actors", "2"], "--inline with --actors"),
    (["run", "quickstart", "--set", "fleet.gpus_per_actor=0.5"], "fleet.gpus_per_actor = 0.5 with --inline: must be 0"),
    (["run", "quickstart", "--set", "fleet.gpus_per_actor=auto"], 'fleet.gpus_per_actor = "auto" with --inline'),
    (["run", "radfed-small", "--set", "partition.scheme=iid"], "of scheme iid"),
    (["run", "radfed-small", "--set", "algorithm.aggregate_every=3"], "'algorithm.radfed.aggregate_every'"),
    (["run", "radfed-small", "--set", "partition.test_clients=1.0"], "test_clients = 1.0"),
    (["run", "quickstart", "--set", "model.hidden=[1000000000]"], "must fit the memory"),
    (["run", "quickstart", "--set", f"model.hidden=[{2**63 - 1}]"], "less than or equal to 1000000000"),
    (
        ["run", "quickstart", "--set", "data.image_size=100000"],
        "data.image_size = 100000: should be less than or equal to 4096",
    ),
    (["run", "quickstart", "--set", "fleet.cpus_per_actor=1000000000"], "fleet.cpus_per_actor = 1000000000"),
    (
        ["run", "quickstart", "--set", "local.lr=1e308"],
        "local.lr = 1e+308: should be less than or equal to 1000000000000",
    ),
    (["run", "quickstart", "--set", "model.train=2020-02-29"], "a date or time"),
    (["run", "quickstart", "--set", "model.name={ a = 1 }"], "unknown model.name = {'a': 1}"),
    (["submit", "quickstart", "--address", "10.0.0.1:6379"], "must be the URL of the dashboard of a Ray cluster"),
    (["submit", "quickstart", "--address", "http://127.0.0.1:1"], "and nothing listens there"),
    (
        ["submit", "quickstart", "--address", "http://127.0.0.1:1", "--set", "local.epoch=3"],
        "did you mean 'local.epochs'",
    ),
    (["submit", "quickstart", "--address", "http://127.0.0.1:1", "--actors", "0"], "--actors = 0"),
    (["submit", "quickstart", "--address", "http://127.0.0.1:1", "--stage", "here"], "must be an absolute path"),
    (["submit", "quickstart"], "--address"),
    (["follow", "job", "--address", "10.0.0.1:6379"], "must be the URL of the dashboard of a Ray cluster"),
    (["run"], "FILE_OR_RECIPE"),
    (["rum"], "rum"),
    (["list", "things"], "things"),
    (["list", "algorithms", "fedpox"], "did you mean 'fedprox'"),
    (["list", "recipes", "quickstart"], "only algorithms, losses, models, schemes and uplink have keys"),
    (["report", "nosuch"], "nosuch"),
    (["export", "nosuch", "x.parquet"], "nosuch"),
    (["export", "synthetic:1,1,4", "x.parquet", "--seed", "-1"], "--seed = -1: must be at least 0"),
]


@pytest.mark.parametrize("command", [("submit", "quickstart"), ("follow", "raysim-job")])
def test_a_job_without_an_address(raysim: Cli, command: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    status, _, err = raysim(*command)
    assert status == 2 and err.startswith("raysim: --address: must be given") and "http://127.0.0.1:8265" in err


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_input_is_one_line_and_leaves_nothing(
    raysim: Cli, arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [*arguments, "--inline", "--out", "run"] if arguments[:1] == ["run"] else arguments
    status, out, err = raysim(*given)
    last = err.splitlines()[-1]
    assert status == 2 and "" not in err.splitlines()
    assert last.startswith("raysim: ") and message in last
    assert "Traceback" not in err and out == ""
    assert list(tmp_path.iterdir()) == []


def test_no_command_shows_the_help(raysim: Cli) -> None:
    status, out, err = raysim()
    assert status == 0 and err == "" and all(f"{heading}:" in out for heading in SECTIONS)
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(cli.commands)


def test_a_run_that_diverges_ends_with_a_line_and_its_report(raysim: Cli, tmp_path: Path) -> None:
    run = ("run", "quickstart", "--inline", *SMALL, "--set", "local.lr=1e12")
    status, _, err = raysim(*run, "--out", tmp_path / "run")
    assert status == 1 and "Traceback" not in err
    assert err.splitlines()[-1].startswith("raysim: fedavg: client ") and "is not finite" in err
    assert (tmp_path / "run" / "report.html").exists()
    status, _, err = raysim(*run, "--out", tmp_path / "left", "--set", "local.nonfinite=leave-out")
    assert status == 0
    assert "notice: fedavg: client " in err and "notice: radfed: client " in err


def test_own_code_that_exits_does_not_choose_the_status(raysim: Cli, tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit('no weights here')\n")
    (tmp_path / "own.toml").write_text("[data]\ndataset = 'digits'\n[model]\nname = 'leaves:Net'\n")
    status, _, err = raysim("run", tmp_path / "own.toml", "--inline", "--out", tmp_path / "run")
    assert status == 2 and "(SystemExit: no weights here)" in err and "Traceback" not in err


def test_a_module_run_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "raysim", "rum"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("raysim: ") and done.stderr.count("\n") == 1


def test_a_terminal_shows_algorithms_by_family(raysim: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    status, out, _ = raysim("list", "algorithms")
    assert status == 0 and all(heading in out for heading in sections("algorithms"))


def test_the_line_on_a_reproduction_is_a_sentence() -> None:
    cut = [line for line in LISTS["reproductions"]().values() if not line.removesuffix(" [--full alone]").endswith(".")]
    assert cut == []


def test_each_algorithm_and_reproduction_has_one_heading() -> None:
    for kind in ("algorithms", "reproductions", "models"):
        names = [name for own in sections(kind).values() for name in own]
        assert sorted(names) == sorted(LISTS[kind]()), kind
