"""`raysim init`: an experiment file for a user's own data."""

import re
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import partitioning
from raysim.cli.begin import experiment_for
from raysim.cli.table_facts import MOST_DISTINCT, ColumnFacts
from raysim.config.experiment import Experiment
from raysim.data.catalogue import DATASETS
from tests.kit.commands import invoke
from tests.kit.runs import quick_run

IMAGE = pa.list_(pa.list_(pa.list_(pa.uint8())))


def table(**more: Any) -> pa.Table:
    random = np.random.default_rng(0)
    dose, ward = random.uniform(0, 1, 120), random.integers(0, 4, 120)
    return pa.table({"dose": dose, "ward": ward, "outcome": np.where(dose > 0.5, "well", "ill"), **more})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pq.write_table(table(note=["free text"] * 120, day=[date(2026, 1, 1)] * 120), "visits.parquet")
    return tmp_path


def tried(raw: dict[str, Any], **tables: dict[str, Any]) -> dict[str, float]:
    """Run an experiment's first algorithm for a round, with changes of its tables; return the metrics."""
    small = {name: {**raw.get(name, {}), **keys} for name, keys in tables.items()}
    config = {**raw, **small, "rounds": 1, "algorithm": raw["algorithm"][:1]}
    return quick_run(config, "run", inline=True).results[0].metrics


def test_an_experiment_on_a_table_names_its_columns_and_runs(folder: Path) -> None:
    done = invoke("init", "visits.parquet", "first.toml")
    assert done.exit_code == 0 and "raysim run first.toml" in done.output
    raw = tomllib.loads((folder / "first.toml").read_text())
    assert raw["data"]["label"] == "outcome" and raw["data"]["without"] == ["note"]
    assert raw["data"]["columns"] == {"dates": ["day"]} and raw["local"]["loss"] == "binary"
    assert raw["partition"] == {"scheme": "natural", "column": "ward"}
    assert invoke("run", "first.toml", "--inline", "--out", "run", "--set", "rounds=1").exit_code == 0


@pytest.mark.parametrize(
    "names",
    [
        ("0.parquet", "1.parquet"),
        ("0.csv", "1.csv"),
        ("train.parquet", "test.parquet"),
        ("train/a.parquet", "test/a.parquet"),
    ],
)
def test_an_experiment_on_a_table_in_several_files_runs(folder: Path, names: tuple[str, str]) -> None:
    for name, day in zip(names, (1, 2), strict=True):
        Path("visits", name).parent.mkdir(parents=True, exist_ok=True)
        part = table(day=[date(2026, 1, day)] * 120)
        (pq.write_table if "parquet" in name else pyarrow.csv.write_csv)(part, f"visits/{name}")
    raw = tomllib.loads(experiment_for("visits", "x.toml"))
    assert raw["data"]["dataset"] == "hf:./visits" and ("test" in raw["data"]) == ("0" in names[0])
    assert raw["data"]["columns"] == {"dates": ["day"]} and raw["partition"]["column"] == "ward"
    assert tried(raw)
    Path("visits/.git").mkdir()
    assert experiment_for("visits", "x.toml").count("hf:./visits") == 1
    Path("visits/0.png").mkdir()  # a CSV file beside images by class is no data set
    is_table = "parquet" in names[0]
    assert experiment_for("visits", "x.toml").count("hf:./visits") == is_table


def test_an_experiment_on_tables_that_differ_begins_with_the_first_that_trains(folder: Path) -> None:
    Path("visits").mkdir()
    for name, size in (("0", 1.5), ("1", 2), ("evaluation", "large")):
        pq.write_table(table(size=[size] * 120), f"visits/{name}.parquet")
    raw = tomllib.loads(experiment_for("visits", "x.toml"))
    assert raw["data"]["dataset"] == "hf:./visits" and "test" not in raw["data"] and "columns" not in raw["data"]


