import pyarrow as pa
import pytest

from partitioning import Population
from raysim.config import Experiment
from raysim.data import load
from raysim.errors import InputError
from raysim.population import population_of

BASE = {"partition": {"clients": 4}}


def rows(batches: list[pa.RecordBatch]) -> list[str]:
    return [str(row) for batch in batches for row in batch.to_pylist()]


def test_a_share_of_the_rows_becomes_the_global_test_set(tmp_path) -> None:
    experiment = Experiment.of({**BASE, "data": {"dataset": "digits", "test": 0.2}})
    population = population_of(experiment, tmp_path / "population")
    test = rows([population.test_batch(i) for i in range(len(population.test_slices))])
    train = rows([population.batch(client) for client in range(4)])
    assert len(test) == 359
    assert sorted(test + train) == sorted(rows(load("digits").train.to_batches()))


def test_a_second_table_may_be_the_global_test_set(tmp_path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(load("digits").train.slice(0, 50), tmp_path / "t.parquet")
    experiment = Experiment.of({**BASE, "data": {"dataset": "digits", "test": f"file:{tmp_path / 't.parquet'}"}})
    population = population_of(experiment, tmp_path / "population")
    assert sum(population.test_slices) == 50 and population.sizes.sum() == 1797


def test_a_made_population_is_opened_where_it_is(tmp_path) -> None:
    made = population_of(Experiment.of({**BASE, "data": {"dataset": "digits"}}), tmp_path / "made")
    again = population_of(Experiment.of({"data": {"population": str(made.path)}}), tmp_path / "unused")
    assert isinstance(again, Population) and again.path == made.path
    with pytest.raises(InputError):
        population_of(Experiment.of({"data": {"population": str(tmp_path / "nosuch")}}), tmp_path / "unused")
