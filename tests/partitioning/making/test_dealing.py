"""Every scheme through `make`: what it deals is what is stored, and `verify` agrees."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import partitioning
from partitioning import SCHEMES, InputError, Population
from partitioning.sources.opening import open_source
from partitioning.sources.source import TableSource
from tests.kit.tables import LABELS, rich_table

HEIGHTS = np.random.default_rng(8).normal(170, 10, 200)
OPTIONS = {
    "iid": {"clients": 7},
    "quantity": {"clients": 7, "size_alpha": 0.5},
    "dirichlet-qp": {"clients": 7, "features": ["kind", "height"], "feature_alpha": 0.3},
    "dirichlet": {"clients": 7, "label_alpha": 0.1},
    "dirichlet-per-class": {"clients": 7, "label_alpha": 0.1},
    "shards": {"clients": 7},
    "shards-unbalanced": {"clients": 7, "shards": 50},
    "labels-per-client": {"clients": 6, "classes_per_client": 0.4},
    "counts": {"table": [[3, 2, 1], [0, 5, 0]]},
    "natural": {"column": "kind"},
    "domains": {"domain": "kind", "clients_per_domain": 2, "fraction": 0.25},
    "feature-noise": {"clients": 7},
    "concept": {"clients": 7},
}


def table():
    return rich_table().append_column("height", pa.array(HEIGHTS))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_makes_a_sound_population(scheme, tmp_path):
    made = partitioning.make(table(), tmp_path / "p", scheme=scheme, seed=3, local_test=0.2, **OPTIONS[scheme])
    assert partitioning.verify(made.path) == []
    assert len(made) == OPTIONS[scheme].get("clients", len(made))
    assert made.schema.equals(table().schema)
    for client in range(len(made)):
        rows = made.rows(client)
        assert made.batch(client).column("row").to_pylist() == rows.tolist() or scheme == "feature-noise"
    again = partitioning.make(table(), tmp_path / "q", scheme=scheme, seed=3, local_test=0.2, **OPTIONS[scheme])
    for file in made.path.iterdir():
        assert file.read_bytes() == (again.path / file.name).read_bytes()


def test_features_are_counted_by_all_and_sampled_where_they_have_a_prior(tmp_path):
    def score(**options):
        made = partitioning.make(
            table(), tmp_path / str(len(options)), scheme="dirichlet-qp", clients=8, features=["height"], **options
        )
        counts = made.feature_counts["height"]
        assert counts.sum(axis=1).tolist() == made.sizes.tolist()
        assert made.manifest.report["problem"] == (2 if options else 1)
        return partitioning.statistics.c_score(counts)

    assert score(feature_alpha=0.05) > score() + 0.2


def test_noise_grows_with_the_client_and_leaves_labels_and_the_rest(tmp_path):
    tables = table().append_column("flag", pa.array(np.arange(200) % 2 == 0)).drop_columns(["tensor"])
    made = partitioning.make(tables, tmp_path / "p", scheme="feature-noise", clients=5, strength=2.0)
    errors = []
    for client in range(5):
        batch, rows = made.batch(client), made.rows(client)
        assert batch.column("label").to_pylist() == LABELS[rows].tolist()
        assert batch.column("encoded").to_pylist() == tables.column("encoded").take(rows).to_pylist()
        pixels = np.array(batch.column("image").to_pylist())
        assert pixels.min() >= 0 and pixels.max() <= 255 and pixels.dtype == np.int64
        errors.append(np.std(np.array(batch.column("height")) - HEIGHTS[rows]))
    assert errors[0] == 0
    assert np.allclose(errors[1:], 2.0 * HEIGHTS.std() * np.arange(1, 5) / 4, rtol=0.4)


def test_noise_needs_numbers(tmp_path):
    words = pa.table({"label": LABELS, "word": LABELS})
    with pytest.raises(InputError, match="no column is numeric"):
        partitioning.make(words, tmp_path / "p", scheme="feature-noise", clients=5)
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("column", ["label", "kind"])
def test_concept_renames_what_is_stored(tmp_path, column):
    made = partitioning.make(table(), tmp_path / "p", scheme="concept", clients=5, label=column, strength=0.5)
    names = partitioning.concept(LABELS, clients=5, strength=0.5).shift.names
    classes = np.array(["ant", "bee", "cat"])
    for client in range(5):
        codes = np.searchsorted(classes, LABELS[made.rows(client)])
        assert made.batch(client).column(column).to_pylist() == classes[names[client]][codes].tolist()
        assert made.batch(client).column("row").to_pylist() == made.rows(client).tolist()


@pytest.mark.parametrize("scheme", ["feature-noise", "concept"])
@pytest.mark.parametrize("option", [{"index_only": True}, {"features": ["height"]}])
def test_changed_samples_are_not_indexed_or_counted(tmp_path, scheme, option):
    with pytest.raises(InputError, match=f"changes the samples, and {next(iter(option))} would describe the old ones"):
        partitioning.make(table(), tmp_path / "p", scheme=scheme, clients=5, **option)


FILES = {"table.csv": "cat,ant\n1,2\n0,4\n", "table.toml": "[[client]]\ncat = 1\nant = 2\n[[client]]\nant = 4\n"}


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize("name", FILES)
def test_a_table_of_counts_may_be_a_file(tmp_path, name, kind):
    (tmp_path / name).write_text(FILES[name])
    made = partitioning.make(table(), tmp_path / "p", scheme="counts", table=kind(tmp_path / name))
    assert made.class_counts.tolist() == [[2, 0, 1], [4, 0, 0]]
    assert made.manifest.parameters == {"table": [[2, 0, 1], [4, 0, 0]]}


def test_sources_are_domains_also_when_they_are_streamed(tmp_path):
    import pyarrow.parquet as pq

    parts = {"glass": table().slice(0, 80), "paper": table().slice(80)}
    for name, part in parts.items():
        pq.write_table(part.drop_columns(["tensor"]), tmp_path / f"{name}.parquet", row_group_size=17)
    streamed = partitioning.make(
        [open_source(tmp_path / f"{name}.parquet") for name in parts],
        tmp_path / "p",
        scheme="domains",
        clients_per_domain=3,
        equal_sizes=True,
        test={name: part.drop_columns(["tensor"]).slice(0, 10) for name, part in parts.items()},
        memory=5000,
    )
    assert streamed.domains.to_pylist() == ["glass"] * 3 + ["paper"] * 3
    assert streamed.sizes.tolist() == [27, 27, 26] * 2
    assert streamed.manifest.counts.source_rows == 200
    assert [int(max(streamed.rows(client))) // 80 for client in range(3)] == [0, 0, 0]
    assert streamed.test_batch(0, domain="paper").column("row").to_pylist() == list(range(80, 90))
    assert partitioning.verify(streamed.path) == []
    held = partitioning.make(
        [TableSource(part.drop_columns(["tensor"]), name) for name, part in parts.items()],
        tmp_path / "q",
        scheme="domains",
        clients_per_domain=3,
        equal_sizes=True,
    )
    assert [streamed.batch(client).equals(held.batch(client)) for client in range(6)] == [True] * 6


def test_several_sources_are_one_for_the_other_schemes(tmp_path):
    halves = [TableSource(table().slice(0, 90), "a"), TableSource(table().slice(90), "b")]
    made = partitioning.make(halves, tmp_path / "p", scheme="iid", clients=4)
    whole = partitioning.make(table(), tmp_path / "q", scheme="iid", clients=4)
    assert np.array_equal(made.row_numbers, whole.row_numbers)
    assert made.manifest.dataset == "a, b"
    assert Population.open(made.path).batch(2).equals(whole.batch(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "natural"}, "scheme 'natural' needs column: give column"),
        ({"scheme": "natural", "column": "knd"}, "has no column 'knd'.*did you mean 'kind'"),
        (
            {"scheme": "natural", "column": "height"},
            "column 'height' of table is of type double: name one of whole numbers",
        ),
        ({"scheme": "natural", "column": "kind", "clients": 3}, "finds the clients in the data: leave clients out"),
        ({"scheme": "natural", "column": "gaps"}, "column 'gaps' of table has no owner in 1 rows: must have one"),
        ({"scheme": "domains", "domain": "gaps"}, "column 'gaps' of table has no owner in 1 rows"),
        ({"scheme": "iid", "clients": 3, "site": "gaps"}, "column 'gaps' of table has no owner in 1 rows"),
        ({"scheme": "domains"}, "scheme 'domains' needs domain"),
        ({"scheme": "natural", "column": 0}, "column is 0: give a column's name as text"),
        ({"scheme": "domains", "domain": None}, "domain is None: give a column's name as text"),
        ({"scheme": "counts", "table": [[0, 0, 0]]}, "no client has a sample of table: choose other parameters"),
        ({"scheme": "counts", "table": [[0, 0, 0]], "index_only": True}, "no client has a sample of table"),
        ({"scheme": "iid"}, "scheme 'iid' needs clients: give the number of clients"),
        ({"scheme": "iid", "clients": 3, "features": ["hieght"]}, "did you mean 'height'"),
        ({"scheme": "natural", "column": "kind", "test_clients": 3}, "leave at least one client for training"),
        ({"scheme": "dirichlet-qp", "clients": 3, "feature_alpha": 0.1}, "feature_alpha is given without features"),
    ],
)
def test_wrong_requests_are_one_line_and_leave_nothing(tmp_path, options, message):
    source = table().append_column("gaps", pa.array(["", *("a" * (len(table()) - 1))]))
    with pytest.raises(InputError, match=message) as caught:
        partitioning.make(source, tmp_path / "p", **options)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_long_list_of_columns_is_cut(tmp_path):
    wide = table()
    for number in range(80):
        wide = wide.append_column(f"reading {number}", wide["row"])
    named = {"scheme": "natural", "column": "labl"}
    for options in ({"scheme": "iid", "clients": 2, "label": "labl"}, named):
        with pytest.raises(InputError, match=r"in all\); did you mean 'label'\?") as caught:
            partitioning.make(wide, tmp_path / "p", **options)
        assert len(str(caught.value)) < 400


def test_sources_with_other_columns_are_refused(tmp_path):
    sources = [TableSource(table(), "a"), TableSource(table().drop_columns(["row"]), "b")]
    with pytest.raises(InputError, match=r"b lacks 'row', unlike a: give sources with the same"):
        partitioning.make(sources, tmp_path / "p", scheme="domains")
    with pytest.raises(InputError, match="two sources are named 'a'"):
        partitioning.make(sources[:1] * 2, tmp_path / "p", scheme="domains")


@pytest.mark.parametrize("scheme", ["concept", "counts"])
def test_a_test_set_may_have_classes_that_the_samples_lack(tmp_path, scheme):
    samples = pa.table({"label": ["a", "c", "d"] * 20, "x": np.arange(60.0)})
    options = {"clients": 5} if scheme == "concept" else {"table": [[1, 2, 3], [4, 5, 6]]}
    test = pa.table({"label": ["a", "b", "c", "d"], "x": np.arange(4.0)})
    made = partitioning.make(samples, tmp_path / "p", scheme=scheme, test=test, **options)
    assert made.manifest.classes == ["a", "b", "c", "d"]
    assert made.class_counts[:, 1].sum() == 0
    assert partitioning.verify(made.path) == []


def test_columns_of_maps_are_read_back(tmp_path):
    import pyarrow.parquet as pq

    maps = pa.array([[("a", 1)]] * 40, pa.map_(pa.string(), pa.int64()))
    pq.write_table(pa.table({"label": [0, 1] * 20, "m": maps}), tmp_path / "t.parquet")
    made = partitioning.make(tmp_path / "t.parquet", tmp_path / "p", scheme="iid", clients=3)
    assert partitioning.verify(made.path) == []


def test_noise_does_not_depend_on_how_the_source_is_cut(tmp_path):
    numbers = pa.table({"label": np.arange(20_000) % 3, "x": np.random.default_rng(0).normal(5e4, 1e3, 20_000)})
    cut = pa.Table.from_batches(numbers.to_batches(max_chunksize=777))
    first, second = (
        partitioning.make(each, tmp_path / str(number), scheme="feature-noise", clients=4)
        for number, each in enumerate((numbers, cut))
    )
    assert (first.path / "manifest.json").read_bytes() == (second.path / "manifest.json").read_bytes()


def test_noise_on_missing_values_is_refused(tmp_path):
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"label": [0, 1, 0], "x": [1.0, None, 2.0]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="missing values in column 'x'"):
        partitioning.make(tmp_path / "t.parquet", tmp_path / "p", scheme="feature-noise", clients=2)


def test_noise_leaves_the_columns_by_which_rows_are_divided(tmp_path):
    place = np.arange(60)
    rows = pa.table({"label": place / 7, "x": place / 2, "kind": place % 3, "test": place % 4 == 0})
    made = partitioning.make(
        rows, tmp_path / "p", scheme="feature-noise", clients=4, strength=5.0, by="kind", local_test="test"
    )
    assert partitioning.verify(made.path) == []
    for client in range(4):
        stored, given = made.batch(client), rows.take(made.rows(client))
        assert stored["kind"].to_pylist() == given["kind"].to_pylist()
        assert stored["test"].to_pylist() == given["test"].to_pylist()
        assert (stored["x"].to_pylist() == given["x"].to_pylist()) == (client == 0)


def test_noise_passes_over_gaps_in_columns_without_numbers(tmp_path):
    rows = pa.table({"label": [0, 1] * 20, "x": np.arange(40.0), "note": [None, "a"] * 20})
    made = partitioning.make(rows, tmp_path / "p", scheme="feature-noise", clients=2, missing=["note"])
    assert sum(made.batch(client)["note"].null_count for client in range(2)) == 20
    for value in (None, float("nan"), float("inf")):
        wrong = rows.set_column(1, "x", pa.array([value, *range(39)], pa.float64()))
        with pytest.raises(InputError, match="column 'x' has values that are missing, NaN or infinite, and cannot"):
            partitioning.make(wrong, tmp_path / "q", scheme="feature-noise", clients=2, missing=["note", "x"])


def test_concept_keeps_the_order_of_a_dictionary(tmp_path):
    sizes = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2] * 10, pa.int8()), ["small", "big", "huge"], ordered=True)
    made = partitioning.make(pa.table({"label": sizes}), tmp_path / "p", scheme="concept", clients=3)
    assert made.schema.field("label").type == sizes.type
    assert partitioning.verify(made.path) == []


class Changing:
    """A source that has other rows when it is read again."""

    name = "changing"

    def __init__(self, *tables):
        self.tables = list(tables)
        self.schema = tables[0].schema

    def batches(self, columns=None):
        table = self.tables.pop(0) if len(self.tables) > 1 else self.tables[0]
        return iter(table.select(columns or self.schema.names).to_batches())


@pytest.mark.parametrize("rows", [[0, 1] * 30, [0, 1] * 20 + [1], [1, 0] * 20, [0, 1] * 15])
def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path, rows):
    first, then = (pa.table({"label": labels}) for labels in ([0, 1] * 20, rows))
    with pytest.raises(InputError, match="changing changed while it was read"):
        partitioning.make(Changing(first, then), tmp_path / "p", scheme="iid", clients=4)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("dog\n1\n", "column 'dog', which is no label: the labels are 'ant', 'bee', 'cat'"),
        ("ant\n-1\n", "the value -1: give whole numbers"),
        ("ant\n1.5\n", "the value 1.5: give whole numbers"),
        ("ant,ant\n1,2\n", "several columns named 'ant'"),
        ("ant,bee\n", "has no rows"),
        ("ant,bee\n1,\n2,3\n", "has the value None"),
        ("ant\n9223372036854775807\n9223372036854775807\n", "table has the number 9223372036854775807"),
    ],
)
def test_odd_tables_of_counts_are_refused(tmp_path, content, message):
    (tmp_path / "table.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        partitioning.make(table(), tmp_path / "p", scheme="counts", table=str(tmp_path / "table.csv"))


def test_test_sets_are_of_domains_that_there_are(tmp_path):
    with pytest.raises(InputError, match=r"test names the domain 'antt', which no client has.*did you mean 'ant'"):
        partitioning.make(table(), tmp_path / "p", scheme="domains", domain="kind", test={"antt": table()})


def test_a_path_is_a_source_and_other_things_are_none(tmp_path):
    (tmp_path / "t.csv").write_text("label,x\n" + "a,1\nb,2\n" * 10)
    assert len(partitioning.make(str(tmp_path / "t.csv"), tmp_path / "p", scheme="iid", clients=3)) == 3
    with pytest.raises(InputError, match="the data are int: must be a pair"):
        partitioning.make(3, tmp_path / "q", scheme="iid", clients=1)
