"""Categories, dates and missing values of a table: fitted on the training rows of training clients, applied to all."""

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.impute import SimpleImputer

import partitioning
from partitioning import Population
from raysim.common.errors import InputError
from raysim.data import encoding as encoding_module
from raysim.data.columns import ColumnRules, check_features
from raysim.data.encoding import Encoding, encode_population, fit_encoding

ROWS = 300


def table() -> pa.Table:
    """Rows of six wards; the last ward's values are unlike the others'."""
    rng = np.random.default_rng(0)
    ward = np.repeat(np.arange(6), ROWS // 6)
    dose = rng.normal(10 * (ward == 5), 1)
    age = rng.integers(20, 80, ROWS)
    kind = np.where(ward == 5, "rare", rng.choice(["a", "b", "c"], ROWS, p=[0.2, 0.5, 0.3]))
    day = [datetime.date(2020, 1, 1) + datetime.timedelta(days=int(each)) for each in rng.integers(0, 900, ROWS)]
    return pa.table(
        {
            "dose": pa.array(dose, mask=rng.random(ROWS) < 0.2),
            "kind": pa.array(kind, mask=rng.random(ROWS) < 0.1),
            "ward": ward,
            "age": pa.array(age, mask=rng.random(ROWS) < 0.1),
            "day": pa.array(day, mask=rng.random(ROWS) < 0.1),
            "label": rng.integers(0, 2, ROWS),
        }
    )


RULES = ColumnRules(categories=("kind",), dates=("day",), impute="median")


@pytest.fixture
def population(tmp_path: Path) -> Population:
    """Wards as clients: one is held out for testing, and each has a test part of its own."""
    missing = ["dose", "kind", "age", "day"]
    options = {"scheme": "natural", "column": "ward", "test_clients": 1, "local_test": 0.3}
    return partitioning.make(table(), tmp_path / "p", missing=missing, test=table().slice(250, 50), **options)


def train_rows(population: Population) -> pd.DataFrame:
    batches = [population.batch(client) for client in population.train_clients.tolist()]
    cuts = [population.test_sizes[client] for client in population.train_clients.tolist()]
    whole = pa.Table.from_batches([b[: b.num_rows - int(cut)] for b, cut in zip(batches, cuts, strict=True)])
    return whole.to_pandas()


@pytest.mark.parametrize("impute", ["mean", "median", "most_frequent"])
def test_fitted_values_are_scikit_learns_of_the_training_rows(population: Population, impute: Any) -> None:
    encoding = fit_encoding(population, ColumnRules(categories=("kind",), dates=("day",), impute=impute))
    train = train_rows(population)
    wanted = SimpleImputer(strategy=impute).fit(train[["dose", "age"]]).statistics_
    assert [encoding.columns[name].fill for name in ("dose", "age")] == pytest.approx(wanted.tolist(), rel=1e-12)
    known = train["kind"].dropna()
    assert encoding.columns["kind"].categories == tuple(sorted(known.unique()))
    assert encoding.columns["kind"].fill == known.value_counts().index[0]
    days = [(each - datetime.date(1970, 1, 1)).days for each in train["day"].dropna()]
    wanted_day = SimpleImputer(strategy=impute).fit(np.array(days, float)[:, None]).statistics_[0]
    assert encoding.columns["day"].fill == pytest.approx(wanted_day)


def test_every_row_is_encoded_by_the_same_values(population: Population, tmp_path: Path) -> None:
    encoding = fit_encoding(population, RULES)
    encoded = Population.open(encode_population(population, encoding))
    assert partitioning.verify(encoded.path) == []
    categories = encoding.columns["kind"].categories
    assert encoded.schema.names == ["dose", *(f"kind_{each}" for each in categories), "ward", "age", "day", "label"]
    raw = [population.batch(client).to_pandas() for client in range(6)] + [population.test_batch(0).to_pandas()]
    new = [encoded.batch(client).to_pandas() for client in range(6)] + [encoded.test_batch(0).to_pandas()]
    for before, after in zip(raw, new, strict=True):
        pd.testing.assert_series_equal(after["dose"], before["dose"].fillna(encoding.columns["dose"].fill))
        kinds = before["kind"].fillna(str(encoding.columns["kind"].fill))
        for each in categories:
            assert after[f"kind_{each}"].tolist() == [int(kind == each) for kind in kinds]
        day = pd.to_datetime(before["day"]).astype("datetime64[s]").astype("int64") / 86400
        known = before["day"].notna()
        assert after["day"][known].tolist() == day[known].tolist()
        assert (after["day"][~known] == encoding.columns["day"].fill).all()
        assert after[["ward", "label"]].equals(before[["ward", "label"]])


RUNS = [
    ColumnRules(categories=("kind",), dates=("day",), impute={"dose": "mean", "age": "median", "*": "most_frequent"}),
    ColumnRules(categories=("kind",), encode="index", dates=("day",), impute="most_frequent"),
    ColumnRules(categories=("kind",), dates=("day",), impute="mean", per_client=True),
]


@pytest.mark.parametrize("rules", RUNS)
def test_clients_are_fitted_and_encoded_together_as_alone(
    population: Population, rules: ColumnRules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    batch = Population.batch
    monkeypatch.setattr(Population, "batch", lambda self, client: reads.append(client) or batch(self, client))
    together = fit_encoding(population, rules)
    assert reads == population.train_clients.tolist()
    folder = encode_population(population, together)
    content = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(encoding_module, "VALUES_AT_ONCE", 1)
    monkeypatch.setattr(encoding_module, "VALUES_HELD", 1)
    alone = fit_encoding(population, rules)
    assert alone == together and list(alone.columns) == list(together.columns)
    assert {path.name: path.read_bytes() for path in encode_population(population, alone).iterdir()} == content


def test_categories_that_no_training_row_has_are_zeros_or_the_last_index(tmp_path: Path) -> None:
    given = pa.table({"kind": ["b", "a", "b", "a"], "label": [0, 1, 0, 1]})
    test = pa.table({"kind": ["new", "b"], "label": [0, 1]})
    made = partitioning.make(given, tmp_path / "p", scheme="iid", clients=1, test=test)
    rows = made.test_batch(0)
    onehot = fit_encoding(made, ColumnRules(categories=("kind",)))(rows)
    assert onehot.select(["kind_a", "kind_b"]).to_pydict() == {"kind_a": [0, 0], "kind_b": [0, 1]}
    dropped = fit_encoding(made, ColumnRules(categories=("kind",), drop_first=True))(rows)
    assert dropped.schema.names == ["kind_b", "label"]
    index = fit_encoding(made, ColumnRules(categories=("kind",), encode="index"))(rows)
    assert index["kind"].to_pylist() == [2, 1]


@pytest.mark.parametrize(
    ("values", "names"),
    [([0.5, 2.0, 1e6], ["0.5", "2", "1e+06"]), ([2.0, 1234567.0, 1234568.0], ["2.0", "1234567.0", "1234568.0"])],
)
def test_columns_of_categories_that_are_floats_have_names_of_their_own(
    tmp_path: Path, values: list[float], names: list[str]
) -> None:
    given = pa.table({"kind": values, "label": [0, 1, 0]})
    made = partitioning.make(given, tmp_path / "p", scheme="iid", clients=1)
    for drop in (False, True):
        encoding = fit_encoding(made, ColumnRules(categories=("kind",), drop_first=drop))
        assert encoding.names_of(encoding.columns["kind"]) == [f"kind_{name}" for name in names[int(drop) :]]


def test_statistics_of_each_client_are_its_own(population: Population) -> None:
    encoding = fit_encoding(
        population, ColumnRules(categories=("kind",), dates=("day",), impute="mean", per_client=True)
    )
    trained, (held_out,) = population.train_clients.tolist(), population.test_clients.tolist()
    assert sorted(encoding.columns["dose"].own) == trained
    for client in [*trained, held_out]:
        batch = population.batch(client)
        cut = batch.num_rows - int(population.test_sizes[client])
        filled = encoding(batch, f"client {client}").to_pandas()["dose"][batch.to_pandas()["dose"].isna()]
        own = batch[:cut].to_pandas()["dose"].mean()
        assert filled.nunique() == 1
        assert filled.iloc[0] == pytest.approx(own if client in trained else encoding.columns["dose"].fill)
    content = json.loads(encoding.to_json(population))
    assert content["fit"] == "client" and set(content["columns"][0]["missing_by_client"]) == set(map(str, trained))
    assert content["features"][:2] == ["dose", f"kind_{encoding.columns['kind'].categories[0]}"]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([2, 1, 2], ["x_1", "x_2"]),
        ([3.0, 1.5, 3.0], ["x_1.5", "x_3"]),
        ([True, False, True], ["x_False", "x_True"]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ["x_a", "x_b"]),
        (pa.array([7, 5, 7]).dictionary_encode(), ["x_5", "x_7"]),
    ],
)
def test_values_of_any_type_are_categories(tmp_path: Path, values: Any, names: list[str]) -> None:
    given = pa.table({"x": values, "label": [0, 1, 0]})
    made = partitioning.make(given, tmp_path / "p", scheme="iid", clients=1)
    encoded = fit_encoding(made, ColumnRules(categories=("x",)))(made.batch(0))
    assert encoded.schema.names == [*names, "label"]
    order = made.batch(0)["x"].to_pylist()
    assert encoded[names[1]].to_pylist() == [int(value == max(order)) for value in order]


