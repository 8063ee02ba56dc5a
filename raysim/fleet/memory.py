"""Out of memory: a block that does not fit stops the run, and the message names one that does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from algorithms import Block, ClientUpdates, Function, Output, Worker
from algorithms.engine.asynchronous import Sent
from partitioning.common.disk import report_full_disk
from raysim.common.errors import OutOfMemoryError

ALLOCATORS_SAY = ("can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""What errors say that have no type of their own: torch's allocator on CPUs, and the libraries beside it on GPUs."""

SHARE = "or let fewer actors share the memory (the same bytes)"
"""What helps without another result: actors of one GPU, or of one machine, take what the others do not."""


def run_block(worker: Worker, function: Function, block: Block, common: Sequence[Any]) -> Output:
    """Run a block, its references being values here.

    Args:
        bench: what is resident here.
        function: what to do.
        block: the block.
        common: the values that all blocks take.

    Raises:
        OutOfMemoryError: the block does not fit; it says which one does.
    """
    if (output := _attempt(worker, function, block, common)) is not None:
        return output
    raise OutOfMemoryError(_message(worker, function, block, _fitting(worker, function, block, common)))


@contextmanager
def models_fit(lanes: int) -> Iterator[None]:
    """Within, so many models are made resident, before anything is known of what visits need beside them.

    Raises:
        OutOfMemoryError: they do not fit.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(
            f"models for {lanes} visits at once are out of memory, without the visits: "
            + (f"set fleet.block below {lanes} (a new run: other bytes), {SHARE}" if lanes > 1 else SHARE[3:])
        ) from None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that an allocation failed, on a GPU or in main memory."""
    typed = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return typed or any(words in str(error) for words in ALLOCATORS_SAY)


def _attempt(worker: Worker, function: Function, block: Block, common: Sequence[Any]) -> Output | None:
    """What a block comes to; None where memory does not suffice, the failed call's own being free again by then."""
    try:
        with report_full_disk(worker.personal.folder):
            return function(worker, replace(block, references=()), *common, *block.references)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    return None


def _fitting(worker: Worker, function: Function, block: Block, common: Sequence[Any]) -> int:
    """How many of the block's clients fit: of a half, a quarter, ... the first that runs; 0 where none does.

    It is tried, not worked out, since what a failed call would have needed is not known. What comes out is thrown
    away: the run's own blocks are never cut again, for other sums would be other bytes.
    """
    size = _at_once(worker, block) // 2
    while size and _attempt(worker, function, _head(block, size), common) is None:
        size //= 2
    return size


def _at_once(worker: Worker, block: Block) -> int:
    """How many of the block's visits are stacked: fewer clients than these take less memory."""
    return min(worker.trainer.lanes, len(block.clients))


def _head(block: Block, size: int) -> Block:
    """A block's first clients."""
    clients, rows, references = block.clients[:size], block.rows[:size], block.references[:size]
    return replace(block, clients=clients, rows=rows, references=references)


def _message(worker: Worker, function: Function, block: Block, fitting: int) -> str:
    size = len(block.clients)
    clients = "1 client" if size == 1 else f"{size} clients"
    updates = function.updates if isinstance(function, Sent) else function
    if not isinstance(updates, ClientUpdates):
        return f"{type(function).__name__} of {clients} is out of memory: {SHARE[3:]}"
    what = f"round {updates.number}: a block of {clients}, {_at_once(worker, block)} at once, is out of memory"
    if fitting:
        return f"{what}, and its first {fitting} fit: set fleet.block = {fitting} (a new run: other bytes), {SHARE}"
    return (
        f"{what}, and a single one would be: no fleet.block fits; lower local.batch_size (a new run: other bytes), "
        f"{SHARE}"
    )
