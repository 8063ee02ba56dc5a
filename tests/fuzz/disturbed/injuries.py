"""What can happen to a run: each is done at a drawn moment, and leaves a run that ends by itself or can be resumed.

Each returns whether it did something: actors may not have arrived yet, and a run may have ended.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.disturbed.grid import Grid
from tests.fuzz.disturbed.run import Run
from tests.fuzz.processes import command, descendants, send

Injury = Callable[[Run, Grid | None, random.Random], bool]


def kill_actor(run: Run, grid: Grid | None, draw: random.Random) -> bool:
    """A client actor dies; the run goes on."""
    actors = grid.actors() if grid else []
    return bool(actors) and send(draw.choice(actors), signal.SIGKILL)


def kill_all_actors(run: Run, grid: Grid | None, draw: random.Random) -> bool:
    """All client actors die at once; the run goes on."""
    sent = [send(actor, signal.SIGKILL) for actor in (grid.actors() if grid else [])]
    return any(sent)


def stop_actor(run: Run, grid: Grid | None, draw: random.Random) -> bool:
    """A client actor stops answering; the run goes on."""
    actors = grid.actors() if grid else []
    return bool(actors) and send(draw.choice(actors), signal.SIGSTOP)


def kill_node(run: Run, grid: Grid | None, draw: random.Random) -> bool:
    """A node dies, with the models that are on it; the run goes on."""
    if grid is None:
        return False
    grid.kill_node()
    return True


def kill_raylet(run: Run, grid: Grid | None, draw: random.Random) -> bool:
    """Kill the process that starts workers in a run's own Ray."""
    return _kill_part(run, "raylet")


def kill_control_store(run: Run, grid: Grid | None, draw: random.Random) -> bool:
    """Kill the process in which a run's own Ray keeps its records."""
    return _kill_part(run, "gcs_server")


def _kill_part(run: Run, program: str) -> bool:
    """Kill a program of a run's own Ray when it is there, at the start of the actors or later."""
    while run.process.is_alive():
        for pid in descendants(run.pid):
            if Path(command(pid).partition(" ")[0]).name == program:
                return send(pid, signal.SIGKILL)
        time.sleep(0.1)
    return False


def kill_driver(run: Run, grid: Grid | None, draw: random.Random) -> bool:
    """The driver dies without a chance to do anything."""
    return send(run.pid, signal.SIGKILL)


def interrupt(run: Run, grid: Grid | None, draw: random.Random) -> bool:
    """A person presses Ctrl-C, once or twice."""
    sent = send(run.pid, signal.SIGINT)
    if draw.random() < 0.5:
        time.sleep(0.2 * draw.random())
        send(run.pid, signal.SIGINT)
    return sent


def preempt(run: Run, grid: Grid | None, draw: random.Random) -> bool:
    """A scheduler ends the job."""
    return send(run.pid, signal.SIGTERM)


def tear_checkpoint(run: Run, grid: Grid | None, draw: random.Random) -> bool:
    """The driver dies, and the newest checkpoint is cut off, or one of its bits flips."""
    send(run.pid, signal.SIGKILL)
    run.ends()
    checkpoints = sorted(run.folder.glob("*/checkpoint/*.safetensors"), key=lambda path: path.name)
    if not checkpoints:
        return False
    whole = bytearray(checkpoints[-1].read_bytes())
    place = draw.randrange(len(whole))
    if draw.random() < 0.5:
        del whole[place:]
    else:
        whole[place] ^= 1 << draw.randrange(8)
    checkpoints[-1].write_bytes(whole)
    return True


def break_numbers(run: Run, grid: Grid | None, draw: random.Random) -> bool:
    """Training gives no numbers any more; when the run has stopped, it does again."""
    run.broken.touch()
    status = run.ends()
    run.broken.unlink()
    return status != 0


def fill_disk(run: Run, grid: Grid | None, draw: random.Random) -> bool:
    """Nothing more can be written; when the run has stopped, there is room again."""
    ballast = run.home / "ballast"
    subprocess.run(["dd", "if=/dev/zero", f"of={ballast}", "bs=4k"], stderr=subprocess.DEVNULL, check=False)
    # What is left over is drawn, so that now the one file and now the other does not fit.
    with ballast.open("r+b") as file:
        file.truncate(max(0, ballast.stat().st_size - 4096 * draw.randrange(16)))
    status = run.ends()
    ballast.unlink()
    return status != 0


class SmallDisk:
    """A file system of its own, which is soon full; a context."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Path:
        self._folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128m", "none", self._folder], check=True)
        return self._folder

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", self._folder], check=True)
