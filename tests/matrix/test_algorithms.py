"""Each algorithm of the matrix in this process, resumed amid its rounds.

Slow are the plain runs of the algorithms: the tuned ones have all their state, and more of it.
"""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.kit.runs import metrics
from tests.matrix.configurations import BY_ALGORITHM
from tests.matrix.executions import resumed

TUNED = " tuned"
"""End of the names of configurations with fine-tuned evaluation, on 7 training clients and 2 others."""

TARGETS = ("test", "held_out", "held_out_mean", "local", "local_mean", "local_finetuned", "held_out_finetuned_mean")

PLAIN = [name for name in BY_ALGORITHM if not name.endswith(TUNED)]


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in PLAIN)) for n in BY_ALGORITHM])
def test_a_resumed_run_has_the_bytes_of_another(name: str, tmp_path: Path) -> None:
    assert resumed(name, tmp_path) == []
    if name.endswith(TUNED):
        algorithm = name.removesuffix(TUNED)
        assert_trained_and_learned(tmp_path / "inline" / algorithm, 1 if algorithm == "centralized" else 4)


def assert_trained_and_learned(folder: Path, each: int) -> None:
    """Assert that every round had its client updates, the loss fell, and every target was evaluated when it was due."""
    table = metrics(folder)
    assert table["round"] == [1, 2, 3, 4, 5]
    assert table["updates"] == [each] * 5
    # MOON's term of a client's models grows as they part.
    loss = table["test_loss" if folder.name == "moon" else "train_loss"]
    assert loss[-1] < next(value for value in loss if value is not None)
    evaluated = [value is not None for value in table["local_accuracy"]]
    assert evaluated == [False, False, True, False, True]
    assert all(table[f"{target}_{metric}"][-1] >= 0 for target in TARGETS for metric in ("accuracy", "loss"))
    updates = pq.read_table(folder / "updates.parquet").to_pydict()
    assert len(updates["client"]) == 5 * each and set(updates["round"]) == {1, 2, 3, 4, 5}
