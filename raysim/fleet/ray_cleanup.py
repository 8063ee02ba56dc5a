"""Cleanup after Ray: a small process that removes whatever Ray leaves behind when its driver ends or is killed.

It runs as a program beside the driver and starts before Ray. It waits until the driver closes its end of a pipe. The
driver does so when it shuts Ray down, and the kernel does so if the driver dies: one piece of code serves both cases.
It imports little of the standard library and nothing else, because it lives as long as Ray.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "RAYSIM_RAY"
"""Environment variable of all processes of a Ray of ours; its value is the folder of that Ray."""

PATIENCE_SECONDS = 20
"""Time that processes may take to die. A process held by the kernel may outlast it."""


def clear(folder: str) -> None:
    """Kill the remaining processes of the Ray in this folder, and remove the folder."""
    import shutil  # late: the waiting process has no use for it

    deadline = time.monotonic() + PATIENCE_SECONDS
    while (left := processes(folder)) and time.monotonic() < deadline:
        for process in left:
            with suppress(ProcessLookupError):  # it has ended by itself
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)
    shutil.rmtree(folder, ignore_errors=True)


def processes(folder: str) -> list[int]:
    """Return the process ids of the Ray in this folder; none on a system without `/proc`."""
    if not Path("/proc/self/environ").exists():
        return []
    there = [int(home.name) for home in Path("/proc").iterdir() if home.name.isdecimal()]
    return [process for process in there if process != os.getpid() and _belongs(Path(f"/proc/{process}"), folder)]


def _belongs(home: Path, folder: str) -> bool:
    """Return whether a process belongs to this Ray.

    Either its environment says so, or Ray has overwritten the environment with a name and the process has open files in
    the folder. A zombie has neither.
    """
    try:
        if f"{MARK}={folder}".encode() in (home / "environ").read_bytes().split(b"\0"):
            return True
        if not (home / "cmdline").read_bytes().startswith(b"ray::"):
            return False
        return any(str(file.readlink()).startswith(f"{folder}/") for file in (home / "fd").iterdir())
    except OSError:  # another user's process, or one that has just ended
        return False


def main() -> None:
    """Wait for the end of the driver, then clear up."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # a signal to the driver must not end this process first
    while os.read(0, 1):
        pass
    clear(sys.argv[1])


if __name__ == "__main__":
    main()
