"""What Ray leaves behind when it ends, or when its driver is killed: a small process that clears it away.

Run as a program beside the driver, before Ray starts. It waits until the driver closes its end of a pipe, which it
does when Ray is shut down, and the kernel for it where it died. So one piece of code clears up after every end. It
needs the standard library only, and little of that: it lives as long as Ray does.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "RAYSIM_RAY"
"""A variable in the environment of all processes of a Ray of ours; its value is the folder of that Ray."""

PATIENCE_SECONDS = 20
"""How long processes may take to die: one that the kernel holds may outlast it."""


def clear(folder: str) -> None:
    """End what still runs of the Ray of this folder, by its process ids, and remove the folder."""
    import shutil  # late: the process that waits has no use for it

    deadline = time.monotonic() + PATIENCE_SECONDS
    while (left := processes(folder)) and time.monotonic() < deadline:
        for process in left:
            with suppress(ProcessLookupError):  # it has ended by itself
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)
    shutil.rmtree(folder, ignore_errors=True)


def processes(folder: str) -> list[int]:
    """The processes of the Ray of this folder; none where the system does not tell, for it has no `/proc`."""
    if not Path("/proc/self/environ").exists():
        return []
    there = [int(home.name) for home in Path("/proc").iterdir() if home.name.isdecimal()]
    return [process for process in there if process != os.getpid() and _is_of(Path(f"/proc/{process}"), folder)]


def _is_of(home: Path, folder: str) -> bool:
    """Whether a process is of this Ray: it says so, or Ray renamed it, over its environment, and it has files there.

    One that has ended and only waits for its parent to take note has neither.
    """
    try:
        if f"{MARK}={folder}".encode() in (home / "environ").read_bytes().split(b"\0"):
            return True
        if not (home / "cmdline").read_bytes().startswith(b"ray::"):
            return False
        return any(str(file.readlink()).startswith(f"{folder}/") for file in (home / "fd").iterdir())
    except OSError:  # another user's, or it ended meanwhile
        return False


def main() -> None:
    """Wait for the driver's end, then clear up after it."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # what ends the driver must not end this first
    while os.read(0, 1):
        pass
    clear(sys.argv[1])


if __name__ == "__main__":
    main()