def test_signs_of_missing_values_are_proposed_and_the_experiment_runs(folder: Path) -> None:
    dose = [str(each) for each in range(118)]
    pq.write_table(table(amount=[*dose, "?", "n/a"]), "signs.parquet")
    assert invoke("init", "signs.parquet", "signs.toml").exit_code == 0
    text = (folder / "signs.toml").read_text()
    raw = tomllib.loads(text)
    assert "which count as missing; if one is a typo, correct it in the data" in text
    assert raw["data"]["columns"] == {"na_values": ["?", "n/a"], "impute": "median"}
    assert tried(raw)


@pytest.mark.parametrize("different", [5 * MOST_DISTINCT, 30])
def test_a_text_of_a_large_table_is_a_category_only_if_it_repeats(different: int) -> None:
    facts = ColumnFacts("ward", pa.string())
    for start in range(0, 5 * MOST_DISTINCT, MOST_DISTINCT):
        numbers = pa.array(np.arange(start, start + MOST_DISTINCT) % different)
        facts.add(pc.binary_join_element_wise("ward ", numbers.cast(pa.string()), ""))
    assert facts.rows == 5 * MOST_DISTINCT and facts.is_category == (different == 30)


@pytest.mark.parametrize("rows_each", [1, 2])
def test_all_rows_of_a_large_table_say_whether_its_owners_repeat(rows_each: int) -> None:
    facts, owners = ColumnFacts("user", pa.string()), 3 * MOST_DISTINCT
    for _ in range(rows_each):  # as in a shuffled table, the first rows of all owners stand before their second ones
        for start in range(0, owners, MOST_DISTINCT):
            numbers = pa.array(np.arange(start, start + MOST_DISTINCT))
            facts.add(pc.binary_join_element_wise("user ", numbers.cast(pa.string()), ""))
    assert facts.repeats == (rows_each > 1)
    assert len(facts.values) <= 2 * MOST_DISTINCT and len(facts.least) == MOST_DISTINCT


def test_missing_values_do_not_make_a_text_repeat() -> None:
    notes, numbers = ColumnFacts("note", pa.string()), ColumnFacts("number", pa.int64())
    notes.add(pa.array([f"note {number}" for number in range(400)] + [None] * 600))
    numbers.add(pa.array([*range(400)] + [None] * 600))
    assert not notes.is_category and not numbers.is_identifier


def test_an_experiment_on_a_real_table_names_every_column_and_runs(folder: Path) -> None:
    random = np.random.default_rng(1)
    rows = 200
    columns = {
        "age": random.integers(20, 90, rows),
        "dose": [None if each < 0.1 else each for each in random.random(rows)],
        "pain": random.choice(["none", "some", ""], rows),
        "stage": random.integers(1, 5, rows),
        "admitted": np.datetime64("2024-01-01") + random.integers(0, 400, rows),
        "name": [f"patient {row}" for row in range(rows)],
        "empty": [None] * rows,
        "clinic": random.choice(["a", "b", "c"], rows),
        "split": random.choice(["train", "test"], rows),
        "target": random.choice(["well", "ill"], rows),
    }
    pyarrow.csv.write_csv(pa.table(columns), "real.csv")
    assert invoke("init", "real.csv", "real.toml").exit_code == 0
    text = (folder / "real.toml").read_text()
    raw = tomllib.loads(text)
    missing = {name: sum(value in (None, "") for value in columns[name]) for name in ("dose", "pain")}
    for name in columns.keys() - {"target"}:
        assert f"\n#   {name}: " in text
    assert f"#   dose: double, {missing['dose']} of 200 missing\n" in text
    assert f"#   pain: string, 2 different, {missing['pain']} of 200 missing\n" in text
    assert raw["data"]["without"] == ["name", "empty"]
    assert raw["data"]["columns"] == {"categories": ["pain"], "dates": ["admitted"], "impute": "median"}
    assert "# categories: 'stage' may be codes" in text
    assert raw["partition"] == {"scheme": "natural", "column": "clinic", "local_test": "split"}
    assert [each["fraction"] for each in raw["algorithm"]] == [1.0, 1.0]
    assert tried(raw)


