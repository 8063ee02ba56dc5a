"""Batch renormalisation: its formula, its gradient, and what it tracks."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from algorithms.core.batch_norm import train_mode
from raysim.models.keys import RenormLimits
from raysim.models.normalisers.renorm import BatchRenorm

LIMITS = RenormLimits(r_max=1.5, d_max=0.5, start=2, r_end=8, d_end=5)


class Renorm:
    """Batch renormalisation in numpy: one channel a column of x [n, C]."""

    def __init__(self, channels: int, limits: RenormLimits) -> None:
        self.mean, self.variance, self.limits, self.tracked = np.zeros(channels), np.ones(channels), limits, 0
        self.r = self.d = np.zeros(channels)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        o, t = self.limits, self.tracked
        r_max = 1 + (o.r_max - 1) * min(1, max(0, (t - o.start) / (o.r_end - o.start)))
        d_max = o.d_max * min(1, max(0, (t - o.start) / (o.d_end - o.start)))
        mu, sigma_b = x.mean(0), np.sqrt(x.var(0) + 1e-5)
        sigma = np.sqrt(self.variance + 1e-5)
        self.r = np.clip(sigma_b / sigma, 1 / r_max, r_max)
        self.d = np.clip((mu - self.mean) / sigma, -d_max, d_max)
        self.mean = 0.7 * self.mean + 0.3 * mu
        self.variance = 0.7 * self.variance + 0.3 * x.var(0, ddof=1)
        self.tracked += 1
        return (x - mu) / sigma_b * self.r + self.d


def test_batch_renorm_is_its_formula_over_many_steps() -> None:
    layer = BatchRenorm(3, momentum=0.3, affine=False, limits=LIMITS).double()
    plain, rng, clipped = Renorm(3, LIMITS), np.random.default_rng(1), []
    for t in range(12):
        x = rng.normal([0, 1, -2], [1, 1.3, 4], (7, 3))
        np.testing.assert_allclose(layer(torch.from_numpy(x)).numpy(), plain(x), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(layer.running_mean, plain.mean, rtol=1e-12)
        np.testing.assert_allclose(layer.running_var, plain.variance, rtol=1e-12)
        if t >= 8:  # fully open
            clipped.append([plain.r.max() == 1.5 or plain.r.min() == 1 / 1.5, np.abs(plain.d).max() == 0.5])
            clipped[-1].append(bool((np.abs(plain.d) < 0.5).any() and (plain.r < 1.5).any()))
    assert np.array(clipped).any(0).all()  # limits were met, and not by all channels
    assert int(layer.num_batches_tracked) == 12
    layer.eval()
    x = rng.normal(size=(4, 3))
    expected = (x - plain.mean) / np.sqrt(plain.variance + 1e-5)
    np.testing.assert_allclose(layer(torch.from_numpy(x)).numpy(), expected, rtol=1e-9)


def test_r_and_d_are_constants_in_the_gradient() -> None:
    layer = BatchRenorm(2, limits=RenormLimits(3, 5, 0, 1, 1)).double()
    x, weights = torch.randn(6, 2, 3).double() * 2 + 1, torch.randn(6, 2, 3).double()
    layer(x)
    layer(x * 3)
    mean, variance = layer.running_mean.clone(), layer.running_var.clone()
    inputs = x.clone().requires_grad_()
    (layer(inputs) * weights).sum().backward()
    plain = x.clone().requires_grad_()
    mu, var = plain.mean((0, 2), keepdim=True), plain.var((0, 2), keepdim=True, correction=0)
    r = ((var + 1e-5) / (variance.view(1, 2, 1) + 1e-5)).sqrt().clamp(1 / 3, 3).detach()
    d = ((mu - mean.view(1, 2, 1)) / (variance.view(1, 2, 1) + 1e-5).sqrt()).clamp(-5, 5).detach()
    (((plain - mu) / (var + 1e-5).sqrt() * r + d) * weights).sum().backward()
    torch.testing.assert_close(inputs.grad, plain.grad)


@pytest.mark.parametrize("statistics", ["batch", "untracked", "frozen"])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_closed_batch_renorm_is_batch_norm(statistics: str, momentum: float | None) -> None:
    renorm = nn.Sequential(BatchRenorm(3, momentum=momentum, limits=RenormLimits(1, 0, 0, 0, 0)))
    batch = nn.Sequential(nn.BatchNorm2d(3, momentum=momentum))
    for step in range(3):
        x = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(step)) + step
        for module in (renorm, batch):
            train_mode(module, statistics)  # type: ignore[arg-type]
        torch.testing.assert_close(renorm(x), batch(x))
    torch.testing.assert_close(renorm.state_dict(), batch.state_dict())


def test_an_open_batch_renorm_without_tracking_leaves_no_trace() -> None:
    layer = nn.Sequential(BatchRenorm(3, limits=RenormLimits(3, 5, 0, 0, 0)))
    x = torch.randn(4, 3) * 2
    train_mode(layer, "batch")
    layer(x)
    before = copy.deepcopy(layer.state_dict())
    train_mode(layer, "untracked")
    torch.testing.assert_close(layer(x), nn.BatchNorm1d(3)(x))
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())
