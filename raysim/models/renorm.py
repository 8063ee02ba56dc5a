"""Batch renormalisation: Ioffe, "Batch Renormalization: Towards Reducing Minibatch Dependence", 2017."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm

from raysim.common.errors import InputError


@dataclass(frozen=True)
class Opening:
    """How the limits of r and d open with the number t of batches that the layer has tracked.

        r_max(t) = 1 + (r_max - 1) o(t; r_end),   d_max(t) = d_max o(t; d_end),
        o(t; end) = (t - start) / (end - start), within [0, 1]

    Args:
        r_max: the limit of r at the end, >= 1.
        d_max: the limit of d at the end, >= 0.
        start: batches before which the layer is batch norm, >= 0; its first batch always is.
        r_end: batches at which r_max is reached, >= start.
        d_end: batches at which d_max is reached, >= start.

    Raises:
        InputError: a number is out of its range.

    Paper: section 4, which opens r from 1 to 3 between 5,000 and 40,000 steps, and d from 0 to 5 between 5,000 and
    25,000. Deviation: a tenth of these steps by default, for federated runs are shorter.
    """

    r_max: float = 3.0
    d_max: float = 5.0
    start: int = 500
    r_end: int = 4_000
    d_end: int = 2_500

    def __post_init__(self) -> None:
        for name, least in (("r_max", 1), ("d_max", 0), ("start", 0), ("r_end", self.start), ("d_end", self.start)):
            value = getattr(self, name)
            if not value >= least:
                raise InputError(f"renorm_{name} is {value}, but must be {least} or more: set renorm_{name} = {least}")

    def limits(self, tracked: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The limits r_max and d_max after so many batches, as tensors."""
        open_r, open_d = (
            ((tracked - self.start) / max(1, end - self.start)).clamp(0, 1) for end in (self.r_end, self.d_end)
        )
        return 1 + (self.r_max - 1) * open_r, self.d_max * open_d


class BatchRenorm(_BatchNorm):
    """Batch norm whose training output is what the running statistics would give, within limits.

        x_hat = (x - mu_B) / sigma_B r + d,     y = gamma x_hat + beta
        r = sigma_B / sigma, within [1 / r_max, r_max];   d = (mu_B - mu) / sigma, within [-d_max, d_max]
        mu <- mu + momentum (mu_B - mu),   sigma^2 likewise, by the batch's variance over n - 1

    r and d are constants in the gradient; sigma = sqrt(variance + eps). In evaluation it is batch norm: mu and sigma.
    Where statistics are not tracked (`track_running_stats` is false) a batch is normalised by its own alone, for there
    is nothing to correct it by.

    Args:
        channels: C of the inputs [n, C, *places].
        eps: added to variances.
        momentum: of the running statistics; None for the mean of all batches.
        affine: whether there are gamma and beta.
        track_running_stats: whether there are mu and sigma.
        opening: how the limits open.

    Paper: algorithm 1; compared with in FedBS, section III-B2, which prints r = sigma_B / mu: a misprint, for r is to
    undo the division by sigma_B in favour of sigma. Deviations: running statistics are tracked as torch's batch norm
    tracks them, the variance and not sigma, so that with r_max = 1 and d_max = 0 both are the same.
    """

    def __init__(
        self,
        channels: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        opening: Opening = Opening(),
    ) -> None:
        super().__init__(channels, eps, momentum, affine, track_running_stats)
        self.opening = opening

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
        """The correction of a batch, r and d; the batch is tracked then."""
        tracked = self.num_batches_tracked
        if tracked is None:
            raise RuntimeError("a layer that tracks statistics has lost its counter")
        places = [0, *range(2, x.dim())]
        count = x.numel() // x.shape[1]
        of_batch, by_mean = torch.var_mean(x, places, correction=0)
        sigma = (variance + self.eps).sqrt()
        r_max, d_max = self.opening.limits(tracked.to(mean.dtype))
        r = torch.minimum(torch.maximum((of_batch + self.eps).sqrt() / sigma, 1 / r_max), r_max)
        d = torch.minimum(torch.maximum((by_mean - mean) / sigma, -d_max), d_max)
        tracked += 1
        share = 1 / tracked.to(mean.dtype) if self.momentum is None else self.momentum
        mean += share * (by_mean - mean)
        variance += share * (of_batch * (count / max(1, count - 1)) - variance)
        return r, d

    def _check_input_dim(self, input: torch.Tensor) -> None:
        """Any number of places will do."""