@pytest.mark.parametrize("name", ["owner", "Party_ID", "node", "account", "institution"])
def test_a_column_named_like_an_owner_divides_the_rows(folder: Path, name: str) -> None:
    columns = table().drop_columns(["ward"]).append_column(name, pa.array([f"o{row % 25}" for row in range(120)]))
    pq.write_table(columns, "owned.parquet")
    raw = tomllib.loads(experiment_for("owned.parquet", "x.toml"))
    assert raw["partition"] == {"scheme": "natural", "column": name} and "columns" not in raw["data"]


def test_other_repeated_texts_are_asked_whether_they_own_rows(folder: Path) -> None:
    more = {"seller": 25, "sex": 2, "team": 6, "shop": 12, "brand": 4}
    texts = {name: [f"{name} {row % count}" for row in range(120)] for name, count in more.items()}
    pq.write_table(table(**texts).drop_columns(["ward"]), "asked.parquet")
    text = experiment_for("asked.parquet", "x.toml")
    asked = re.findall(r"# if (.+) says whose a row is: scheme = \"natural\", column = \"(.+)\"\n", text)
    assert asked == [(name, name) for name in ("seller", "shop", "team")]
    pq.write_table(table(**texts), "owned.parquet")
    assert "says whose" not in experiment_for("owned.parquet", "x.toml")


def test_a_number_of_the_row_owns_no_row(folder: Path) -> None:
    random = np.random.default_rng(1)
    table = {"patient": np.arange(60), "age": random.normal(size=60), "ward": np.arange(60) % 3, "sick": [0, 1] * 30}
    pyarrow.csv.write_csv(pa.table(table), "patients.csv")
    assert invoke("init", "patients.csv", "p.toml", "--label", "sick").exit_code == 0
    assert tomllib.loads((folder / "p.toml").read_text())["partition"] == {"scheme": "natural", "column": "ward"}


@pytest.mark.parametrize(("name", "fraction"), [("heart-disease", 1.0), ("fedprox-mnist", 0.5)])
def test_a_known_data_set_of_few_hospitals_has_all_of_them_in_each_round(name: str, fraction: float) -> None:
    raw = tomllib.loads(experiment_for(name, "x.toml"))
    assert [each["fraction"] for each in raw["algorithm"]] == [fraction, fraction]


@pytest.mark.parametrize(("owners", "fraction"), [(10, 1.0), (11, 0.5)])
def test_few_clients_all_take_part_in_each_round(folder: Path, owners: int, fraction: float) -> None:
    pq.write_table(table(ward=[f"ward {row % owners}" for row in range(120)]), "wards.parquet")
    raw = tomllib.loads(invoke("init", "wards.parquet", "-").output)
    assert [each["fraction"] for each in raw["algorithm"]] == [fraction, fraction]


def test_a_table_of_categories_alone_is_no_text(folder: Path) -> None:
    random = np.random.default_rng(1)
    table = {name: random.choice(["x", "y"], 60) for name in ("cap", "gill", "class")}
    pyarrow.csv.write_csv(pa.table(table), "mushrooms.csv")
    assert invoke("init", "mushrooms.csv", "m.toml").exit_code == 0
    raw = tomllib.loads((folder / "m.toml").read_text())
    assert raw["data"]["columns"] == {"categories": ["cap", "gill"]} and "text" not in raw["data"]
    assert tried(raw)


def test_an_experiment_on_text_alone_reads_it(folder: Path) -> None:
    lines = [f"{'good' if place % 2 else 'bad'} play,{place % 2},u{place % 3}" for place in range(60)]
    (folder / "reviews.csv").write_text("\n".join(["review,label,user", *lines]))
    assert invoke("init", "reviews.csv", "text.toml").exit_code == 0
    raw = tomllib.loads((folder / "text.toml").read_text())
    assert raw["data"]["text"]["column"] == "review" and raw["model"]["name"] == "transformer"
    raw["data"]["text"]["length"] = 12
    assert tried(raw, model={"options": {**raw["model"]["options"], "n_embd": 16, "n_layer": 1}})


