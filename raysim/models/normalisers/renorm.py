"""Batch renormalisation: Ioffe, "Batch Renormalization: Towards Reducing Minibatch Dependence", 2017."""

import torch
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm

from raysim.models.keys import RenormLimits


class BatchRenorm(_BatchNorm):
    """Batch norm with a training output close to that of the running statistics.

        x_hat = (x - mu_B) / sigma_B r + d,     y = gamma x_hat + beta
        r = sigma_B / sigma, within [1 / r_max, r_max];   d = (mu_B - mu) / sigma, within [-d_max, d_max]
        mu <- mu + momentum (mu_B - mu),   sigma^2 likewise, by the batch's variance over n - 1

    The gradient treats r and d as constants; sigma = sqrt(variance + eps). In evaluation the layer is batch norm by mu
    and sigma. If statistics are not tracked (`track_running_stats` is false), the layer normalises a batch by the
    batch's own statistics alone.

    Args:
        channels: C of the inputs [n, C, *places].
        eps: addend of variances.
        momentum: momentum of the running statistics; None for the mean of all batches.
        affine: whether the layer has gamma and beta.
        track_running_stats: whether the layer has mu and sigma.
        limits: limits of r and d.

    Paper: algorithm 1. FedBS, section III-B2, compares with it and prints r = sigma_B / mu. This is a misprint: r
    replaces the division by sigma_B with one by sigma.

    Deviations:
        Running statistics are tracked like torch's batch norm does: the variance instead of sigma. With r_max = 1 and
        d_max = 0 the two layers are equal.
    """

    def __init__(
        self,
        channels: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        limits: RenormLimits = RenormLimits(),
    ) -> None:
        super().__init__(channels, eps, momentum, affine, track_running_stats)
        self.limits = limits

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise x [n, C, *places]."""
        mean, variance = self.running_mean, self.running_var
        if not self.training and mean is not None:
            return batch_norm(x, mean, variance, self.weight, self.bias, False, 0.0, self.eps)
        if mean is None or variance is None or not self.track_running_stats:
            return batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
        normal = batch_norm(x, None, None, None, None, True, 0.0, self.eps)
        scale, shift = self._correction(x.detach().to(mean.dtype), mean, variance)
        if self.weight is not None:
            scale, shift = scale * self.weight, shift * self.weight
        if self.bias is not None:
            shift = shift + self.bias
        shape = (1, -1, *(1 for _ in x.shape[2:]))
        return (normal * scale.view(shape) + shift.view(shape)).to(normal.dtype)

    @torch.no_grad()
    def _correction(
        self, x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return r and d of a batch, and track the batch."""
        tracked = self.num_batches_tracked
        if tracked is None:
            raise RuntimeError("a layer that tracks statistics has lost its counter")
        places = [0, *range(2, x.dim())]
        count = x.numel() // x.shape[1]
        batch_variance, batch_mean = torch.var_mean(x, places, correction=0)
        sigma = (variance + self.eps).sqrt()
        r_max, d_max = self.limits.after(tracked.to(mean.dtype))
        r = torch.minimum(torch.maximum((batch_variance + self.eps).sqrt() / sigma, 1 / r_max), r_max)
        d = torch.minimum(torch.maximum((batch_mean - mean) / sigma, -d_max), d_max)
        tracked += 1
        share = 1 / tracked.to(mean.dtype) if self.momentum is None else self.momentum
        mean += share * (batch_mean - mean)
        variance += share * (batch_variance * (count / max(1, count - 1)) - variance)
        return r, d

    def _check_input_dim(self, input: torch.Tensor) -> None:
        """Accept any number of places."""
