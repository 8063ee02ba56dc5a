"""The study file: what it says, its base, and what is refused."""

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

import raysim
from raysim.common.errors import InputError
from raysim.config.attack import AttackTable
from raysim.config.experiment import Experiment
from raysim.config.read import read
from raysim.config.tables import DevicesTable
from raysim.studies.file import Study, completed, read_study
from tests.kit.commands import run_raysim


def test_what_stands_beside_the_study_changes_its_base(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(
        'rounds = 4\n[data]\ndataset = "digits"\n[partition]\nclients = 6\ntest_clients = 2\n[local]\nsteps = 3\n'
        '[[algorithm]]\nname = "fedavg"\n[[algorithm]]\nname = "radfed"\n'
    )
    (tmp_path / "study.toml").write_text(
        'base = "base.toml"\nepochs = 2\nlocal.lr = 0.3\nlocal.epochs = 1\nalgorithm.radfed.aggregate_every = 7\n'
        '[study]\nfolds = 3\n[study.datasets.many]\n"partition.clients" = 9\n'
        "[study.datasets.few]\npartition.clients = 4\n"
    )
    study = Study.of(read_study(tmp_path / "study.toml", ["model.hidden=[5]"]))
    many, few = (dataset.experiment for dataset in study.datasets)
    assert [each.name for each in study.datasets] == ["many", "few"]
    assert (many.rounds, many.epochs, many.model.keys["hidden"]) == (None, 2.0, (5,))
    assert (many.partition.clients, few.partition.clients) == (9, 4)
    assert (many.partition.folds, many.partition.test_clients, many.partition.fold) == (3, 0, None)
    assert (many.algorithm[1].aggregate_every, many.algorithm[1].local.lr, many.algorithm[1].local.epochs) == (
        7,
        0.3,
        1,
    )
    # As it is written, it says the same.
    assert Study.of(completed(tomllib.loads(tomli_w.dumps(study.to_toml())))).to_toml() == study.to_toml()


def test_an_empty_table_beside_the_study_is_one_of_defaults(small: dict[str, Any], tmp_path: Path) -> None:
    small["algorithm"] = small["algorithm"][:1]
    base = {key: value for key, value in small.items() if key != "study"}
    (tmp_path / "base.toml").write_text(tomli_w.dumps(base | {"attack": {"share": 0.25}}))
    raw = {"base": "base.toml", "devices": {}, "attack": {}, "study": small["study"]}
    (tmp_path / "study.toml").write_text(tomli_w.dumps(raw))
    study = Study.of(read_study(tmp_path / "study.toml"))
    experiment = study.datasets[0].experiment
    assert experiment.devices == DevicesTable() and experiment.attack == AttackTable(share=0.25)
    small["study"]["datasets"] = {"plain": {}, "timed": {"devices": {}}}
    study = Study.of(small)
    assert [each.experiment.devices for each in study.datasets] == [None, DevicesTable()]
    assert Study.of(completed(study.to_toml())).to_toml() == study.to_toml()


def test_the_default_partition_has_the_folds_of_the_study(small: dict[str, Any]) -> None:
    del small["partition"]
    for datasets in ({}, {"a": {}, "b": {"partition.clients": 9}}, {"a": {}}):
        small["study"]["datasets"] = datasets
        tables = [each.experiment.partition for each in Study.of(small).datasets]
        assert [each.folds for each in tables if each] == [3] * max(1, len(datasets))


def test_a_written_study_means_the_same_in_any_folder(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small |= {"devices": {"table": "devices.parquet"}, "model": {**small["model"], "weights": "w.safetensors"}}
    for datasets in ({}, {"a": {}, "b": {"devices.table": "b.parquet"}}):
        small["study"]["datasets"] = datasets
        study = Study.of(small)
        (there := tmp_path / "there").mkdir(exist_ok=True)
        with monkeypatch.context() as patch:
            patch.chdir(there)
            again = Study.of(study.to_toml())
        assert [each.experiment for each in again.datasets] == [each.experiment for each in study.datasets]
    assert study.datasets[1].experiment.devices == DevicesTable(table=str(tmp_path / "b.parquet"))


def test_a_grid_may_name_one_s_own_code_beside_the_file(small: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "own_of_grid.py").write_text("def squared(outputs, y):\n    return (outputs.mean(1) - y) ** 2\n")
    small["study"]["grid"] = {"fedavg": {"local.loss": ["cross-entropy", "own_of_grid:squared"]}}
    assert Study.of(small, [tmp_path]).to_toml()["modules"] == [str(tmp_path)]


def test_trials_score_no_single_client_unless_the_file_says_so(small: dict[str, Any]) -> None:
    assert not Study.of(small).datasets[0].experiment.evaluate.clients
    small["evaluate"] = {**small["evaluate"], "clients": True}
    assert Study.of(small).datasets[0].experiment.evaluate.clients


def test_defaults(small: dict[str, Any]) -> None:
    small["study"] = {}
    table = Study.of(small).table
    assert (table.seeds, table.folds, table.validation) == ((3,), 0, "next")
    assert (table.select_by, table.baseline, table.tune.seeds) == ("validation_accuracy", "fedavg", (3,))
    small["algorithm"] = [{"name": "radfed"}, {"name": "fedprox"}]
    assert Study.of(small).table.baseline == "radfed"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"seed": [1]}, "did you mean 'seeds'"),
    ({"seeds": []}, "study.seeds"),
    ({"seeds": [1, 1]}, "each only once"),
    ({"validation": "none"}, "study.validation = 'none'"),
    ({"baseline": "fedavgg"}, "did you mean 'fedavg'"),
    ({"select_by": "held_out_accuracy"}, "must be a column of the validation clients"),
    ({"tune": {"folds": [3]}}, "study.tune.folds = [3]: must be 0 to 2"),
    ({"folds": 0, "tune": {"folds": [0]}}, "left out, because there are no folds"),
    ({"folds": 0, "tune": {}, "validation": "rotate"}, 'study.validation = "rotate" without folds'),
    ({"grid": {"radfd": {}}}, "did you mean 'radfed'"),
    ({"grid": {"radfed": {"aggregate_evry": [1]}}}, "did you mean 'aggregate_every'"),
    ({"grid": {"radfed": {"aggregate_every": 3}}}, "must be a list of values"),
    ({"grid": {"radfed": {"aggregate_every": []}}}, "must be a list of values"),
    ({"grid": {"radfed": {"aggregate_every": [2, 2]}}}, "each value only once"),
    ({"grid": {"*": {"local.lr": [1, 0.5, 1.0]}}}, "each value only once"),
    ({"grid": {"radfed": {"aggregate_every": [2, 0]}}}, "study.grid or study.inherit of radfed: "),
    ({"grid": {"*": {"aggregate_every": [2]}}}, "of algorithm fedavg"),
    ({"grid": {"radfed": 3}}, r"^study.grid.radfed = 3: must be a table; write \[study.grid.radfed\]"),
    ({"grid": {"*": {"local.loss": ["mse", len]}}}, "must name your own code as text; write 'module:function'"),
    ({"grid": {"*": {"rounds": [2, 3]}}}, "rounds: must be a key of an algorithm, .*; vary it by study.datasets, or"),
    ({"grid": {"radfed": {"partition.clients": [2]}}}, "partition: must be a key of an algorithm, and is one of the"),
    ({"grid": {"radfed": {"seed": [2, 3]}}}, "is one of the whole run; vary it by study.seeds"),
    ({"datasets": {"a": {"data.test": [np.zeros((2, 3))]}}}, "a study does not; write them to Parquet"),
    ({"inherit": {"radfed": {"aggregate_every": 3}}}, 'for example, write aggregate_every = "radfed"'),
    ({"inherit": {"radfed": {"local.lr": "fedprox"}}}, "study.inherit.radfed.local.lr"),
    ({"inherit": {"radfed": {"aggregate_every": "fedavg"}}}, "unknown key 'aggregate_every' of fedavg"),
    ({"inherit": {"radfed": {"fraction": "fedavg:local.lr"}, "fedavg": {"fraction": "radfed"}}}, "circle"),
    ({"inherit": {"radfed": {"local.lr": "radfed"}}}, "circle"),
    ({"grid": {"radfed": {"local.lr": [1]}}, "inherit": {"radfed": {"local.lr": "fedavg"}}}, "leave one out"),
    (
        {"grid": {"radfed": {"cohort": [2], "fraction": [0.5]}}},
        "radfed.cohort, radfed.fraction: must be only one of them",
    ),
    ({"grid": {"*": {"local.epochs": [2]}, "radfed": {"local.steps": [5]}}}, "radfed.local.epochs, radfed.local.steps"),
    ({"datasets": {"a": {"local.epochs": 2, "local.steps": 5}}}, "study.datasets.a.local.steps: must be only one"),
    ({"datasets": {"a/b": {}}}, "'a/b'"),
    ({"datasets": {"a": {"partition.client": 3}}}, "study.datasets.a: unknown key 'partition.client'"),
    ({"datasets": {"a": {"partition.folds": 4}}}, "partition.folds = 4 must be study.folds = 3"),
    ({"datasets": {"a": {}, "b": {"algorithm.radfed.name": "radfedm"}}}, "leave algorithm.name as it is"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_what_is_refused(small: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    small["study"] |= changes
    with pytest.raises(InputError) as refused:
        Study.of(small)
    assert message in str(refused.value) or re.search(message, str(refused.value))


def test_data_in_memory_are_refused_with_the_way_out(small: dict[str, Any], tmp_path: Path) -> None:
    for data in (np.zeros((4, 3)), (np.zeros((4, 3)), np.zeros(4))):
        small["data"] = {"dataset": data}
        with pytest.raises(InputError, match=r'only raysim.run .* write them to Parquet, and give "file:PATH.parquet"'):
            raysim.study(small, tmp_path / "study", inline=True)
    assert not (tmp_path / "study").exists()


def test_an_inherited_key_without_a_value_leaves_the_keys_that_it_excludes(small: dict[str, Any]) -> None:
    small["study"] |= {"inherit": {"radfed": {"fraction": "fedavg", "cohort": "fedavg"}}}
    study = Study.of(small)
    winner = {"fedavg": {"fraction": 0.5, "cohort": None}}
    space = study.spaces["radfed"]
    table = space.at(study.datasets[0].raw, space.inherited(winner)).algorithm[0]
    assert (table.fraction, table.cohort) == (0.5, None)


@pytest.mark.parametrize("where", ["base", "datasets"])
@pytest.mark.parametrize(
    "rule",
    [
        {"evaluate.select": "best", "evaluate.select_by": "held_out_accuracy"},
        {"evaluate.until_target": True, "evaluate.target": {"validation_accuracy": 0.3, "held_out_accuracy": 0.3}},
    ],
    ids=["best", "target"],
)
def test_no_test_chooses_the_round_by_which_points_compare(
    small: dict[str, Any], rule: dict[str, Any], where: str
) -> None:
    small["study"] |= {"select_by": "validation_accuracy"}
    small["evaluate"] |= {"every": 1}
    if where == "base":
        small["evaluate"] |= {key.partition(".")[2]: value for key, value in rule.items()}
    else:
        small["study"]["datasets"] = {"a": {}, "b": rule}
    with pytest.raises(InputError, match="must not select the model"):
        Study.of(small)
    small["study"]["grid"] = {}
    Study.of(small)


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("digits", "digits"),
        ("synthetic:0.5,0.5,30,20", "synthetic-0.5-0.5-30-20"),
        ("file:some/rows.v2.parquet", "rows.v2"),
        ("shifted:digits", "shifted-digits"),
    ],
)
def test_the_only_data_set_is_called_after_its_source(small: dict[str, Any], dataset: str, name: str) -> None:
    small["data"] = {"dataset": dataset}
    if dataset.startswith("shifted"):
        small["data"]["shifts"] = ["none", "invert"]
    assert Study.of(small).datasets[0].name == name


