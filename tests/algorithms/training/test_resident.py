"""Resident models: the ways of a GPU, taken in main memory, give the bytes of a CPU's."""

import numpy as np
import pytest
import torch

from algorithms import Layout, Packed, Resident
from algorithms.core.entries import Kind
from algorithms.core.layout import divided
from algorithms.core.sums import Sum
from tests.kit.stacked import seeded

LANES = 4


def resident_of(on_device: bool) -> Resident:
    module = seeded("batch_norm")
    layouts = divided(Layout.of(module), {}, lambda entry: entry.kind is Kind.AFFINE)
    resident = Resident(module, layouts, torch.zeros(4), lanes=LANES)
    if on_device:
        resident._host = {}  # as on a GPU, whose memory numpy does not share
    return resident


def drawn(layout: Layout, seed: int, floating: str = "float32") -> Packed:
    rng = np.random.default_rng(seed)
    return Packed(rng.normal(size=layout.floats).astype(floating), rng.integers(0, 9, layout.integers))


@pytest.mark.parametrize("one", [True, False], ids=["one model", "a model for each"])
@pytest.mark.parametrize("weights", [[1.5, 0.0, 2.3, 0.1], [0.0, 0.0, 0.0, 0.0]], ids=["weights", "no weight"])
def test_models_are_loaded_and_summed_as_on_a_cpu(one: bool, weights: list[float]) -> None:
    sums, lanes = [], []
    for on_device in (False, True):
        resident = resident_of(on_device)
        layouts = resident.layouts
        models = [drawn(layouts.shared, 0 if one else lane) for lane in range(LANES)]
        models = models[:1] * LANES if one else models
        resident.load_stack(models, [drawn(layouts.personal, 10 + lane) for lane in range(LANES)])
        total = Sum.zero(layouts.shared)
        resident.add(total, [2, 0, 3, 1], weights)
        sums.append(total)
        lanes.append([(resident.shared(lane), resident.personal(lane)) for lane in range(LANES)])
    assert sums[0].total == sums[1].total
    np.testing.assert_array_equal(sums[0].floats, sums[1].floats)
    np.testing.assert_array_equal(sums[0].integers, sums[1].integers)
    for ours, theirs in zip(*lanes, strict=True):
        for one_part, other_part in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one_part.floats, other_part.floats)
            np.testing.assert_array_equal(one_part.integers, other_part.integers)
