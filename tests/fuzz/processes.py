"""Processes by their ids, read from /proc: who descends from whom, and what they are."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """All processes that a process started, and those that these started, while it lives."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError, ValueError):
                # The name, in brackets, may hold anything; the parent is the second field behind it.
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(folder.name))
    found, waiting = [], [pid]
    while waiting:
        added = children.get(waiting.pop(), [])
        found += added
        waiting += added
    return found


def client_actors(pid: int) -> list[int]:
    """The client actors among the descendants of a process; Ray names a worker by what it runs."""
    return sorted(each for each in descendants(pid) if "ray::ClientActor" in command(each))


def command(pid: int) -> str:
    """A process's command line; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; False where the process has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