def test_a_study_file_is_not_replaced_where_it_lies(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mine = "# mine\n" + tomli_w.dumps(small)
    Path("study.toml").write_text(mine)
    for arguments in (["study.toml", "--out", "."], ["."]):
        status, _, said = run_raysim(capsys, "study", *arguments, "--inline")
        assert status == 2 and "is not empty" in said.splitlines()[-1]
    assert Path("study.toml").read_text() == mine and [path.name for path in tmp_path.iterdir()] == ["study.toml"]


RUN: list[tuple[list[str], str]] = [
    (["run", "STUDY"], "must run as a study; use `raysim study`"),
    (["study", "quickstart"], "use `raysim run` for one experiment"),
    (["study", "quikstart"], "did you mean 'quickstart'"),
    (["study", "."], "must be the folder of a study"),
    (["study", "STUDY", "--actors", "2"], "--inline with --actors"),
    (["study", "STUDY", "--set", "study.metric=held_out_accurcy"], "study.metric = 'held_out_accurcy'"),
    (["study", "STUDY", "--set", "study.folds=2"], "folds is 2"),
    (["study", "STUDY", "--set", "algorithm.cohort=9"], "algorithm.cohort"),
    (["study", "STUDY", "--set", "study.select_by=validation_auc"], "study.select_by = 'validation_auc'"),
    (["study", "STUDY", "--out", "notes"], "is not empty"),
]


@pytest.mark.parametrize(("arguments", "message"), RUN)
def test_wrong_input_is_one_line_and_leaves_nothing(
    arguments: list[str],
    message: str,
    small: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "STUDY").write_text(tomli_w.dumps(small))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").touch()
    out = [] if "--out" in arguments else ["--out", "out"]
    status, _, said = run_raysim(capsys, *arguments, "--inline", *out)
    last = said.splitlines()[-1]
    assert status == 2 and last.startswith("raysim: ") and message in last
    assert sorted(path.name for path in tmp_path.iterdir()) == ["STUDY", "notes"]


def test_an_experiment_says_which_fold_validates(small: dict[str, Any]) -> None:
    del small["study"]
    small["partition"] |= {"folds": 3, "fold": 0, "validation": 2}
    assert (Experiment.of(small).fold, Experiment.of(small).validation) == (0, 2)
    del small["partition"]["fold"]
    with pytest.raises(InputError, match=r"partition.validation = 2: must stand with partition.fold"):
        Experiment.of(small)


def test_the_example_of_the_tutorial_is_one() -> None:
    page = Path(__file__).parents[3] / "docs" / "tutorials" / "study.md"
    text = page.read_text(encoding="utf-8").partition("## 4. Use a base")[2]
    study = Study.of(completed(tomllib.loads(text.partition("```toml\n")[2].partition("```")[0])))
    assert len(study.finals) == 60 and len(study.tuning) == 4
    assert [(each.name, each.experiment.partition.label_alpha) for each in study.datasets] == [
        ("mnist-1", 1.0),
        ("mnist-0.1", 0.1),
    ]


def test_the_recipe_inherits_as_the_paper_does() -> None:
    study = Study.of(read_study("radfed-study-small"))
    assert {name: sorted(space.inherit) for name, space in study.spaces.items() if space.inherit} == {
        "radfedp": ["aggregate_every", "proximal"],
        "radfedm": ["aggregate_every", "server.alpha"],
        "radfeda": ["aggregate_every", "server.lr", "server.tau"],
    }
    assert "study" in read("radfed-study-small")


def test_a_search_without_validation_clients_says_what_gives_some(small: dict[str, Any], tmp_path: Path) -> None:
    small["study"] |= {"folds": 0, "tune": {}}
    with pytest.raises(InputError, match=r"measured \(none\); set study.folds or partition.validation_clients"):
        raysim.study(small, tmp_path / "study", inline=True)
    assert not (tmp_path / "study").exists()