@pytest.mark.parametrize(
    ("dates", "days"),
    [
        (["1970-01-02", "1970-01-03 12:00:00"], [1.0, 2.5]),
        (pa.array([1, 3], pa.date32()), [1.0, 3.0]),
        (pa.array([86_400_000, 0], pa.date64()), [1.0, 0.0]),
        (pa.array([43_200, 0], pa.timestamp("s", "Europe/Berlin")), [0.5, 0.0]),
        (pa.array([86_400_000_000_000, 0], pa.timestamp("ns")), [1.0, 0.0]),
        (["1970-01-02T02:00:00+02:00", "1970-01-02 12:00Z"], [1.0, 1.5]),
        (["1970-01-01 12:00:00", "1970-01-02T00:00:00.000-0600"], [0.5, 1.25]),
    ],
)
def test_dates_are_days(tmp_path: Path, dates: Any, days: list[float]) -> None:
    given = pa.table({"day": dates, "label": [0, 1]})
    made = partitioning.make(given, tmp_path / "p", scheme="iid", clients=1)
    encoded = fit_encoding(made, ColumnRules(dates=("day",)))(made.batch(0))
    assert sorted(encoded["day"].to_pylist()) == sorted(days)


def signed(dose: list[str], **more: Any) -> pa.Table:
    rows = len(dose)
    return pa.table({"dose": dose, **more, "ward": [0, 1] * (rows // 2), "label": [0, 1] * (rows // 2)})


def of_wards(folder: Path, rows: pa.Table, rules: ColumnRules) -> tuple[Encoding, list[dict[str, Any]]]:
    """The encoding, and the encoded rows in their order in the table."""
    rows = rows.append_column("row", pa.array(range(len(rows))))
    missing = rules.missing_allowed(rows.schema, ["label", "ward"])
    population = partitioning.make(rows, folder / "p", scheme="natural", column="ward", missing=missing)
    encoding = fit_encoding(population, rules)
    batches = [encoding(population.batch(client), f"client {client}") for client in range(2)]
    return encoding, pa.Table.from_batches(batches).sort_by("row").to_pylist()


def test_each_column_may_have_a_rule_of_its_own(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "dose": [1.0, 4.0, None, 10.0],
            "age": [None, 20.0, 30.0, 40.0],
            "height": [None, 1.0, 1.0, 7.0],
            "kind": ["a", None, "b", "b"],
            "code": pa.array([4, 4, None, 7]),
            "ward": [0, 1, 0, 1],
            "label": [0, 1, 0, 1],
        }
    )
    rules = ColumnRules(
        categories=("kind", "code"),
        encode="index",
        impute={"dose": "mean", "age": -1.0, "kind": "unknown", "code": "most_frequent", "*": "median"},
    )
    encoding, found = of_wards(tmp_path, rows, rules)
    assert encoding.columns["kind"].categories == ("a", "b", "unknown")
    fills = {name: each.fill for name, each in encoding.columns.items() if name != "row"}
    assert fills == {"dose": 5.0, "age": -1.0, "height": 1.0, "kind": "unknown", "code": 4}
    assert [row["kind"] for row in found] == [0, 2, 1, 1] and [row["code"] for row in found] == [0, 0, 0, 1]
    assert [row["dose"] for row in found] == [1.0, 4.0, 5.0, 10.0] and found[0]["age"] == -1.0


def test_a_column_without_a_rule_has_no_missing_values() -> None:
    rules = ColumnRules(impute={"dose": "mean"})
    rows = pa.table({"dose": [1.0, None], "age": [None, 2.0], "label": [0, 1]})
    assert rules.missing_allowed(rows.schema, ["label"]) == ["dose"]
    with pytest.raises(InputError, match=r"visits: 'age' has nulls \(1 rows\): must be numbers"):
        check_features(rows, "label", [], "visits", rules)


@pytest.mark.parametrize("na_values", [("?", -9.0), {"dose": ("?", -9.0), "kind": ("?",), "count": (-9.0,)}])
def test_values_that_stand_for_missing_ones_are_filled(tmp_path: Path, na_values: Any) -> None:
    rows = signed(["1", "?", "3.5", "-9"], kind=["?", "b", "a", "b"], count=[-9, 2, 5, 5])
    rules = ColumnRules(categories=("kind",), encode="index", impute="mean", na_values=na_values)
    check_features(rows, "label", ["ward"], "visits", rules)
    encoding, found = of_wards(tmp_path, rows, rules)
    assert [row["dose"] for row in found] == [1.0, 2.25, 3.5, 2.25]
    assert [row["kind"] for row in found] == [1, 1, 0, 1] and encoding.columns["kind"].categories == ("a", "b")
    assert [row["count"] for row in found] == [4.0, 2.0, 5.0, 5.0]


def test_signs_of_missing_values_are_proposed_and_other_texts_refused(tmp_path: Path) -> None:
    rows = signed(["1", "?", "3.5", "2"])
    with pytest.raises(InputError, match=r"with '\?': .*set na_values = \[\"\?\"\], impute = \"median\" in"):
        check_features(rows, "label", ["ward"], "visits")
    with pytest.raises(InputError, match=r"'dose' has '\?': must be a number or one of data.columns.na_values"):
        of_wards(tmp_path, rows, ColumnRules(na_values=("NA",), impute="mean"))


def test_a_column_without_a_value_is_imputed_only_if_another_table_may_have_one() -> None:
    rows = pa.table({"dose": pa.array([None, None], pa.float64()), "kind": [None, "a"], "label": [0, 1]})
    rules = ColumnRules(categories=("kind",))
    with pytest.raises(InputError) as refused:
        check_features(rows, "label", [], "visits", rules)
    assert "'dose' is empty, 'kind' has nulls (1 rows)" in str(refused.value)
    assert 'set impute = "median" in [data.columns] and data.without = ["dose"], or' in str(refused.value)
    with pytest.raises(
        InputError, match=r"'dose' has nulls \(2 rows\), .*set impute = \"median\" in \[data.columns\], or"
    ):
        check_features(rows, "label", [], "visits", rules, is_part=True)
    check_features(rows, "label", [], "visits", ColumnRules(categories=("kind",), impute=0))


def test_all_wrong_columns_are_named_at_once_with_their_keys() -> None:
    given = table().append_column("note", pa.array([f"text {row}" for row in range(ROWS)]))
    with pytest.raises(InputError) as refused:
        check_features(given, "label", {"ward"}, "x.csv")
    message, nulls = str(refused.value), table()["dose"].null_count
    assert "\n" not in message and message.startswith(
        f"x.csv: 'dose' has nulls ({nulls} rows), 'kind' is string, 'age'"
    )
    assert "'day' is date32[day], 'note' is string: must be numbers without missing values" in message
    assert (
        'set categories = ["kind"], dates = ["day"], impute = "median" in [data.columns] and data.without = ["note"]'
        in message
    )
    assert 'data.without = ["dose", "kind", "age", "day", "note"]' in message
    check_features(given, "label", {"ward", "note"}, "x.csv", RULES)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"categories": ("kinds",)}, "column 'kinds' of data.columns.categories.*did you mean 'kind'"),
        ({"categories": ("label",)}, "column 'label' of data.columns.categories"),
        ({"categories": ("kind",), "dates": ("kind",)}, "data.columns.dates has 'kind', which data.columns.categories"),
        ({"categories": ("day",), "impute": 0.0}, "'day' is date32.*, whose values are no categories"),
        ({"dates": ("dose", "kind", "day"), "impute": 0.0}, "'dose' is double, whose values are no dates, 'kind' has "),
        ({"impute": {"dosis": "mean"}}, "column 'dosis' of data.columns.impute.*did you mean 'dose'"),
        ({"impute": {"dose": "most"}}, "data.columns.impute.dose = 'most': must be a number, or one of \"mean\""),
        ({"categories": ("kind",), "impute": {"kind": "mean"}}, "impute.kind = 'mean': must be \"most_frequent\" or a"),
        ({"na_values": {"dosis": (0,)}}, "column 'dosis' of data.columns.na_values.*did you mean 'dose'"),
        ({"categories": ("kind",), "dates": ("day",)}, "'dose' has nulls.*'kind' has nulls.*'day' has nulls"),
    ],
)
def test_wrong_rules_are_refused(rules: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_features(table(), "label", {"ward"}, "x.csv", ColumnRules(**rules))


BYTES = np.array([1, 2], np.uint8)


@pytest.mark.parametrize(
    ("codes", "rule"), [([1, 2], "one"), ([1, 2], 1.5), ([1, 2], float("inf")), (["a", "b"], 1.0), (BYTES, -1.0)]
)
def test_a_category_for_missing_ones_has_the_type_of_the_others(tmp_path: Path, codes: Any, rule: Any) -> None:
    given = pa.table({"k": codes, "label": [0, 1]})
    made = partitioning.make(given, tmp_path / "p", scheme="iid", clients=1)
    with pytest.raises(InputError, match=rf"data.columns.impute.k = {rule!r}: must be a category like .*, of the same"):
        fit_encoding(made, ColumnRules(categories=("k",), impute={"k": rule}))


def test_columns_that_cannot_be_fitted_are_refused(tmp_path: Path) -> None:
    given = pa.table({"x": pa.array([None, None], pa.float64()), "k": ["a", "b"], "k_a": [1, 2], "label": [0, 1]})
    made = partitioning.make(given, tmp_path / "p", scheme="iid", clients=1, missing=["x"])
    with pytest.raises(InputError, match=r"column 'x' has no value in the training rows .*data.without = \['x'\]"):
        fit_encoding(made, ColumnRules(categories=("k",), impute="mean"))
    with pytest.raises(InputError, match="have two named 'k_a'"):
        fit_encoding(made, ColumnRules(categories=("k",)))
    assert isinstance(fit_encoding(made, ColumnRules(categories=("k",), encode="index", impute=0.0)), Encoding)


@pytest.mark.parametrize("rules", [ColumnRules(impute="mean"), ColumnRules(categories=("x",))])
def test_infinite_values_cannot_be_fitted(tmp_path: Path, rules: ColumnRules) -> None:
    given = pa.table({"x": [1.0, float("inf")], "label": [0, 1]})
    made = partitioning.make(given, tmp_path / "p", scheme="iid", clients=1)
    with pytest.raises(InputError, match=r"column 'x' has infinite values in the training rows .*without = \['x'\]"):
        fit_encoding(made, rules)


def test_missing_values_are_refused_unless_the_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing values in column 'kind'"):
        partitioning.make(table(), tmp_path / "p", scheme="iid", clients=2, missing=["dose", "age", "day"])
    with pytest.raises(InputError, match="standardise is True and missing is"):
        partitioning.make(table(), tmp_path / "p", scheme="iid", clients=2, missing=["dose"], standardise=True)


def test_categories_may_have_half_precision(tmp_path: Path) -> None:
    rows = pa.table({"code": np.array([1.5, 2.0, 1.5, -0.0], np.float16), "label": [0, 1, 0, 1]})
    population = partitioning.make(rows, tmp_path / "p", scheme="iid", clients=1)
    encoding = fit_encoding(population, ColumnRules(categories=("code",), encode="index"))
    assert encoding.columns["code"].categories == (0.0, 1.5, 2.0)
    assert sorted(encoding(population.batch(0), "client 0").column("code").to_pylist()) == [0, 1, 1, 2]


def test_both_zeros_are_one_category(tmp_path: Path) -> None:
    zeros = np.where(np.arange(20) % 2 == 0, 0.0, -0.0)
    rows = pa.table({"code": [*zeros, *[2.0] * 15], "label": [0, 1] * 17 + [0]})
    population = partitioning.make(rows, tmp_path / "p", scheme="iid", clients=1)
    encoding = fit_encoding(population, ColumnRules(categories=("code",), impute="median"))
    assert encoding.columns["code"].categories == (0.0, 2.0) and encoding.columns["code"].fill == 0.0
    encoded = encoding(population.batch(0), "client 0")
    assert sum(encoded.column("code_0").to_pylist()) == 20 and sum(encoded.column("code_2").to_pylist()) == 15