def test_an_experiment_on_masks_segments_images(folder: Path) -> None:
    random = np.random.default_rng(1)
    images, masks = random.integers(0, 255, (12, 16, 16, 3)), random.integers(0, 3, (12, 16, 16))
    columns = {"image": images.astype(np.uint8).tolist(), "label": masks.tolist()}
    pq.write_table(pa.table(columns, schema=pa.schema({"image": IMAGE, "label": IMAGE.value_type})), "masks.parquet")
    assert invoke("init", "masks.parquet", "m.toml").exit_code == 0
    raw = tomllib.loads((folder / "m.toml").read_text())
    assert raw["model"]["name"] == "deeplab_v3plus" and "loss" not in raw["local"]
    assert tried(raw, partition={"clients": 2}, data={"image_size": 16})["test_loss"] < 10


def test_an_experiment_on_a_class_for_each_position_reads_tokens(folder: Path) -> None:
    random = np.random.default_rng(1)
    columns = {"words": random.integers(0, 30, (40, 12)), "tags": random.integers(0, 4, (40, 12))}
    pq.write_table(pa.table({name: values.tolist() for name, values in columns.items()}), "tags.parquet")
    assert invoke("init", "tags.parquet", "t.toml", "--label", "tags").exit_code == 0
    raw = tomllib.loads((folder / "t.toml").read_text())
    assert raw["model"]["options"]["vocab_size"] == 30 and raw["model"]["options"]["n_positions"] == 12
    options = {**raw["model"]["options"], "n_layer": 1}
    assert tried(raw, partition={"clients": 2}, model={"options": options})["test_loss"] < 10


def test_a_whole_number_that_differs_in_every_row_may_be_an_identifier(folder: Path) -> None:
    numbers = {"visit_id": np.random.default_rng(1).permutation(120), "dose_mg": np.arange(120) / 7}
    pq.write_table(table(**numbers), "ids.parquet")
    text = invoke("init", "ids.parquet", "-").output
    assert re.search(r'\n# without = \["visit_id"\] +# a different value in every row: an identifier\?\n', text)
    pq.write_table(table(note=[f"note {row}" for row in range(120)], **numbers), "ids.parquet")
    text = invoke("init", "ids.parquet", "-").output
    assert (
        '\n# without = ["note", "visit_id"] # a different value in every row of \'visit_id\': an identifier?\n' in text
    )
    assert tomllib.loads(text)["data"]["without"] == ["note"]


@pytest.mark.parametrize("form", ["%d/%m/%Y", "%d.%m.%y", "%Y/%m/%d %H:%M", "%d-%b-%Y", "%B %d, %Y"])
def test_dates_in_another_form_are_named(folder: Path, form: str) -> None:
    visits = [date(2023, 1 + row % 12, 1 + row % 28).strftime(form) for row in range(120)]
    pq.write_table(table(visit=visits, note=[f"{visit} and more" for visit in visits]), "dated.parquet")
    text = invoke("init", "dated.parquet", "-").output
    raw = tomllib.loads(text)
    assert raw["data"]["without"] == ["visit", "note"] or raw["data"]["columns"] == {"categories": ["note"]}
    assert "\n# 'visit': text that looks like dates, not in the form 2023-04-17; rewrite the column" in text
    assert "visit" in raw["data"]["without"] and "'note': text" not in text


@pytest.mark.parametrize("name", DATASETS)
def test_an_experiment_on_a_known_data_set_is_right(name: str) -> None:
    experiment = Experiment.of(tomllib.loads(experiment_for(name, "x.toml")))
    assert experiment.data.dataset == name and experiment.names == ["fedavg", "fedprox"]


