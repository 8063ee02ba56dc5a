"""The way to the server: the trained models in some lanes become the models that the server receives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from algorithms.core.keys import Purpose, torch_seed
from algorithms.core.layout import Packed
from algorithms.options.chain import FEEDBACK, StageChain
from algorithms.options.stages import Changes, layer_sizes
from algorithms.parts.client_update import Trained

CACHED = 2**20
"""Values of the models that are clipped at a time: 4 MiB in float32."""


@torch.no_grad()
def send(trained: Trained, uplink: StageChain, clients: Sequence[int]) -> None:
    """Pass the changes of some trained models through the uplink, and keep the residuals; see `Uplink`.

    A value that is sent unchanged stays the trained one to the last bit.

    Args:
        trained: trained models in their lanes.
        uplink: stages, at least one.
        clients: places of the clients that send, among those trained.
    """
    resident, local = trained.worker.resident, trained.updates.local
    entries = [(entry, place) for entry, place in resident.layouts.shared.places() if local.trains(entry)]
    if not entries or not clients:
        return
    lanes, received = [trained.lanes[i] for i in clients], [trained.received[i] for i in clients]
    if all(each is received[0] for each in received):
        received = received[:1]
    models, places = [resident.stacks[entry] for entry, _ in entries], [place for _, place in entries]
    if (norm := uplink.clips_alone) is not None:
        return _clip(models, places, lanes, received, norm)
    sizes, after = [entry.size for entry, _ in entries], _gathered(models, lanes)
    rows = np.stack([np.concatenate([each.floats[place] for place in places]) for each in received])
    before = torch.from_numpy(rows).to(after)
    change = after - before
    residuals = [resident.slots[FEEDBACK][entry.name] for entry, _ in entries] if uplink.feedback else []
    owed = change + _gathered(residuals, lanes) if residuals else change
    layers = layer_sizes(entry for entry, _ in entries)
    draws = tuple(_stream(trained, i) for i in clients) if uplink.draws else ()
    sent = uplink.sent(Changes(owed, owed.shape[1], layers, draws=draws))
    _scatter(models, lanes, torch.split(torch.where(sent == change, after, before + sent), sizes, dim=1))
    if residuals:
        _scatter(residuals, lanes, torch.split(owed - sent, sizes, dim=1))


def _clip(
    models: Sequence[torch.Tensor],
    places: Sequence[slice],
    lanes: Sequence[int],
    received: Sequence[Packed],
    norm: float,
) -> None:
    """Clip changes in place, a few models at a time, so that they stay in the processor's cache; see `Clip`.

    Args:
        models: stacks of the trained entries.
        places: place of each entry among a received model's floating values.
        lanes: lane of each client's model.
        received: model that each client received; one if all received the same.
        norm: largest norm of a change.
    """
    whole = np.stack([each.floats for each in received])
    before = [torch.from_numpy(whole[:, place]).to(models[0]) for place in places]
    step = max(1, CACHED // sum(stack[0].numel() for stack in models))
    for first, stop in _runs(lanes, step):
        rows, own = slice(lanes[first], lanes[first] + stop - first), slice(first, stop) if len(received) > 1 else ...
        starts = [part[own].view(-1, *stack.shape[1:]) for part, stack in zip(before, models, strict=True)]
        pairs = list(zip((stack[rows] for stack in models), starts, strict=True))
        changes = ((w - start).reshape(len(w), -1) for w, start in pairs)
        norms = [torch.linalg.vector_norm(each, dim=1, dtype=torch.float64) for each in changes]
        share = (norm / torch.stack(norms).square().sum(0).sqrt()).clamp(max=1).to(models[0])
        for w, start in pairs:
            # start + share (w - start); a share of 1 leaves w as it is.
            torch.lerp(start.expand_as(w), w, share.view(-1, *(1,) * (w.dim() - 1)), out=w)


def _runs(lanes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Cut a row of lanes into runs of neighbours, of at most `most`; yield the first and last place of each."""
    first = 0
    for place in range(1, len(lanes) + 1):
        if place == len(lanes) or place - first == most or lanes[place] != lanes[place - 1] + 1:
            yield first, place
            first = place


def _gathered(stacks: Sequence[torch.Tensor], lanes: list[int]) -> torch.Tensor:
    """Return the values of some lanes side by side, [lanes, n]."""
    return torch.cat([stack[lanes].reshape(len(lanes), -1) for stack in stacks], dim=1)


def _scatter(stacks: Sequence[torch.Tensor], lanes: list[int], parts: Sequence[torch.Tensor]) -> None:
    for stack, part in zip(stacks, parts, strict=True):
        stack[lanes] = part.view(len(lanes), *stack.shape[1:])


def _stream(trained: Trained, place: int) -> torch.Generator:
    """Return the random stream of a client's stages."""
    seed = torch_seed(trained.updates.seed, Purpose.UPLINK, trained.counter(place), trained.clients[place])
    return torch.Generator(trained.worker.resident.device).manual_seed(seed)
