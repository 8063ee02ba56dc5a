"""Moments against Numpy's own, on clients of every size and columns of every form."""

import shutil

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import partitioning
from partitioning import InputError, Population
from partitioning.measures.numeric import numeric_columns
from partitioning.store import moments
from partitioning.store.moments import Moment
from tests.kit.tables import edit_table, rich_table, with_column

COLUMNS = {"image": 12, "tensor": 6, "row": 1, "flag": 1}


def table_with_flags():
    return rich_table().append_column("flag", pa.array(np.arange(200) % 3 == 0))


@pytest.fixture(scope="module", params=[2**20, 50])
def made(tmp_path_factory, request):
    options = {"scheme": "quantity", "clients": 9, "size_alpha": 0.3, "min_size": 0, "seed": 2, "local_test": 0.3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments, "_VALUES", request.param)  # 50: two rows at once, two clients a row group
        yield partitioning.make(table_with_flags(), tmp_path_factory.mktemp("made") / "p", standardise=True, **options)


@pytest.fixture
def population(made, tmp_path):
    return Population.open(shutil.copytree(made.path, tmp_path / "p"))


def values(population, client):
    batch = population.batch(client)
    batch = batch.slice(0, batch.num_rows - int(population.test_sizes[client]))
    rows = {
        "image": [np.ravel(row) for row in batch["image"].to_pylist()],
        "tensor": batch["tensor"].storage.to_pylist(),
        "row": batch["row"].to_pylist(),
        "flag": batch["flag"].to_pylist(),
    }
    parts = [np.array(rows[name], dtype=np.float64).reshape(batch.num_rows, size) for name, size in COLUMNS.items()]
    return np.concatenate(parts, axis=1)


def assert_moment(moment, rows):
    assert moment.n == len(rows)
    expected = (rows.mean(axis=0), rows.std(axis=0)) if len(rows) else (np.zeros(20), np.zeros(20))
    np.testing.assert_allclose(moment.mean, expected[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(moment.std, expected[1], rtol=1e-12, atol=1e-12)


def test_each_clients_moment_is_of_its_training_part(population):
    assert len(population.moments) == 9
    assert population.test_sizes.sum() > 0
    for client in range(9):
        assert_moment(population.moments.client(client), values(population, client))
    assert population.moments.columns == {
        "image": slice(0, 12),
        "tensor": slice(12, 18),
        "row": slice(18, 19),
        "flag": slice(19, 20),
    }
    assert partitioning.verify(population.path) == []


@pytest.mark.parametrize("clients", [[0], [8, 1, 1, 4], range(9), []])
def test_moments_of_several_clients_are_those_of_all_their_rows(population, clients):
    rows = [values(population, client) for client in sorted(set(clients))]
    assert_moment(population.moments.together(clients), np.concatenate([np.zeros((0, 20)), *rows]))


def test_clients_that_are_not_there_are_index_errors(population):
    for wrong in (lambda: population.moments.client(9), lambda: population.moments.together([0, -1])):
        with pytest.raises(IndexError, match="0 to 8"):
            wrong()


@given(value=st.floats(-1e300, 1e300), sizes=st.lists(st.integers(0, 7), min_size=1, max_size=6).filter(sum))
def test_a_constant_column_has_exactly_its_value_and_no_deviation(value, sizes):
    parts = [Moment.of(np.full((size, 1), value)) for size in sizes]
    whole = Moment.pool(*(np.array([getattr(part, name) for part in parts]) for name in ("n", "mean", "std")))
    assert (whole.n, whole.mean.tolist(), whole.std.tolist()) == (sum(sizes), [value], [0.0])


def test_rows_far_from_zero_keep_their_deviation():
    rows = 1e9 + np.arange(5.0)[:, None]
    assert Moment.of(rows).std[0] == pytest.approx(np.sqrt(2), rel=1e-12)


def test_only_columns_of_numbers_have_moments():
    schema = table_with_flags().schema
    assert numeric_columns(schema, "label") == COLUMNS
    assert list(numeric_columns(schema, "row")) == ["image", "tensor", "flag"]
    with pytest.raises(InputError, match="no numeric column beside 'label'"):
        partitioning.make(
            pa.table({"label": [1, 2], "word": ["a", "b"]}), "never", scheme="iid", clients=1, standardise=True
        )


def test_an_index_has_the_same_moments_as_the_samples(population, tmp_path):
    manifest = population.manifest
    options = {"scheme": manifest.scheme, "clients": 9, "seed": manifest.seed, **manifest.parameters}
    index = partitioning.make(
        table_with_flags(), tmp_path / "index", standardise=True, index_only=True, local_test=0.3, **options
    )
    for name in ("moments.parquet", "rows.parquet"):
        assert (index.path / name).read_bytes() == (population.path / name).read_bytes()


def test_without_standardise_there_are_none(tmp_path, table):
    assert partitioning.make(table, tmp_path / "p", scheme="iid", clients=2).moments is None


@pytest.mark.parametrize(
    "change",
    [
        *(with_column("mean", rows) for rows in ([[1.0]] * 9, [[1.0] * 21] * 9, [None] * 9, [[None] * 20] * 9)),
        *(with_column("n", rows) for rows in ([None] * 9, [-1] * 9)),
        *(lambda table, rows=rows: table.slice(0, rows) for rows in (0, 2)),
        *(
            lambda table, columns=columns: table.replace_schema_metadata({"columns": columns})
            for columns in ("{}", "[]", "x", '{"row": -1}', '{"row": 20.5}', '{"row": "a"}', '{"row": 100000000000}')
        ),
    ],
)
def test_moments_of_another_form_are_refused(population, change):
    edit_table(population.path, "moments.parquet", change)
    with pytest.raises(InputError, match=r"moments\.parquet (has|does not have) .*: make the population again"):
        Population.open(population.path).moments.together(range(9))
    assert any("moments" in line for line in partitioning.verify(population.path))


def test_damaged_moments_are_found(population):
    path = population.path / "moments.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"moments\.parquet: its sha256 is not the manifest's"):
        Population.open(population.path).moments  # noqa: B018
    assert len(partitioning.verify(population.path)) == 1
