"""Ray itself: started on this machine or connected to, and ended again."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray

from partitioning import InputError

ANSWER_SECONDS = 10
"""How long the head of a cluster may take to answer."""

QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}


@contextmanager
def running(cpus: int, address: str | None) -> Iterator[None]:
    """Within, Ray runs; what was started for it ends with it, and a Ray that this process had before stays.

    Args:
        cpus: that a Ray of our own has, whatever this machine has.
        address: of a running cluster; None or "local" starts Ray on this machine.

    Raises:
        InputError: nothing answers at the address.
    """
    if ray.is_initialized():
        yield
        return
    if address and address != "local":
        check_answers(address)
        ray.init(address=address, **QUIET)
    else:
        # As many logical CPUs as the actors take: more actors than cores share them, and give the same bytes.
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, **QUIET)
    try:
        yield
    finally:
        ray.shutdown()


def check_answers(address: str) -> None:
    """Refuse an address at which nothing listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    wrong = f"--address = {address!r}: must be HOST:PORT of a running Ray cluster"
    if not host or not port.isdecimal():
        raise InputError(f"{wrong}; leave it out to start Ray here")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"{wrong}, and nothing answers there ({error}); leave it out to start Ray here") from None
