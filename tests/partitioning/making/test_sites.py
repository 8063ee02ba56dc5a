"""Populations whose clients are each at a site: files, folders with some of them, and what is refused."""

import pickle
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest

import partitioning
from partitioning import InputError, Population, rewrite, verify
from partitioning.cli.commands import main
from partitioning.schemes.registry import SCHEMES
from tests.kit.tables import edit_table, with_column

ROWS = 120
CITIES = ["york", "bath", "cork"]


@pytest.fixture
def wards() -> pa.Table:
    """Twelve hospitals in three cities, in an order that mixes them."""
    hospital = np.arange(ROWS) % 12
    return pa.table(
        {
            "x": np.arange(float(ROWS)),
            "label": np.arange(ROWS) // 12 % 2,
            "hospital": hospital,
            "city": pa.array([CITIES[number % 3] for number in hospital]).dictionary_encode(),
        }
    )


@pytest.fixture
def population(tmp_path, wards):
    return partitioning.make(wards, tmp_path / "p", scheme="natural", column="hospital", site="city", folds=3)


@contextmanager
def only(population: Population, *sites: str) -> Iterator[Population]:
    """The folder with the shards of these sites alone."""
    for site, shard in zip(sorted(CITIES), population.manifest.shards, strict=True):
        if site not in sites:
            (population.path / shard.name).unlink()
    yield Population.open(population.path, sites=sites)


def test_clients_of_a_site_are_neighbours_and_share_no_shard(population, wards):
    assert population.sites.to_pylist() == ["bath"] * 4 + ["cork"] * 4 + ["york"] * 4
    assert [shard.batches for shard in population.manifest.shards] == [4, 4, 4]
    for client, (name, site) in enumerate(zip(population.names.to_pylist(), population.sites.to_pylist(), strict=True)):
        batch = population.batch(client)
        assert set(batch["hospital"].to_pylist()) == {int(name)}
        assert set(batch["city"].to_pylist()) == {site}
    assert sorted(population.row_numbers.tolist()) == list(range(ROWS))
    assert (population.manifest.site, population.manifest.dividing) == ("city", ["hospital", "city"])
    assert verify(population.path) == []


def test_the_domain_may_be_the_site_or_lie_in_one(tmp_path, wards):
    of_cities = partitioning.make(
        wards, tmp_path / "a", scheme="domains", domain="city", clients_per_domain=2, site="city"
    )
    assert of_cities.sites.to_pylist() == of_cities.domains.to_pylist() == sorted([*CITIES, *CITIES])
    nested = partitioning.make(wards, tmp_path / "b", scheme="domains", domain="hospital", site="city")
    # The hospitals 0, 3, 6 and 9 are in York, in the order of their names.
    assert nested.domains.to_pylist()[-4:] == ["0", "3", "6", "9"]
    assert nested.sites.to_pylist()[-4:] == ["york"] * 4


@pytest.mark.parametrize("scheme", sorted({*SCHEMES} - {"natural", "domains", "counts", "shards-unbalanced"}))
def test_clients_that_the_data_do_not_name_keep_their_numbers(tmp_path, wards, scheme):
    at_one = wards.set_column(3, "city", pa.array(["york"] * ROWS))
    with_site = partitioning.make(at_one, tmp_path / "a", scheme=scheme, clients=3, site="city")
    without = partitioning.make(at_one, tmp_path / "b", scheme=scheme, clients=3)
    assert with_site.sites.to_pylist() == ["york"] * 3
    assert without.sites is None
    assert with_site.row_numbers.tolist() == without.row_numbers.tolist()
    with pytest.raises(
        InputError, match=r"site is 'city' and client 0 has rows of '\w+' and of '\w+'.*scheme 'domains'"
    ):
        partitioning.make(wards, tmp_path / "c", scheme=scheme, clients=3, site="city")
    assert not (tmp_path / "c").exists()