def test_an_experiment_on_a_population_makes_no_clients(folder: Path) -> None:
    partitioning.make("visits.parquet", "made", scheme="iid", label="outcome", clients=3)
    raw = tomllib.loads(experiment_for("made", "x.toml"))
    assert raw["data"] == {"population": "made"} and "partition" not in raw
    assert Experiment.of(raw).partition is None
    assert [each["fraction"] for each in raw["algorithm"]] == [1.0, 1.0]


def test_names_of_the_users_stay_text_in_the_file(folder: Path) -> None:
    odd = 'no"te\x7f\n[model]'
    pyarrow.csv.write_csv(table(), "odd.csv")
    pq.write_table(table().append_column(odd, pa.array(["x"] * 120)), "odd.parquet")
    raw = tomllib.loads(experiment_for("odd.parquet", 'a"b\n.toml'))
    assert raw["data"]["without"] == [odd] and raw["model"]["name"] == "mlp"
    assert tomllib.loads(experiment_for("odd.csv", "x.toml"))["data"]["dataset"] == "file:odd.csv"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["init", "MNIST"], "did you mean 'mnist'?"),
        (["init", "nosuch.parquet"], "nosuch.parquet"),
        (["init", "visits.parquet", "visits.parquet"], "must be a new file"),
        (["init", "visits.parquet", "--label", "outcom"], "did you mean 'outcome'?"),
        (["init", "bare.parquet"], "must be named by --label"),
        (["init", "latin.csv", "--label", "sick"], "the name of column 1 has byte 0xf6: must be text in UTF-8"),
        (["init", "twice.csv", "--label", "sick"], "several columns named 'age'"),
        (["init", "gap.csv", "--label", "sick"], "label column 'sick' has missing values"),
        (["init", "blank.csv", "--label", "sick"], "label column 'sick' has missing values"),
        (["init", "header.csv"], "header.csv has no rows: must have samples"),
        (["init", "visits.parquet", "--label", "day"], "label column 'day' is date32[day], but must hold"),
        (["show", "quikstart"], "did you mean 'quickstart'?"),
        (["list", "schemes", "dirichlet_qp"], "did you mean 'dirichlet-qp'?"),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(folder: Path, arguments: list[str], message: str) -> None:
    pq.write_table(pa.table({"a": [1.0]}), "bare.parquet")
    Path("latin.csv").write_bytes("age,Größe,sick\n1,2,0\n3,4,1\n".encode("latin-1"))
    Path("twice.csv").write_text("age,age,sick\n1,2,0\n3,4,1\n")
    Path("header.csv").write_text("age,label\n")
    Path("gap.csv").write_text("age,size,sick\n1,2,0\n3,4,\n")
    Path("blank.csv").write_text("age,size,sick\n1,2,no\n3,4,\n")
    before = sorted(folder.iterdir())
    done = invoke(*arguments)
    assert message in str(done.exception) and "\n" not in str(done.exception)
    assert sorted(folder.iterdir()) == before


def test_a_dash_prints_the_experiment_file(folder: Path) -> None:
    done = invoke("init", "visits.parquet", "-")
    assert tomllib.loads(done.output)["data"]["label"] == "outcome" and not (folder / "-").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("vists.parquet", "no file or folder 'vists.parquet': must be the path of your data; did you mean 'visits."),
        ("here/vists.parquet", "must be the path of your data; did you mean 'here/visits.parquet'?"),
        ("file:gone.csv", "no file or folder 'gone.csv': must be the path of your data; check the path"),
        ("digitz", "did you mean 'digits'?"),
    ],
)
def test_missing_data_are_named_as_they_were_given(folder: Path, data: str, message: str) -> None:
    Path("here").mkdir()
    Path("here/visits.parquet").touch()
    done = invoke("init", data)
    assert done.exit_code and message in str(done.exception) and not (folder / "experiment.toml").exists()
