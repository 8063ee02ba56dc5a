"""The models that live where visits run: stacked, their entries views on flat vectors, loaded by one copy."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from algorithms.engine.batch_norm import refuses_single
from algorithms.engine.finite import first_nonfinite
from algorithms.engine.layout import Entry, Kind, Packed, _entries
from algorithms.parts.local import Local
from algorithms.parts.sharing import Layouts


class Resident:
    """A stack of models of one kind, a lane each: row `lane` of two matrices holds a model's entries.

    In a row the travelling entries stand first, then the kept ones. The module computes with lane 0. Frozen entries
    are the module's own, one for all lanes: nothing loads or changes them.

    Args:
        module: the model; it is taken over, its tensors become views.
        placement: which entries travel, which are kept, and which are frozen.
        sample: one sample of the data, [*shape]: tells whether a training batch of one is refused.
        device: where it computes.
        lanes: how many models there are.
    """

    def __init__(
        self, module: nn.Module, layouts: Layouts, sample: torch.Tensor, device: str = "cpu", lanes: int = 1
    ) -> None:
        self.module = module.to(device)
        self.layouts = layouts
        self.device = torch.device(device)
        self.lanes = lanes
        whole = layouts.whole
        self.floating: torch.dtype = getattr(torch, whole.floating)
        self._floats = torch.zeros(lanes, whole.floats, dtype=self.floating, device=self.device)
        self._integers = torch.zeros(lanes, whole.integers, dtype=torch.int64, device=self.device)
        self.stacks: dict[Entry, torch.Tensor] = {}
        """For each entry the models' values, [lanes, *shape]: views."""
        self.slots: dict[str, dict[str, torch.Tensor]] = {}
        """What stands beside the models, by the slot's name and the parameter's: stacks as well."""
        self.counters: dict[str, torch.Tensor] = {}
        """Those slots that are one number a model, [lanes]."""
        self.parameters: dict[str, torch.Tensor] = {}
        """The module's own parameters, those of lane 0."""
        tensors = {entry.name: tensor for entry, tensor in _entries(self.module)}
        for entry, place in whole.places():
            stack = (self._integers if entry.integer else self._floats)[:, place].view(lanes, *entry.shape)
            if entry.kind is Kind.SLOT:
                slot, name = entry.name.split("/", 1)
                if entry.integer:
                    self.counters[slot] = stack
                else:
                    self.slots.setdefault(slot, {})[name] = stack
                continue
            self.stacks[entry] = stack
            tensor = tensors[entry.name]
            stack.copy_(tensor.detach())
            # `.data` keeps the tensor's identity, so tied parameters stay tied and autograd sees a leaf.
            tensor.data = stack[0]
            if entry.is_parameter:
                self.parameters[entry.name] = tensor
        self.sample = sample.to(self.device, self.floating)
        self.refuses_single = refuses_single(self.module, self.sample)

    def trained(self, local: Local) -> dict[str, torch.Tensor]:
        """The stacks of the parameters that visits train, by name."""
        frozen = {Kind.AFFINE} if local.affine == "frozen" else set()
        return {e.name: stack for e, stack in self.stacks.items() if e.is_parameter and e.kind not in frozen}

    def load(self, shared: Packed, personal: Packed, lane: int = 0) -> None:
        """Take over a model's travelling entries and a client's kept ones."""
        self._fill(self._floats[lane], shared.floats, personal.floats)
        self._fill(self._integers[lane], shared.integers, personal.integers)

    def shared(self, lane: int = 0) -> Packed:
        """The entries that go with the model: a view, where they are in this memory, until the next load."""
        layout = self.layouts.shared
        return self._values(lane, slice(None, layout.floats), slice(None, layout.integers))

    def personal(self, lane: int = 0) -> Packed:
        """The entries that stay with the client: a view like `shared`."""
        layout = self.layouts.shared
        return self._values(lane, slice(layout.floats, None), slice(layout.integers, None))

    def sums(self, lanes: int) -> list[float]:
        """For each of the first lanes the sum of its floating entries: finite where they are, unless it overflows."""
        totals: list[float] = self._floats[:lanes].sum(1).tolist()
        return totals

    def first_nonfinite(self, lane: int) -> str | None:
        """The first entry of a lane that holds NaN or infinity, in words; None where all are finite."""
        layouts = self.layouts
        shared = first_nonfinite(layouts.shared, self.shared(lane))
        return shared or first_nonfinite(layouts.personal, self.personal(lane))

    def _fill(self, vector: torch.Tensor, *parts: np.ndarray) -> None:
        host = vector if vector.device.type == "cpu" else torch.empty_like(vector, device="cpu")
        # Through numpy: the parts may be read-only views on shared memory, which torch would not take.
        np.concatenate(parts, out=host.numpy())
        if host is not vector:
            vector.copy_(host)

    def _values(self, lane: int, floats: slice, integers: slice) -> Packed:
        return Packed(self._floats[lane, floats].cpu().numpy(), self._integers[lane, integers].cpu().numpy())
