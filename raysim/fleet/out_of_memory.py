"""Out of memory: a block that does not fit stops the run, and the message names a size that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from algorithms import Block, Function, Output, Worker
from algorithms.parts.client_update import round_of
from algorithms.training.replay import NO_MEMORY
from raysim.common.errors import OutOfMemoryError

ALLOCATOR_MESSAGES = ("can't allocate memory", *NO_MEMORY)
"""Messages of errors without a type of their own: torch's allocator on CPUs, CUDA and its libraries on GPUs."""

FEWER_ACTORS = "or let fewer actors share the memory (the same bytes)"
"""Remedy that does not change the result."""


def out_of_memory(
    worker: Worker, function: Function, block: Block, attempt: Callable[[Block], Output | None]
) -> OutOfMemoryError:
    """Return the error of a block that does not fit; its message names a number of clients that does.

    Try it, because the need of a failed call is unknown: the first of a half, a quarter, ... for which `attempt` is not
    None. The results are thrown away, and the run never cuts its own blocks again, because other sums have other bytes.
    """
    size = _at_once(worker, block) // 2
    while size and attempt(_head(block, size)) is None:
        size //= 2
    return OutOfMemoryError(_message(worker, function, block, size))


@contextmanager
def models_fit(lanes: int) -> Iterator[None]:
    """Turn a lack of memory in the context, which makes `lanes` resident models, into an error with the remedy.

    Raises:
        OutOfMemoryError: the models do not fit.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(
            f"models for {lanes} client updates at once are out of memory, even without the updates: "
            + (
                f"set fleet.block below {lanes} (a new run: other bytes), {FEWER_ACTORS}"
                if lanes > 1
                else FEWER_ACTORS[3:]
            )
        ) from None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error reports a failed allocation, on a GPU or in main memory."""
    typed = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return typed or any(words in str(error) for words in ALLOCATOR_MESSAGES)


def _at_once(worker: Worker, block: Block) -> int:
    """Return the number of the block's client updates that train stacked; fewer clients take less memory."""
    return min((worker.low_rank or worker.trainer).lanes, len(block.clients))


def _head(block: Block, size: int) -> Block:
    clients, inputs, references = block.clients[:size], block.inputs[:size], block.references[:size]
    return replace(block, clients=clients, inputs=inputs, references=references)


def _message(worker: Worker, function: Function, block: Block, fitting: int) -> str:
    size = len(block.clients)
    clients = "1 client" if size == 1 else f"{size} clients"
    if (round_number := round_of(function)) is None:
        return f"{type(function).__name__} of {clients} is out of memory: {FEWER_ACTORS[3:]}"
    what = f"round {round_number}: a block of {clients}, {_at_once(worker, block)} at once, is out of memory"
    if fitting:
        return (
            f"{what}, and its first {fitting} fit: set fleet.block = {fitting} (a new run: other bytes), {FEWER_ACTORS}"
        )
    return f"{what}, and even one client does not fit: lower local.batch_size (a new run: other bytes), {FEWER_ACTORS}"
