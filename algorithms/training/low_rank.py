"""Client updates of linear layers without weights of their own: all start from one model, and few samples change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.core.errors import InputError
from algorithms.core.finite import first_nonfinite
from algorithms.core.layout import Packed
from algorithms.core.sums import Sum
from algorithms.training.batches import stacked_batches
from algorithms.training.fused import Layer, layers_of, losses_by_lane
from algorithms.training.local import Local
from algorithms.training.resident import Resident
from algorithms.training.steps import Arithmetic, MomentumDirection
from algorithms.training.terms import RECEIVED
from algorithms.training.work import StackedBatch, Trainer, Work

Tensor = torch.Tensor


def keeps_low_rank(local: Local) -> bool:
    """Return whether local steps keep the form of low rank.

    They train the whole model in one stage, read no constant except the received weights, and nothing follows them.
    """
    plain = not local.method.overrides("finish", "train") and local.part == "all"
    return plain and local.arithmetic.is_foldable and not local.arithmetic.reads_slots


@dataclass(frozen=True)
class Coefficients:
    """Weights and velocity after t local steps, as sums over the steps that all client updates have in common.

        W = s W_0 - sum_j c_j D_j,   u = p W_0 + sum_j q_j D_j        with D_j the mean gradient of step j

    Args:
        arithmetic: arithmetic of a step; see `keeps_low_rank`.
        lr: learning rate of the round.
        s: share of the received weights in the weights.
        p: share of the received weights in the velocity.
        c: shares of the gradients in the weights, [t].
        q: shares of the gradients in the velocity, [t].
    """

    arithmetic: Arithmetic
    lr: float
    s: float = 1.0
    p: float = 0.0
    c: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    q: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def after(self) -> Coefficients:
        """Return the coefficients after one more step: u <- beta u + D + a W + b W_0, then W <- W - lr u."""
        direction, terms = self.arithmetic.direction, self.arithmetic.affine
        beta = direction.beta if isinstance(direction, MomentumDirection) else 0.0
        a, b = sum(term.a for term in terms), sum(term.b for term in terms if term.v == RECEIVED)
        q = np.append(beta * self.q - a * self.c, 1.0)
        p = beta * self.p + a * self.s + b
        return replace(self, s=self.s - self.lr * p, p=p, c=np.append(self.c, 0.0) + self.lr * q, q=q)


class Factors:
    """Inputs and gradients of all steps of some client updates, which stand for the change of their weights.

    With X_j the inputs of a layer at step j, and delta_j the gradients of its outputs, divided by the batch's size, the
    mean gradient is D_j = delta_j^T X_j. A pass through the weights is a product with W_0 for all client updates
    together, and small products with earlier steps:

        x W^T   = s x W_0^T   - sum_j c_j (x X_j^T) delta_j
        delta W = s delta W_0 - sum_j c_j (delta delta_j^T) X_j

    A bias is the weight of an input that is always 1.

    Args:
        layers: layers of the model.
        weights: the received weight, [out, in], and bias, [out] or None, of each layer.
        works: training data of each lane, longest first.
        start: coefficients before the first step.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        weights: Sequence[tuple[Tensor, Tensor | None]],
        works: Sequence[Work],
        start: Coefficients,
    ) -> None:
        self._activations = [activation for _, _, activation in layers]
        self.weights = weights
        self.steps = [len(work.batches) for work in works]
        self._batch = max((len(rows) for work in works for rows in work.batches), default=0)
        self._after = [start]
        while len(self._after) <= max(self.steps):
            self._after.append(self._after[-1].after())
        self._taken = [0] * len(works)
        like, rows = weights[0][0], max(self.steps) * self._batch
        # Rows that no batch fills stay 0 and change nothing.
        self._x = [like.new_zeros(len(works), rows, weight.shape[1]) for weight, _ in weights]
        self._delta = [like.new_zeros(len(works), rows, weight.shape[0]) for weight, _ in weights]
        self._classes = torch.arange(weights[-1][0].shape[0], device=like.device)

    def step(self, batch: StackedBatch) -> Tensor:
        """Take a step of some lanes; return the logits, [k n, classes]."""
        lanes, taken = batch.lanes, self._taken[batch.lanes.start]
        self._taken[lanes] = [taken + 1] * batch.count
        s, c = self._after[taken].s, self._row_shares([taken])[:, : taken * self._batch]
        past = slice(0, taken * self._batch)
        now = slice(past.stop, past.stop + batch.size)
        h = batch.x.reshape(batch.count, batch.size, -1)
        for i, (weight, bias) in enumerate(self.weights):
            self._x[i][lanes, now] = h
            flat = h.reshape(-1, h.shape[2])
            z = flat @ weight.T if bias is None else torch.addmm(bias, flat, weight.T)
            z = z.mul_(s).view(batch.count, batch.size, -1)
            if taken:
                near = h @ self._x[i][lanes, past].mT
                near = (near if bias is None else near.add_(1)).mul_(c)
                z.baddbmm_(near, self._delta[i][lanes, past], alpha=-1)
            h = self._activations[i][0](z)
        delta = h.softmax(-1).sub_((batch.y.unsqueeze(-1) == self._classes).to(h)).div_(batch.size)
        for i in range(len(self.weights) - 1, -1, -1):
            self._delta[i][lanes, now] = delta
            if i:
                back = (delta.reshape(-1, delta.shape[2]) @ self.weights[i][0]).mul_(s)
                back = back.view(batch.count, batch.size, -1)
                if taken:
                    near = (delta @ self._delta[i][lanes, past].mT).mul_(c)
                    back.baddbmm_(near, self._x[i][lanes, past], alpha=-1)
                delta = self._activations[i - 1][1](back, self._x[i][lanes, now])
        return h.reshape(-1, h.shape[2])

    def shares(self) -> tuple[NDArray[np.float64], Tensor]:
        """Return the shares of the received weights in the lanes' models, s [k], and those of the rows, c [k, rows]."""
        return np.array([self._after[count].s for count in self.steps]), self._row_shares(self.steps)

    def changes(self, factors: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return what is taken from each layer's weight and bias: sum_kj f_kj delta_kj^T X_kj, and without X.

        Args:
            factors: the factors f of all rows, [lanes, rows]; a row with factor 0 is left out, whatever it holds.
        """
        factors = factors.flatten()
        used = factors.nonzero().flatten()
        changes = []
        for x, delta in zip(self._x, self._delta, strict=True):
            rows, gradients, f = x.flatten(0, 1), delta.flatten(0, 1), factors
            if len(used) < len(f):
                rows, gradients, f = rows[used], gradients[used], f[used]
            scaled = gradients * f.unsqueeze(1)
            changes.append((scaled.T @ rows, scaled.sum(0)))
        return changes

    def bounds(self) -> list[float]:
        """Return a bound of each lane's largest change; it is finite if the lane's weights are."""
        _, shares = self.shares()
        each = [
            (torch.linalg.vector_norm(x, dim=2) + 1) * torch.linalg.vector_norm(delta, dim=2)
            for x, delta in zip(self._x, self._delta, strict=True)
        ]
        bounds: list[float] = (torch.stack(each).sum(0) * shares.abs()).sum(1).tolist()
        return bounds

    def _row_shares(self, steps: Sequence[int]) -> Tensor:
        """Return the shares c of all rows after some numbers of steps, [len(steps), rows]."""
        shares = np.zeros((len(steps), max(self.steps)))
        for row, count in enumerate(steps):
            shares[row, :count] = self._after[count].c
        return torch.from_numpy(shares.repeat(self._batch, axis=1)).to(self.weights[0][0])


class LowRank(Trainer):
    """Trainer of stacks of linear layers that forms no client's weights: all client updates start from one model.

    A client update changes a layer's weights by a sum of as many ranks as it used samples. The server needs only the
    weighted sum of the changes, one product over the samples of all clients together:

        sum_k p_k W_k = (sum_k p_k s_k) W_0 - sum_kj p_k c_kj delta_kj^T X_kj

    The cost of a sample grows with the samples before it, so this pays for clients of few samples.

    Args:
        resident: models; the received one is loaded into lane 0.

    Raises:
        ValueError: the module is not a stack of linear layers.
    """

    def __init__(self, resident: Resident) -> None:
        super().__init__(resident)
        layers = layers_of(resident.module)
        if layers is None:
            raise ValueError("the module is not a stack of linear layers")
        self.lanes = 2**31  # a whole block
        self._layers = layers
        self._places = {entry.name: place for entry, place in resident.layouts.shared.places()}
        self._model = resident.shared()
        self._personal: list[Packed] = []
        self._left_out: set[int] = set()
        self._factors: Factors

    def load(self, models: Sequence[Packed], personal: Sequence[Packed]) -> None:
        """Load the one model that all client updates start from; personal entries may only be counters."""
        self._resident.load(models[0], personal[0])
        self._model, self._left_out = models[0], set()
        self._personal = [each.copy() for each in personal]

    @torch.no_grad()
    def train(self, local: Local, works: Sequence[Work], lr: float) -> NDArray[np.float64]:
        """Make one client update in each lane; see `Trainer`."""
        stacks: Mapping[str, Tensor] = self._resident.trained(local)
        weights = [(stacks[weight][0], None if bias is None else stacks[bias][0]) for weight, bias, _ in self._layers]
        self._factors = Factors(self._layers, weights, works, Coefficients(local.arithmetic, lr))
        taken = list(stacked_batches(works))
        return losses_by_lane(taken, [self._factors.step(batch) for batch in taken], len(works))

    def nonfinite(self, lanes: int) -> list[str | None]:
        """Name the first entry that holds NaN or infinity in each lane; form only models that may hold one."""
        layout, (s, _) = self._resident.layouts.shared, self._factors.shares()
        bounds = np.abs(s) * np.abs(self._model.floats).max(initial=0) + self._factors.bounds()
        largest = np.finfo(layout.floating).max
        return [
            None if bound < largest else first_nonfinite(layout, self.shared(lane))
            for lane, bound in enumerate(bounds[:lanes].tolist())
        ]

    def reload(self, lane: int, model: Packed, personal: Packed) -> None:
        """Put a lane back to what its client received.

        Raises:
            InputError: it is another model, which no lane can hold.
        """
        if model is not self._model:
            raise InputError(
                "an option that changes client models, with low-rank execution: must have each client's model formed; "
                "set `forms_models` in its class to the reason"
            )
        self._left_out.add(lane)
        self._personal[lane] = personal.copy()

    def count(self, name: str, lane: int) -> None:
        """Add 1 to a personal counter of a lane."""
        entry: NDArray[np.int64] = self._resident.layouts.personal.unpack(self._personal[lane])[name]  # type: ignore[assignment]
        entry += 1

    def shared(self, lane: int) -> Packed:
        """Form the shared entries of a lane's model."""
        alone = np.zeros(len(self._personal))
        alone[lane] = 1.0
        floats = self._sum(alone).astype(self._model.floats.dtype)
        return Packed(floats, self._model.integers)

    def personal(self, lane: int) -> Packed:
        """Return the personal entries of a lane."""
        return self._personal[lane]

    def add(self, models: Sum, lanes: Sequence[int], weights: NDArray[np.float64]) -> None:
        """Add the shared entries of some lanes to a weighted sum, as one product."""
        if weights.any():
            by_lane = np.zeros(len(self._personal))
            by_lane[lanes] = weights
            models.include(self._sum(by_lane), self._model.integers, float(weights.sum()))

    @torch.no_grad()
    def _sum(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weighted sum of all lanes' models, as flat shared entries; weights are by lane."""
        s, shares = self._factors.shares()
        back = sorted(self._left_out)
        s[back], shares[back] = 1.0, 0.0
        floats = self._model.floats * np.float64(weights.sum())
        factors = shares * torch.from_numpy(weights).to(shares).unsqueeze(1)
        for (weight, bias, _), changes in zip(self._layers, self._factors.changes(factors), strict=True):
            for name, change in zip((weight, bias), changes, strict=True):
                if name is not None:
                    place = self._places[name]
                    np.multiply(self._model.floats[place], np.float64(weights @ s), out=floats[place])
                    floats[place] -= change.flatten().cpu().numpy()
        return floats
