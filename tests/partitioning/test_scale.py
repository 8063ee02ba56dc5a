"""What a large population rests on: compact columns, read in parts, and one call for many clients."""

import numpy as np
import pytest

import partitioning
from partitioning import Population, verification, writing
from tests.partitioning.conftest import rich_table


@pytest.fixture
def folder(tmp_path):
    options = {"scheme": "dirichlet-qp", "clients": 8, "label_alpha": 0.3, "seed": 4, "test_clients": 3}
    partitioning.make(rich_table(), tmp_path / "p", test=rich_table().slice(0, 40), local_test=0.2, **options)
    return tmp_path / "p"


@pytest.mark.parametrize("rows", [1, 60, 2**16])
def test_verify_finds_the_same_in_blocks_of_any_size(folder, monkeypatch, rows):
    monkeypatch.setattr(verification, "_ROWS", rows)
    assert partitioning.verify(folder) == []
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"ant"', '"auk"'))
    ants = Population.open(folder).class_counts[:, 0] > 0
    findings = partitioning.verify(folder)
    assert findings[:-1] == [
        f"{folder}: client {client} does not have the classes that clients.parquet says"
        for client in np.flatnonzero(ants)
    ]
    assert "test slice 0 has labels that are no class" in findings[-1]


@pytest.mark.parametrize("label", ["kind", "label", "row"])
def test_verify_counts_labels_of_any_type_across_files(tmp_path, monkeypatch, label):
    monkeypatch.setattr(writing, "SHARD_BYTES", 4000)
    partitioning.make(rich_table(), tmp_path / "p", scheme="iid", clients=9, label=label)
    assert len(Population.open(tmp_path / "p").manifest.shards) > 1
    assert partitioning.verify(tmp_path / "p") == []
