"""Blocks that run in one process."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from algorithms import Block, ClientUpdates, Local, Output, Purpose, Samples
from algorithms.core.fleet import Around
from algorithms.core.tree import Node
from raysim.fleet.inline import run_here


@dataclass(frozen=True)
class Own(Around):
    """Function of a user's own around client updates."""

    def __call__(self, worker: Any, block: Block, *values: Any) -> Output:
        return Output(0)


class Keys:
    """Worker that only keeps the keys of draws."""

    def __init__(self) -> None:
        self.keys = list[tuple[int, ...]]()

    def keyed(self, *key: int) -> Any:
        self.keys.append(key)
        return nullcontext()


def test_a_draw_in_a_block_is_keyed_by_the_round_too() -> None:
    worker: Any = Keys()
    for number in (1, 2):
        own = Own(ClientUpdates(Local(), Samples(), 0, number))
        run_here(worker, own, Node(0, 1), [Block(3, (0,), 1)], [])
    assert worker.keys == [(Purpose.OWN_BLOCK, 1, 3), (Purpose.OWN_BLOCK, 2, 3)]
