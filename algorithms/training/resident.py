"""Resident models of a worker: stacked, with entries that are views on flat vectors, loaded by one copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from algorithms.core.batch_norm import refuses_single
from algorithms.core.chunks import chunks, growth_of
from algorithms.core.entries import SECOND_MODEL, Entry, Kind, entries_of
from algorithms.core.finite import first_nonfinite
from algorithms.core.layout import Layouts, Packed
from algorithms.core.sums import Sum
from algorithms.training.local import Local


class Resident:
    """A stack of models of one kind, a lane each: row `lane` of two matrices holds a model's entries.

    In a row shared entries come before personal ones. The module computes with lane 0. Frozen entries are the module's
    own, one for all lanes: nothing loads or changes them.

    Args:
        module: the model; its tensors become views.
        layouts: layouts of shared, personal and frozen entries.
        sample: one sample of the data, [*shape]; it shows whether batch norm refuses a training batch of one.
        device: "cpu" or "cuda".
        lanes: number of models.
    """

    def __init__(
        self, module: nn.Module, layouts: Layouts, sample: torch.Tensor, device: str = "cpu", lanes: int = 1
    ) -> None:
        self.floating: torch.dtype = getattr(torch, layouts.whole.floating)
        self._growth = growth_of(module, sample.to(self.floating))
        self.module = module.to(device)
        self.layouts = layouts
        self.device = torch.device(device)
        self.lanes = lanes
        whole = layouts.whole
        self._floats = torch.zeros(lanes, whole.floats, dtype=self.floating, device=self.device)
        self._integers = torch.zeros(lanes, whole.integers, dtype=torch.int64, device=self.device)
        # On a CPU numpy shares the memory, and is faster at it than torch.
        tensors = (self._floats, self._integers) if self.device.type == "cpu" else ()
        self._host: dict[torch.dtype, np.ndarray] = {tensor.dtype: tensor.numpy() for tensor in tensors}
        self.stacks: dict[Entry, torch.Tensor] = {}
        """Values of each entry in all models, [lanes, *shape]: views."""
        self.slots: dict[str, dict[str, torch.Tensor]] = {}
        """Values beside the models, by the names of slot and parameter: stacks like the entries."""
        self.counters: dict[str, torch.Tensor] = {}
        """Slots of one number for each model, [lanes]."""
        self.parameters: dict[str, torch.Tensor] = {}
        """Parameters of the module, in lane 0."""
        found = {entry.name: tensor for entry, tensor in entries_of(self.module)}
        for entry, place in whole.places():
            stack = (self._integers if entry.integer else self._floats)[:, place].view(lanes, *entry.shape)
            if entry.kind in (Kind.SLOT, Kind.SECOND):
                slot, name = entry.name.split("/", 1)
                if entry.start is not None or (entry.integer and entry.kind is Kind.SLOT):
                    self.counters[slot] = stack
                else:
                    self.slots.setdefault(slot, {})[name] = stack
                continue
            self.stacks[entry] = stack
            tensor = found[entry.name]
            stack.copy_(tensor.detach())
            # `.data` keeps the tensor's identity, so tied parameters stay tied and autograd sees a leaf.
            tensor.data = stack[0]
            if entry.is_parameter:
                self.parameters[entry.name] = tensor
        second = self.slots.get(SECOND_MODEL, {})
        tracked = [(s, second[e.name]) for e, s in self.stacks.items() if e.name in second and not e.is_parameter]
        self.beside = self.counters, tracked
        """Numbers beside the models, and stacks of entries that never train: the models' and the second models'."""
        self.sample = sample.to(self.device, self.floating)
        self.refuses_single = refuses_single(self.module, self.sample)

    def chunks(self, x: torch.Tensor) -> Iterator[slice]:
        """Return slices of samples, [n, *shape], for one pass each: the shorter, the wider the model's layers."""
        return chunks(x, self._growth)

    def trained(self, local: Local) -> dict[str, torch.Tensor]:
        """Return the stacks of the parameters that client updates train, by name."""
        return {e.name: stack for e, stack in self.stacks.items() if local.trains(e)}

    def load(self, shared: Packed, personal: Packed, lane: int = 0) -> None:
        """Load the shared entries of a model and the personal entries of a client into a lane."""
        self._fill(self._floats, lane, shared.floats, personal.floats)
        self._fill(self._integers, lane, shared.integers, personal.integers)

    def load_personal(self, personal: Packed) -> None:
        """Load the personal entries of a client into lane 0, beside the shared ones that it holds."""
        layout = self.layouts.shared
        self._fill(self._floats[:, layout.floats :], 0, personal.floats)
        self._fill(self._integers[:, layout.integers :], 0, personal.integers)

    def load_stack(self, shared: Sequence[Packed], personal: Sequence[Packed]) -> None:
        """Load the first lanes, one for each model; a model that many lanes receive is copied to the device once."""
        if not self._host:
            self._load_on_device(shared, personal)
            return
        self.load(shared[0], personal[0])
        if len(shared) == 1:
            return
        equal = [0]
        for lane in range(1, len(shared)):
            if shared[lane] is shared[0] and personal[lane] is personal[0]:
                equal.append(lane)
            else:
                self.load(shared[lane], personal[lane], lane)
        lanes: Any = slice(1, len(shared)) if len(equal) == len(shared) else equal[1:]
        for rows in self._host.values():
            rows[lanes] = rows[0].copy()

    def _load_on_device(self, shared: Sequence[Packed], personal: Sequence[Packed]) -> None:
        """Load the first lanes by one copy of all models, or of the one that all lanes receive, and of all entries."""
        one, layout = all(model is shared[0] for model in shared), self.layouts.shared
        for own, middle, name in (
            (self._floats, layout.floats, "floats"),
            (self._integers, layout.integers, "integers"),
        ):
            parts = ([shared[0]] if one else shared, slice(middle)), (personal, slice(middle, None))
            for models, place in parts:
                # A stack is a copy: torch refuses read-only views on shared memory.
                rows = np.stack([getattr(model, name) for model in models])
                own[: len(shared), place] = torch.from_numpy(rows).to(self.device)

    @torch.no_grad()
    def swap(self, lanes: int) -> None:
        """Exchange the models of the first lanes and the clients' second ones."""
        second = self.slots[SECOND_MODEL]
        for entry, stack in self.stacks.items():
            model, own = stack[:lanes], second[entry.name][:lanes]
            kept = model.clone()
            model.copy_(own)
            own.copy_(kept)

    def shared(self, lane: int = 0) -> Packed:
        """Return the shared entries of a lane; on a CPU a view, valid until the next load."""
        layout = self.layouts.shared
        return self._values(lane, slice(None, layout.floats), slice(None, layout.integers))

    def personal(self, lane: int = 0) -> Packed:
        """Return the personal entries of a lane, as `shared` does."""
        layout = self.layouts.shared
        return self._values(lane, slice(layout.floats, None), slice(layout.integers, None))

    def values(self, lanes: slice) -> list[torch.Tensor]:
        """Return all entries of some lanes, as views."""
        return [self._floats[lanes], self._integers[lanes]]

    def sums(self, lanes: int) -> list[float]:
        """Return the sum of the floating entries of each of the first lanes: finite if they are and none overflows."""
        totals: list[float] = self._floats[:lanes].sum(1).tolist()
        return totals

    def add(self, models: Sum, lanes: Sequence[int], weights: Sequence[float]) -> None:
        """Add the shared entries of some lanes to a weighted sum, in this order; a GPU sums several by itself."""
        counted = [(lane, weight) for lane, weight in zip(lanes, weights, strict=True) if weight]
        if len(counted) > 1 and not self._host:
            self._add_on_device(models, counted)
            return
        for lane, weight in counted:
            models.add(self.shared(lane), weight)

    def _add_on_device(self, models: Sum, counted: Sequence[tuple[int, float]]) -> None:
        shared = self.layouts.shared
        # Each product has a kernel of its own: a kernel that also adds it would round once, and a CPU rounds twice.
        products = (self._floats[lane, : shared.floats].double() * weight for lane, weight in counted)
        sums, total = next(products), counted[0][1]
        for product, (_, weight) in zip(products, counted[1:], strict=True):
            sums += product
            total += weight
        integers = self._integers[[lane for lane, _ in counted], : shared.integers].amax(0)
        models.include(sums.cpu().numpy(), integers.cpu().numpy(), total)

    def first_nonfinite(self, lane: int) -> str | None:
        """Name the first entry of a lane that holds NaN or infinity; None if all are finite."""
        layouts = self.layouts
        shared = first_nonfinite(layouts.shared, self.shared(lane))
        return shared or first_nonfinite(layouts.personal, self.personal(lane))

    def _fill(self, lanes: torch.Tensor, lane: int, *parts: np.ndarray) -> None:
        # Use numpy: torch refuses read-only views on shared memory.
        if self._host:
            np.concatenate(parts, out=lanes.numpy()[lane])
        else:
            lanes[lane].copy_(torch.from_numpy(np.concatenate(parts)))

    def _values(self, lane: int, floats: slice, integers: slice) -> Packed:
        if self._host:
            return Packed(self._host[self.floating][lane, floats], self._host[torch.int64][lane, integers])
        return Packed(self._floats[lane, floats].cpu().numpy(), self._integers[lane, integers].cpu().numpy())
