"""The bundled patients of four hospitals: FLamby's numbers, and the recipe on them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import raysim
from partitioning import Population
from raysim.common.errors import InputError
from raysim.data.catalogue import DATASETS
from raysim.data.sets.heart_disease import COLUMNS, FILE
from tests.kit.runs import quick_run

PATIENTS = {"cleveland": (199, 104), "hungarian": (172, 89), "switzerland": (30, 16), "va": (85, 45)}
"""Training and test patients of each hospital: FLamby, table 1 and its data set's documentation."""


def test_it_has_flambys_patients(tmp_path: Path) -> None:
    train, test = DATASETS["heart-disease"].read(tmp_path)
    assert test is None and train.schema.names == list(COLUMNS)
    counts = train.group_by(["hospital", "split"]).aggregate([([], "count_all")]).to_pylist()
    found = {(each["hospital"], each["split"]): each["count_all"] for each in counts}
    assert found == {(name, part): PATIENTS[name][i] for name in PATIENTS for i, part in enumerate(("train", "test"))}
    assert train.schema.field("cp").type == pa.int64() and set(train["disease"].to_pylist()) == {0, 1}


def test_the_test_patients_are_those_of_all_hospitals(tmp_path: Path) -> None:
    patients, _ = DATASETS["heart-disease"].read(tmp_path)
    tests, nothing = DATASETS["heart-disease-test"].read(tmp_path)
    assert nothing is None and tests.num_rows == sum(count for _, count in PATIENTS.values())
    assert tests.equals(patients.filter(pc.equal(patients["split"], "test")))


@pytest.mark.parametrize("test", ["heart-disease", "heart-disease-test"])
def test_test_patients_never_train(tmp_path: Path, test: str) -> None:
    given = {"rounds": 0, "data": {"dataset": "heart-disease", "test": test}, "partition": {"clients": 2}}
    remedy = 'must stand with partition.local_test = "split"' if test == "heart-disease-test" else "set data.test = 0.2"
    with pytest.raises(InputError, match=f"^data.test = '{test}'.*{remedy}"):
        raysim.run(given, tmp_path / "run", inline=True)
    assert not (tmp_path / "run").exists()


def test_its_licence_and_authors_lie_beside_it() -> None:
    text = (FILE.parent / "README.md").read_text()
    assert "10.24432/C52P4X" in text and "Attribution 4.0" in text
    assert all(name in text for name in ("Janosi", "Steinbrunn", "Pfisterer", "Detrano", *COLUMNS))


def test_the_recipe_learns_each_hospital(tmp_path: Path) -> None:
    run = quick_run("heart-disease", tmp_path / "run", changes=["evaluate.every=30"], inline=True)
    population = Population.open(run.folder / "population")
    assert population.names is not None and population.names.to_pylist() == list(PATIENTS)
    sizes = zip(population.sizes.tolist(), population.test_sizes.tolist(), strict=True)
    assert [(n - n_test, n_test) for n, n_test in sizes] == list(PATIENTS.values())
    clients = run.clients().set_index("name")
    assert clients.loc[["cleveland", "hungarian"], "test_auc"].min() > 0.8
    assert run.results[0].metrics["local_auc"] > 0.75
    assert clients["test_accuracy"].between(0.5, 0.9).all() and clients["test_auc"].notna().all()
    # All training patients of Switzerland are ill.
    assert clients["train_auc"].isna().tolist() == [False, False, True, False]
    assert next(iter(run.model().parameters())).shape == (1, 13)


@pytest.mark.parametrize("scheme", ["iid", "dirichlet"])
def test_other_schemes_see_no_hospital(tmp_path: Path, scheme: str) -> None:
    given = {
        "rounds": 0,
        "data": {"dataset": "heart-disease", "test": 0.2},
        "partition": {"scheme": scheme, "clients": 3},
        "model": {"name": "logistic"},
    }
    run = quick_run(given, tmp_path / "run", inline=True)
    assert next(iter(run.model().parameters())).shape == (2, 10)