def test_what_has_no_site_is_refused(tmp_path, wards):
    with pytest.raises(InputError, match="no column 'town': choose 'x', 'label', 'hospital', 'city'"):
        partitioning.make(wards, tmp_path / "p", scheme="iid", clients=2, site="town")
    one = wards.slice(0, 1)
    with pytest.raises(InputError, match="client 1 has no row that would say its site: ask for a min_size"):
        partitioning.make(one, tmp_path / "p", scheme="quantity", clients=2, min_size=0, site="city")
    with pytest.raises(InputError, match="column 'x' of table is of type double: name one of whole numbers or strings"):
        partitioning.make(wards, tmp_path / "p", scheme="iid", clients=2, site="x")


def test_a_folder_of_one_site_opens_for_that_site_alone(population):
    whole = {client: population.batch(client) for client in range(12)}
    with only(population, "cork") as part:
        assert part.are_here.tolist() == [False] * 4 + [True] * 4 + [False] * 4
        assert part.sizes.tolist() == [10] * 12
        assert part.batch(5).equals(whole[5])
        assert part.fold(1).batch(5).equals(whole[5])
        assert pickle.loads(pickle.dumps(part.fold(1))).batch(5).equals(whole[5])
        assert part.fingerprint == population.fingerprint
        for view in (part, part.fold(1), pickle.loads(pickle.dumps(part))):
            with pytest.raises(InputError, match="without the site of client 3: its samples must be read at that site"):
                view.batch(3)
        with pytest.raises(InputError, match=r"shard-00000\.arrow is missing"):
            Population.open(population.path)
        assert verify(population.path, ["cork"]) == []


def test_a_folder_without_any_samples_knows_all_about_them(population):
    schema = population.schema
    with only(population) as driver:
        assert driver.schema.equals(schema, check_metadata=True)
        assert driver.sites.to_pylist() == population.sites.to_pylist()
        assert not driver.are_here.any()


def test_samples_that_are_there_are_not_read_for_other_sites(population):
    with pytest.raises(InputError, match="without the site of client 0"):
        Population.open(population.path, sites=("york",)).batch(0)


def test_wrong_sites_are_refused(tmp_path, population, wards):
    with pytest.raises(InputError, match="no site 'yorck': choose 'bath', 'cork', 'york'; did you mean 'york'"):
        Population.open(population.path, sites=["yorck"])
    partitioning.make(wards, tmp_path / "q", scheme="iid", clients=2)
    with pytest.raises(InputError, match="has no sites: make it again with a site column"):
        Population.open(tmp_path / "q", sites=())


def test_other_columns_leave_sites_apart(tmp_path, population):
    again = rewrite(population, tmp_path / "q", lambda batch, _: batch.drop_columns("x"))
    assert again.sites.equals(population.sites)
    assert [shard.batches for shard in again.manifest.shards] == [4, 4, 4]
    shutil.rmtree(population.path)
    assert Population.open(again.path, sites=()).schema.names == ["label", "hospital", "city"]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        pytest.param(["bath"] * 3 + ["york"] * 9, "a shard holds clients of two sites", id="two sites in a shard"),
        pytest.param([None] + ["york"] * 11, "missing values in column 'site'", id="a client nowhere"),
    ],
)
def test_damaged_sites_are_found(population, values, told):
    edit_table(population.path, "clients.parquet", with_column("site", values))
    try:
        findings = verify(population.path)
    except InputError as error:
        findings = [str(error)]
    assert told in " ".join(findings)


def test_an_index_has_sites_too(tmp_path, wards):
    index = partitioning.make(wards, tmp_path / "p", scheme="natural", column="hospital", site="city", index_only=True)
    assert Population.open(index.path, sites=["cork"]).sites.to_pylist().count("cork") == 4


def test_the_command_line_takes_a_site_and_tells_of_it(tmp_path, wards, capsys):
    import pyarrow.parquet as pq

    pq.write_table(wards, tmp_path / "wards.parquet")
    out = str(tmp_path / "p")
    options = ["--scheme", "natural", "--column", "hospital", "--site", "city"]
    for arguments in (["make", str(tmp_path / "wards.parquet"), "--out", out, *options], ["inspect", out]):
        with pytest.raises(SystemExit, match=r"^0$"):
            main(arguments)
    assert "clients by site" in capsys.readouterr().out
    (tmp_path / "p" / "shard-00000.arrow").unlink()
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["verify", out, "--site", "cork", "--site", "york"])
