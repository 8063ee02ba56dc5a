"""The clients' training parts as a population of their own, without a row of the test parts."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import partitioning
from partitioning import InputError, Population
from partitioning.store.training import training_part


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Population:
    draw = np.random.default_rng(1)
    table = pa.table(
        {"x": draw.normal(size=200), "label": draw.integers(0, 3, 200), "hospital": draw.integers(0, 2, 200)}
    )
    folder = tmp_path_factory.mktemp("training") / "whole"
    given = {"scheme": "dirichlet-qp", "clients": 7, "label_alpha": 0.5, "local_test": 0.3, "folds": 3, "seed": 5}
    return partitioning.make(table, folder, test=table.slice(0, 20), standardise=True, features=["hospital"], **given)


def test_it_holds_the_training_rows_and_cuts_the_last_of_them(whole: Population, tmp_path: Path) -> None:
    part = training_part(whole, tmp_path / "part", local_test=0.25)
    assert part.sizes.tolist() == (whole.sizes - whole.test_sizes).tolist()
    assert part.test_sizes.tolist() == (part.sizes // 4).tolist() and part.test_sizes.sum() > 0
    for client in range(len(whole)):
        batch = part.batch(client)
        assert batch.equals(whole.batch(client).slice(0, part.sizes[client]))
        counts = np.bincount(np.asarray(batch.column("label")), minlength=3)
        assert part.class_counts[client].tolist() == counts.tolist()
    assert part.folds.tolist() == whole.folds.tolist() and part.test_slices == whole.test_slices
    assert part.test_batch(0).equals(whole.test_batch(0))
    assert list(partitioning.verify(part.path)) == []
    assert part.fingerprint != whole.fingerprint


def test_moments_are_of_what_then_trains(whole: Population, tmp_path: Path) -> None:
    part = training_part(whole, tmp_path / "part", local_test=0.25)
    moments = part.moments
    assert moments is not None
    trained = [part.batch(k).column("x").to_numpy()[: part.sizes[k] - part.test_sizes[k]] for k in range(len(part))]
    every = moments.together(range(len(part)))
    np.testing.assert_allclose(every.mean[moments.columns["x"]], np.concatenate(trained).mean())


def test_a_population_that_lost_its_numbers_has_no_moments(whole: Population, tmp_path: Path) -> None:
    bare = partitioning.rewrite(whole, tmp_path / "bare", lambda batch, owner: batch.select(["label"]))
    assert bare.moments is not None and training_part(bare, tmp_path / "part", local_test=0.25).moments is None


def test_labels_that_are_numbers_have_no_classes(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    table = pa.table({"x": draw.normal(size=60), "label": draw.normal(size=60)})
    whole = partitioning.make(table, tmp_path / "whole", scheme="iid", clients=3, local_test=0.2)
    part = training_part(whole, tmp_path / "part", local_test=0.5)
    assert part.sizes.tolist() == [16] * 3 and list(partitioning.verify(part.path)) == []


def test_wrong_input_leaves_nothing(whole: Population, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"local_test is 1.0: give a share"):
        training_part(whole, tmp_path / "part", local_test=1.0)
    assert list(tmp_path.iterdir()) == []
