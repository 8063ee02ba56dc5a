"""SCAFFOLD: Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", 2020."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from algorithms.algorithm import Algorithm
from algorithms.errors import require
from algorithms.layout import Kind, Layout, Packed
from algorithms.local import Local
from algorithms.place import Place
from algorithms.schedule import Rounds, Sample
from algorithms.server import Assign, Memory, Server
from algorithms.update import Stacks, Update
from algorithms.weigh import Equal


def scaffold(sample: Sample, local: Local, server: Server = Assign()) -> Algorithm:
    """FedAvg whose gradients are corrected by how the client's differ from all clients'.

        g <- g - c_k + c
        c_k' = c_k - c + (w_t - w_k) / (steps lr),   w <- mean_k w_k,   c <- c + m / K mean_k (c_k' - c_k)

    Args:
        sample: how a round's cohort is drawn; by `fraction`, for m / K has to be known.
        local: what a visit does: SGD without momentum.
        server: how the mean becomes the next model.

    Raises:
        InputError: the cohort is given as a number, or there is momentum or Adam.

    Paper: Algorithm 1 with option II.

    Deviations: none with the rule `assign`, which is the paper's global step size 1; batch-norm entries are averaged.
    """
    known = sample.cohort is None and sample.active == 1
    require(known, "algorithm.cohort", sample.cohort, "left out for scaffold", "set algorithm.fraction = 0.1")
    plain = local.momentum == 0 and local.optimizer == "sgd"
    require(plain, "local.momentum", local.momentum, "0, and the optimizer sgd, for scaffold", "leave them out")
    place = Place(slots={"control": "kept", "common_control": "shared"})
    share = 1.0 if sample.fraction is None else sample.fraction
    return Algorithm(Rounds(sample), Controlled(**vars(local)), place, Equal(), Shared(server, share))


@dataclass(frozen=True)
class Controlled(Local):
    """`Local` whose gradients are corrected by control variates: c_k, "control", and c, "common_control"."""

    @property
    def slots(self) -> tuple[str, ...]:
        return (*super().slots, "control", "common_control")

    def update(self, stacks: Stacks, slots: Mapping[str, Stacks], lr: float) -> Update:
        return Corrected(self, stacks, slots, lr)


class Corrected(Update):
    """g <- g - c_k + c; and at the end c_k becomes what the visit says, and c moves as much."""

    needs_received = True

    def __call__(self, gradients: Sequence[torch.Tensor], lanes: slice) -> None:
        own, common = (self.view(name, self.slots[name], lanes) for name in ("control", "common_control"))
        super().__call__(list(torch._foreach_add(torch._foreach_sub(list(gradients), own), common)), lanes)

    @torch.no_grad()
    def finish(self, steps: Sequence[int]) -> None:
        for lane, taken in enumerate(steps):
            for name, w in self.stacks.items() if taken else ():
                own, common = self.slots["control"][name][lane], self.slots["common_control"][name][lane]
                change = (self.received[name][lane] - w[lane]) / (taken * self.lr) - common
                own += change
                common += change


@dataclass(frozen=True)
class Shared:
    """A server's rule for the model; of the mean change of c the share of the clients that it is the mean of.

    Args:
        rule: for the model.
        share: m / K, in (0, 1].
    """

    rule: Server
    share: float

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        merged, memory = self.rule(model, mean, total, memory, layout)
        floats = merged.floats.copy()
        for entry, place in layout.places():
            if entry.kind is Kind.SLOT and not entry.integer:
                change = mean.floats[place].astype(np.float64) - model.floats[place]
                floats[place] = model.floats[place] + self.share * change
        return Packed(floats, merged.integers), memory
