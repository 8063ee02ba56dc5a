"""The model that lives where visits run: its entries are views on two flat vectors, loaded by one copy."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from algorithms.layout import Packed, _entries
from algorithms.norms import refuses_single
from algorithms.place import Placement


class Resident:
    """A module whose travelling entries, then kept entries, stand in one vector each.

    Args:
        module: the model; it is taken over, its tensors become views.
        placement: which entries travel and which are kept.
        sample: one sample of the data, [*shape]: tells whether a training batch of one is refused.
        device: where it computes.
    """

    def __init__(self, module: nn.Module, placement: Placement, sample: torch.Tensor, device: str = "cpu") -> None:
        self.module = module.to(device)
        self.placement = placement
        self.device = torch.device(device)
        whole = placement.whole
        self.floats = torch.zeros(whole.floats, device=self.device)
        self.integers = torch.zeros(whole.integers, dtype=torch.int64, device=self.device)
        tensors = {entry.name: tensor for entry, tensor in _entries(self.module)}
        self.parameters: list[torch.Tensor] = []
        for entry, place in whole.places():
            tensor = tensors[entry.name]
            view = (self.integers if entry.integer else self.floats)[place].view(entry.shape)
            view.copy_(tensor.detach())
            # `.data` keeps the tensor's identity, so tied parameters stay tied and autograd sees a leaf.
            tensor.data = view
            if entry.is_parameter:
                self.parameters.append(tensor)
        self.refuses_single = refuses_single(self.module, sample.to(self.device))

    def load(self, travelling: Packed, kept: Packed) -> None:
        """Take over a model's travelling entries and a client's kept ones."""
        self._fill(self.floats, travelling.floats, kept.floats)
        self._fill(self.integers, travelling.integers, kept.integers)

    def travelling(self) -> Packed:
        """A copy of the entries that go with the model."""
        layout = self.placement.travelling
        return self._copy(slice(None, layout.floats), slice(None, layout.integers))

    def kept(self) -> Packed:
        """A copy of the entries that stay with the client."""
        layout = self.placement.travelling
        return self._copy(slice(layout.floats, None), slice(layout.integers, None))

    def _fill(self, vector: torch.Tensor, *parts: np.ndarray) -> None:
        host = vector if vector.device.type == "cpu" else torch.empty_like(vector, device="cpu")
        # Through numpy: the parts may be read-only views on shared memory, which torch would not take.
        np.concatenate(parts, out=host.numpy())
        if host is not vector:
            vector.copy_(host)

    def _copy(self, floats: slice, integers: slice) -> Packed:
        return Packed(self.floats[floats].cpu().numpy().copy(), self.integers[integers].cpu().numpy().copy())
