"""The steps of a stack of client updates: whatever way they are gathered, each has the samples of its batch."""

import numpy as np
import pytest
import torch

from algorithms.training.batches import GATHER_BYTES, stacked_batches
from algorithms.training.work import Work


@pytest.mark.parametrize("samples", [40, 400], ids=["many of them are used", "few of them are used"])
@pytest.mark.parametrize("width", [3, GATHER_BYTES // 20], ids=["small", "gathered in parts"])
def test_a_step_has_the_samples_of_its_batches(samples: int, width: int) -> None:
    rng = np.random.default_rng(samples)
    works = []
    for count in (5, 4, 2, 0):
        x = torch.from_numpy(rng.random((samples, width), np.float32))
        order = rng.permutation(samples)[: 8 * count]
        works.append(Work(x, torch.arange(samples), np.array_split(order, count) if count else []))
    taken, repeats = [0] * len(works), []
    for batch in stacked_batches(works):
        for i, lane in enumerate(range(batch.lanes.start, batch.lanes.stop)):
            rows = works[lane].batches[taken[lane]]
            assert batch.y[i].tolist() == rows.tolist()
            assert torch.equal(batch.x[i], works[lane].x[rows])
            taken[lane] += 1
        repeats.append(batch.repeats)
    assert taken == [5, 4, 2, 0]
    assert repeats == [2, 2, 2, 2, 1]


def test_a_step_repeats_those_of_its_lanes_and_size() -> None:
    rows = np.split(np.arange(11), [4, 8])
    works = [
        Work(torch.zeros(11, 2), torch.zeros(11), [*rows, rows[2]]),
        Work(torch.zeros(11, 2), torch.zeros(11), rows),
    ]
    assert [(batch.size, batch.count, batch.repeats) for batch in stacked_batches(works)] == [
        (4, 2, 2),
        (4, 2, 2),
        (3, 2, 1),
        (3, 1, 1),
    ]
