"""TensorBoard's events say what `metrics.parquet` says, also of a run that was stopped."""

from pathlib import Path

import numpy as np
import pytest

from algorithms.training.forked import drawn
from tests.kit.logged import NAMES, rows, watched

pytest.importorskip("tensorboard")


def read(folder: Path) -> tuple[list[dict[str, float]], dict[str, float]]:
    """The scalars of an algorithm's rounds, and the final ones."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}, purge_orphaned_data=False)
    events.Reload()
    found: dict[int, dict[str, float]] = {}
    final: dict[str, float] = {}
    for tag in events.Tags()["scalars"]:
        scalars = events.Scalars(tag)
        if tag.startswith("final/"):
            final[tag] = scalars[0].value
        else:
            assert len({scalar.step for scalar in scalars}) == len(scalars), f"a round twice in {tag}"
            for scalar in scalars:
                found.setdefault(scalar.step, {})[tag] = scalar.value
    assert list(found) == list(range(1, len(found) + 1))
    assert "_hparams_/session_start_info" in events.summary_metadata
    return list(found.values()), final


def test_its_scalars_are_the_table(tmp_path: Path) -> None:
    # The first algorithm is stopped and goes on, the second one is not.
    before = drawn()
    run = watched(tmp_path / "run", stop_in=3, loggers=["tensorboard"])
    assert drawn() == before, "a logger drew from a default generator"
    for name, result in zip(NAMES, run.results, strict=True):
        found, final = read(run.folder / "watch" / "tensorboard" / name)
        wanted = rows(run.folder / name)
        assert len(found) == 6
        for one, other in zip(found, wanted, strict=True):
            # Their numbers are of 32 bits.
            assert one == {key: float(np.float32(value)) for key, value in other.items()}
        assert final["final/test_accuracy"] == np.float32(result.metrics["test_accuracy"])
        assert final["final/rounds"] == 6
