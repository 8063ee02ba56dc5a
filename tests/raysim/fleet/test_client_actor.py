"""A client actor in this process, on a GPU that a stand-in plays."""

from typing import Any
from unittest.mock import Mock

import pytest
import torch

from raysim.fleet import client_actor
from raysim.fleet.client_actor import ClientActor


@pytest.mark.parametrize(("device", "emptied"), [("cpu", 0), ("cuda", 1)])
def test_memory_of_the_last_worker_is_free_for_the_next(
    device: str, emptied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a GPU would have less room for the data of the second algorithm."""
    for name in ("keep_memory", "settle", "this_node"):
        monkeypatch.setattr(client_actor, name, Mock())
    monkeypatch.setattr(torch.cuda, "empty_cache", empty := Mock())
    actor, worker = ClientActor(0, 1, device), Mock()
    workers: list[Any] = []

    def build(share: float) -> Any:
        workers.append(empty.call_count)
        return worker

    monkeypatch.setattr(client_actor, "located", lambda *_: Mock(build=build))
    monkeypatch.setattr(actor, "fingerprint", Mock())
    for _ in range(2):
        actor.prepare(Mock())
    assert workers == [0, emptied]
