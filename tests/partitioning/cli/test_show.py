import dataclasses
import json
import shutil

import pytest

from partitioning import Population, make, statistics
from partitioning.cli.commands import main
from partitioning.cli.show import lines
from tests.kit.tables import rich_table


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder, table = tmp_path_factory.mktemp("made"), rich_table()
    make(table, folder / "p", scheme="dirichlet-qp", clients=6, label_alpha=0.1, test_clients=2, dataset="zoo")
    make(table, folder / "q", scheme="iid", clients=4)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made / "p", tmp_path / "p")


@pytest.fixture
def other(made, tmp_path):
    return shutil.copytree(made / "q", tmp_path / "q")


@pytest.fixture
def call(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments):
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return caught.value.code, captured.out, captured.err

    return run


def test_the_row_of_table_one_comes_first(call, folder, other):
    status, said, _ = call("inspect", folder, other)
    head, *_ = said.splitlines()[1:]
    assert status == 0
    assert head.strip("┃ ").replace("┃", "").split() == ["Dataset", "Min", "Max", "Mean", "Stdev", "C-score"]
    rows = [line for line in said.splitlines()[:6] if str(folder.parent) in line]
    assert len(rows) == 2
    assert str(folder) in rows[0]
    assert str(other) in rows[1]


def test_the_other_numbers_parameters_and_columns_are_printed(call, folder):
    _, said, _ = call("inspect", folder)
    skew = statistics.measure_skew(Population.open(folder).class_counts)
    lines = {name.strip(): value.strip() for name, value in (line.split("│")[1:3] for line in _cells(said))}
    assert lines["Jensen-Shannon divergence (bits)"] == f"{skew.js_divergence:.6g}"
    assert lines["labels per client"] == f"{skew.labels:.6g}"
    assert (lines["label_alpha"], lines["scheme"], lines["row"]) == ("0.1", "dirichlet-qp", "int64")
    assert (lines["train clients"], lines["test clients"]) == ("4", "2")


def _cells(said):
    return [line for line in said.splitlines() if line.count("│") == 3]


def test_what_is_nested_is_indented_and_long_lists_are_cut():
    report = {
        "solver": {"status": "optimal", "objective": 0.1234567},
        "sizes": list(range(20)),
        "notes": {},
        "by": None,
    }
    assert list(lines(report)) == [
        ("solver", ""),
        ("  status", "optimal"),
        ("  objective", "0.123457"),
        ("sizes", "0, 1, 2, 3, 4, 5, 6, 7, ... (20 in all)"),
        ("notes", "none"),
        ("by", "none"),
    ]


def test_json_has_all_of_it(call, folder):
    status, said, _ = call("inspect", folder, "--json")
    facts = json.loads(said)
    counts = Population.open(folder).class_counts
    assert status == 0
    assert dataclasses.asdict(statistics.summarise(counts)).items() <= facts.items()
    assert dataclasses.asdict(statistics.measure_skew(counts)).items() <= facts.items()
    assert facts["parameters"] == Population.open(folder).manifest.parameters
    assert facts["label_alpha"] == 0.1
    assert (facts["dataset"], facts["feature_c_scores"]) == ("zoo", {})


@pytest.mark.parametrize("ending", [".csv", ".md", ".tex", ".json"])
def test_the_rows_are_written(call, folder, other, ending):
    out = folder.parent / f"table{ending}"
    out.write_text("old")
    status, said, _ = call("inspect", folder, other, "--json", "--out", out)
    assert status == 0
    assert len(json.loads(said)) == 2
    text = out.read_text()
    assert "C-score" in text
    assert text.count(str(folder.parent).replace("_", r"\_") if ending in (".md", ".tex") else str(folder.parent)) == 2
    assert sorted(path.name for path in folder.parent.iterdir()) == ["p", "q", out.name]


def test_one_picture_of_one_or_two_populations(call, folder, other):
    for folders in ([folder], [folder, other]):
        status, _, _ = call("plot", *folders, "--out", folder.parent / "x.png", "--panel", "bars", "--panel", "sizes")
        assert status == 0
        assert (folder.parent / "x.png").read_bytes().startswith(b"\x89PNG")
        (folder.parent / "x.png").unlink()
    assert sorted(path.name for path in folder.parent.iterdir()) == ["p", "q"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect"], "Missing argument 'DIR...'"),
        (["inspect", "p", "--out", "t.txt"], "'t.txt': give a name that ends in .csv, .md, .tex, .json"),
        (["inspect", "p", "--out", "no/t.csv"], "no is not a folder; make it first"),
        (["inspect", "p", "gone", "--out", "t.csv"], "gone is no population"),
        (["plot", "p", "--out", "t.csv"], "give a name that ends in .png, .svg, .pdf"),
        (["plot", "p", "--out", "no/t.png"], "no is not a folder; make it first"),
        (["plot", "p", "--out", "folder.png"], "which is a folder: give the name of a file"),
        (["plot", "p", "--out", "t.png", "--panel", "pie"], "panel 'pie' is unknown: choose 'heatmap'"),
        (["plot", "p", "--out", "t.png", "--panel", "features"], "panel 'features' has nothing to show"),
        (["plot", "p", "p", "p", "--out", "t.png"], "3 populations are given"),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(call, folder, monkeypatch, arguments, message):
    monkeypatch.chdir(folder.parent)
    (folder.parent / "folder.png").mkdir()
    status, said, complaint = call(*arguments)
    assert (status, said, complaint.count("\n")) == (2, "", 1)
    assert message in complaint
    assert sorted(path.name for path in folder.parent.iterdir()) == ["folder.png", "p"]
