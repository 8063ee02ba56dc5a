"""The loss of labels that are images: by hand, and client updates that equal a plain loop's."""

from dataclasses import dataclass
from math import log

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot
from torch.nn.utils.parametrizations import weight_norm

from algorithms import Augmented, Compute, InputError, Layout, Local, Resident, Sharing, choose, trainer
from algorithms.core.chunks import CHUNK, growth_of
from algorithms.training.loss import BinaryCrossEntropy, CrossEntropy, labelled
from algorithms.training.work import Work

LOCAL = Local(lr=0.3, batch_size=2, epochs=2, momentum=0.5)


@dataclass(frozen=True)
class Mirror:
    """Mirrors images, and their labels with them, where the draw is below 1/2."""

    numbers = 1

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return torch.where(draws.view(-1, 1, 1, 1) < 0.5, x.flip(3), x)

    def labels(self, y: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return torch.where(draws.view(-1, 1, 1) < 0.5, y.flip(2), y)


def model() -> nn.Module:
    """A network that gives each pixel three logits."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        layers = nn.Conv2d(2, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU(), nn.Conv2d(5, 3, 1)
        return nn.Sequential(*layers).double()


def images(samples: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples [n, 2, 4, 6] and their labels, of which about a third of the pixels have none."""
    rng = np.random.default_rng(seed)
    y = rng.choice(np.array([0, 1, 2, 255], np.uint8), (samples, 4, 6), p=[0.3, 0.2, 0.2, 0.3])
    return torch.from_numpy(rng.normal(size=(samples, 2, 4, 6))), torch.from_numpy(y)


def test_a_loss_by_hand() -> None:
    logits = torch.tensor([[[0.0, log(3.0), 9.0]], [[log(3.0), 0.0, -9.0]]])[None]
    y = torch.tensor([[[1, 1, 255]]], dtype=torch.uint8)
    assert CrossEntropy()(logits, y).tolist() == pytest.approx([log(4 / 3), log(4), 0], abs=1e-6)
    assert float(CrossEntropy().mean(logits, y)) == pytest.approx((log(4 / 3) + log(4)) / 2) and labelled(y) == 2


def test_weights_of_classes_and_smoothing_are_those_of_the_formula() -> None:
    logits, y, weights = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 2, 1, 1]), (1.0, 2.0, 0.5)
    q = 0.8 * one_hot(y, 3) + 0.2 / 3
    expected = -(torch.tensor(weights) * q * logits.log_softmax(1)).sum(1)
    torch.testing.assert_close(CrossEntropy(0.2, weights)(logits, y), expected)


def test_one_logit_of_two_classes_has_the_loss_of_two_logits() -> None:
    """Softmax of [0, o] is [1 - s(o), s(o)]: the loss by hand is log(1 + e^-o) of the second class."""
    outputs, y = torch.tensor([[0.0], [2.0], [-3.0], [50.0]]).double(), torch.tensor([0, 1, 1, 0])
    loss = BinaryCrossEntropy()
    logits = loss.logits(outputs)
    assert logits[:, 0].tolist() == [0.0] * 4 and torch.equal(logits[:, 1:], outputs)
    assert loss(outputs, y).tolist() == pytest.approx(CrossEntropy()(logits, y).tolist(), abs=1e-12)
    assert loss.sums(outputs, y)[1].item() == pytest.approx(log(1 + np.exp(-2)))
    assert loss.mean(outputs, y).item() == pytest.approx(loss(outputs, y).mean().item())
    weighted = BinaryCrossEntropy(positive_weight=3.0)(outputs, y)
    assert (weighted / loss(outputs, y)).tolist() == pytest.approx([1, 3, 3, 1])


def test_where_no_pixel_has_a_class_nothing_is_learnt() -> None:
    logits = torch.randn(2, 3, 2, 2, requires_grad=True)
    loss = CrossEntropy().mean(logits, torch.full((2, 2, 2), 255, dtype=torch.uint8))
    assert loss.item() == 0 and torch.autograd.grad(loss, logits)[0].abs().max() == 0


def test_the_class_255_of_samples_is_a_class() -> None:
    logits, y = torch.randn(3, 300), torch.tensor([255, 7, 299])
    assert torch.equal(CrossEntropy().mean(logits, y), cross_entropy(logits, y)) and labelled(y) == 3


