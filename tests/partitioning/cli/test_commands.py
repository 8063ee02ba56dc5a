import errno
import json
import os
import subprocess
import sys

import click
import pyarrow.parquet as pq
import pytest

from partitioning import Population
from partitioning.cli.commands import main
from partitioning.cli.exit_status import run_command
from partitioning.store.splits import Splits
from tests.kit.tables import WRITE


@pytest.fixture
def source(tmp_path, table):
    path = tmp_path / "zoo.parquet"
    pq.write_table(table, path)
    return path


@pytest.fixture
def call(capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return caught.value.code, captured.out, captured.err

    return run


def test_make_inspect_plot_verify(call, source, tmp_path):
    out = tmp_path / "p"
    status, said, _ = call(
        *("make", source, "--out", out, "--scheme", "dirichlet-qp", "--clients", 6, "--test", source),
        *("--label-alpha", 0.1, "--size-alpha", 2, "--min-size", 2, "--test-clients", 0.4, "--seed", 3),
        *("--local-test", 0.5),
    )
    assert status == 0
    assert "6 clients with 200 samples of 3 classes" in said
    assert f"partitioning inspect {out}" in said
    status, said, _ = call("inspect", out, "--json")
    facts = json.loads(said)
    assert status == 0
    assert (facts["dataset"], facts["test_clients"], facts["min_size"], facts["seed"]) == ("zoo.parquet", 2, 2, 3)
    assert facts["global_test_samples"] == 200
    status, said, _ = call("inspect", out)
    assert status == 0
    assert "C-score" in said
    status, _, _ = call("plot", out, "--out", tmp_path / "p.png")
    assert status == 0
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    status, said, _ = call("verify", out)
    assert status == 0
    assert "is right" in said


def test_make_takes_folds_features_and_test_sets(call, source, tmp_path):
    odd = tmp_path / "a=b.parquet"
    odd.write_bytes(source.read_bytes())
    status, _, complaint = call(
        *("make", source, "--out", tmp_path / "p", "--scheme=iid", "--clients=7", "--folds=3", "--stratify"),
        *("--standardise", "--index-only", "--feature=kind", "--feature=row", "--buckets=3"),
        *("--test", f"photo={source}", "--test", odd),
    )
    assert (status, complaint) == (0, "")
    made = Population.open(tmp_path / "p", fold=2)
    assert made.manifest.splits == Splits(0, 0, 3, True)
    assert [(feature.name, feature.size) for feature in made.manifest.features] == [("kind", 3), ("row", 3)]
    assert (made.tests, made.test_slices, made.slices_of("photo")) == (("photo", None), (200,), (200,))
    assert made.manifest.shards == () and made.moments is not None
    assert call("verify", tmp_path / "p")[0] == 0


def test_make_holds_clients_out_for_validation(call, source, tmp_path):
    options = ("--test-clients=2", "--validation-clients=0.3", "--stratify")
    assert call("make", source, "--out", tmp_path / "p", "--scheme=iid", "--clients=10", *options)[0] == 0
    made = Population.open(tmp_path / "p")
    assert [len(made.train_clients), len(made.validation_clients), len(made.test_clients)] == [5, 3, 2]


@pytest.mark.parametrize("name", WRITE)
def test_every_kind_is_a_source_and_a_test_set(call, tmp_path, name):
    WRITE[name](tmp_path / name)
    out, source = tmp_path / "p", tmp_path / name
    options = ("--scheme=iid", "--clients=3", "--memory=10KB")
    status, said, _ = call("make", source, "--out", out, "--test", source, *options)
    assert status == 0
    assert f"{out}: 3 clients with " in said
    status, said, _ = call("inspect", out, "--json")
    assert json.loads(said)["dataset"] == name
    assert json.loads(said)["global_test_samples"] == json.loads(said)["samples"]
    assert call("verify", out)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clients", "x"], "'x' is not a valid integer"),
        (["--clients", "201"], "need 201 samples and there are 200"),
        (["--scheme", "dirichlet-pq"], "did you mean 'dirichlet-qp'"),
        (["--label-alpha", "-1"], "label_alpha is -1.0"),
        (["--label", "lable"], "did you mean 'label'"),
        (["--test-clients", "1.5"], "test_clients is 1.5"),
        (["--test", "missing.parquet"], "missing.parquet cannot be opened"),
        (["--test", "zoo=missing.parquet"], "missing.parquet cannot be opened"),
        (["--test", "a=x", "--test", "a=y"], "gives the test set 'a' twice"),
        (["--test", "x", "--test", "y"], "gives the global test set twice"),
        (["--test", ""], "--test = '': must be a path, and is empty"),
        (["--test", "x" * 256], "must be a path, and has a name of 256 bytes"),
        (["--folds", "2"], "folds is 2: give 3 or more"),
        (["--folds", "3", "--test-clients", "1"], "folds is 3 beside held-out clients"),
        (["--validation-clients", "4"], "leave at least one client for training"),
        (["--stratify"], "no client is held out"),
        (["--feature", "lable"], "did you mean 'label'"),
        (["--buckets", "1"], "buckets is 1"),
        (["--memory", "much"], "--memory is 'much': give a number above 0 and one of"),
        (["--labl", "x"], "No such option"),
        (["--out", "."], "exists already"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(call, source, tmp_path, arguments, message):
    options = ["--scheme", "dirichlet-qp", "--clients", "4", "--out", tmp_path / "p", *arguments]
    status, said, complaint = call("make", source, *options)
    assert (status, said) == (2, "")
    assert complaint.startswith("partitioning: ")
    assert message in complaint
    assert complaint.count("\n") == 1
    assert list(tmp_path.iterdir()) == [source]


def test_a_table_of_counts_whose_path_is_none_is_refused(call, source, tmp_path):
    given = ("--scheme", "counts", "--out", tmp_path / "p", "--table", "x" * 256)
    status, said, complaint = call("make", source, *given)
    assert (status, said) == (2, "") and "must be a path, and has a name of 256 bytes" in complaint


def test_the_path_after_a_domain_is_judged_alone(call, source, tmp_path):
    given = ("--scheme", "iid", "--clients", "2", "--out", tmp_path / "p", "--test")
    for length, message in ((204, "cannot be opened"), (256, "must be a path, and has a name of 256 bytes")):
        assert message in call("make", source, *given, f"{'d' * 60}={'x' * (length - 8)}.parquet")[2]


def test_a_test_set_with_a_name_twice_is_refused(call, source, tmp_path):
    twice = tmp_path / "twice.csv"
    twice.write_text("label,x,x\n1,2,3\n")
    options = ("--out", tmp_path / "p", "--scheme=iid", "--clients=2", "--test", twice)
    refused = (2, "", "partitioning: twice.csv has several columns named 'x': rename them\n")
    assert call("make", source, *options) == refused


def test_wrong_folders_and_commands(call, source, tmp_path):
    call("make", source, "--scheme=iid", "--clients=2", "--out", tmp_path / "p")
    for arguments in (("verify",), ("verfy", tmp_path)):
        status, _, complaint = call(*arguments)
        assert status == 2
        assert complaint.count("\n") == 1
    shard = tmp_path / "p" / "shard-00000.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    status, said, complaint = call("verify", tmp_path / "p")
    assert status == 2
    assert complaint.count("\n") == 1
    assert "sha256" in complaint
    assert len(said.splitlines()) == 2


def test_the_package_is_a_program_whose_help_imports_nothing_heavy():
    command = [sys.executable, "-W", "error", "-X", "importtime", "-m", "partitioning", "make", "--help"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "Partition SOURCE" in done.stdout
    imported = {line.rpartition("|")[2].split(".")[0].strip() for line in done.stderr.splitlines()}
    assert "click" in imported
    assert not {"torch", "ray", "raysim", "algorithms", "cvxpy", "matplotlib", "scipy"} & imported


def test_no_part_of_the_package_imports_torch_or_ray():
    code = """
import pkgutil, sys, importlib, numpy, pyarrow, tempfile
import partitioning
for module in pkgutil.walk_packages(partitioning.__path__, "partitioning."):
    importlib.import_module(module.name)
with tempfile.TemporaryDirectory() as folder:
    table = pyarrow.table({"label": [0, 1] * 20})
    population = partitioning.make(table, folder + "/p", scheme="dirichlet-qp", clients=4)
    partitioning.plot.heatmap(population.class_counts, [0, 1])
    assert partitioning.verify(folder + "/p") == []
assert not {"torch", "ray", "raysim", "algorithms"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.EROFS, "Read-only file system"), (errno.EACCES, "Permission denied")]
)
def test_a_place_that_may_not_be_used_is_one_line_with_the_remedy(
    number: int, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def write() -> None:
        raise OSError(number, os.strerror(number), "runs/first/run.log")

    with pytest.raises(SystemExit) as ended:
        run_command(click.Group(commands=[write]), "raysim", ["write"])
    shown = f"raysim: runs/first/run.log cannot be used ({reason}): must be readable and writable; change its"
    assert ended.value.code == 1 and capsys.readouterr().err.startswith(shown)