@pytest.mark.parametrize(
    ("shape", "channels", "size"),
    [
        ((3, 32, 32), 1, CHUNK),
        ((3, 64, 64), 1, 341),
        ((3, 256, 256), 1, 21),
        ((3, 256, 256), 12, 5),
        ((3, 1024, 2048), 1, 2),
    ],
)
def test_chunks_are_fixed_by_the_shape_and_the_widest_layer(shape: tuple[int, ...], channels: int, size: int) -> None:
    """Neither the inputs of a chunk nor the outputs of a layer have more than 2^22 values, unless two samples have."""
    wide = nn.Sequential(nn.Conv2d(3, channels, 1), nn.Conv2d(channels, 1, 1))
    resident = Resident(wide, Sharing().divide(Layout.of(wide)), torch.zeros(3, 8, 8))
    parts = list(resident.chunks(torch.empty(()).expand(2000, *shape)))
    assert [(part.start, part.stop) for part in parts][:2] == [(0, size), (size, 2 * size)]
    assert parts[-1].stop >= 2000


def test_a_weight_that_a_layer_computes_is_no_output_of_its_samples() -> None:
    normed = nn.Sequential(weight_norm(nn.Linear(40, 60)), nn.Linear(60, 80), nn.Linear(80, 1))
    assert growth_of(normed, torch.zeros(40)) == 2


@pytest.mark.parametrize("execution", ["sequential", "vectorised"])
def test_updates_equal_a_plain_loop(execution: str) -> None:
    """Two client updates of unequal sizes: losses over the pixels with a class, labels moved with their images."""
    data = [images(5, 1), images(3, 2)]
    resident = Resident(model(), Sharing().divide(Layout.of(model())), torch.zeros(2, 4, 6), lanes=2)
    compute = Compute(execution, precision="fp64")
    works = []
    for key, (x, y) in enumerate(data):
        batches = LOCAL.plan(len(y), 1, 0, lambda _, key=key: np.random.default_rng(key))
        works.append(Work(x, y, batches, None, Augmented.of(Mirror(), batches, key, x.device)))
    start = resident.shared(0).copy(), resident.personal(0).copy()
    losses, entries = [], []
    for group in [works] if execution == "vectorised" else [[work] for work in works]:
        for lane in range(len(group)):
            resident.load(*start, lane)
        losses += trainer(resident, compute).train(LOCAL, group, 0.3).tolist()
        entries += [resident.shared(lane).floats.copy() for lane in range(len(group))]
    for work, loss, found in zip(works, losses, entries, strict=True):
        expected, module = plain(work)
        assert loss == pytest.approx(expected, abs=1e-12)
        wanted = resident.layouts.shared.pack(module.state_dict()).floats
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)


def plain(work: Work) -> tuple[float, nn.Module]:
    """One client update by torch alone: its loss over all pixels that it saw, and the model."""
    module = model()
    velocity = [torch.zeros_like(p) for p in module.parameters()]
    assert work.augment is not None
    total, pixels, start = 0.0, 0, 0
    for rows in work.batches:
        draws = work.augment.draws[start : start + len(rows)]
        x, y = Mirror()(work.x[rows], draws), Mirror().labels(work.y[rows], draws).long()
        loss = cross_entropy(module.train()(x), y, ignore_index=255)
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        velocity = [0.5 * u + g for u, g in zip(velocity, gradients, strict=True)]
        with torch.no_grad():
            for parameter, u in zip(module.parameters(), velocity, strict=True):
                parameter.sub_(0.3 * u)
        total, pixels = total + loss.item() * int((y != 255).sum()), pixels + int((y != 255).sum())
        start += len(rows)
    return total / pixels, module


def test_a_model_that_gives_pixels_logits_is_stacked_where_it_is_asked_for() -> None:
    sample = torch.zeros(2, 4, 6, dtype=torch.float64)
    asked = Local(compute=Compute("vectorised", precision="fp64"))
    label = torch.zeros(4, 6, dtype=torch.uint8)
    assert choose(asked, model(), sample, "cpu", 8, label=label).execution == "vectorised"
    assert choose(Local(), model(), sample, "cpu", 8).execution == "sequential"
    with pytest.raises(InputError, match="must be sequential or vectorised"):
        choose(Local(compute=Compute("fused")), model(), sample, "cpu", 8)
