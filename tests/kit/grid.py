"""The cluster of `clusters/local`, a head and a node with a job server, for tests that send jobs to it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from raysim.fleet import ray_cleanup

SCRIPT = Path(__file__).parents[2] / "clusters" / "local" / "cluster.py"


@dataclass(frozen=True)
class Grid:
    """Args:
    dashboard: URL of the job server.
    address: HOST:PORT of the control store.
    stage: an empty folder for its runs.
    environment: for a process that may connect.
    process: of the whole cluster.
    """

    dashboard: str
    address: str
    stage: Path
    environment: dict[str, str]
    process: subprocess.Popen[str]

    def end(self) -> int:
        """End it as Ctrl-C does: the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(120)


@contextmanager
def grid() -> Iterator[Grid]:
    """Within, a cluster runs that wants a token; at its end nothing of it is left."""
    stage = Path(tempfile.mkdtemp(prefix="g", dir="/tmp"))
    # A job runs the `python` of the head's path.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("RAY_ADDRESS", None)
    # Two actors have room on one node, and each further node costs seconds.
    command = [sys.executable, str(SCRIPT), "--nodes", "1", "--cpus", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    said: dict[str, str] = {}
    try:
        assert process.stderr is not None
        while "from" not in said:
            name, _, rest = next(process.stderr).strip().partition(" ")
            said[name] = rest.strip()
        own = dict(re.findall(r"(\w+)=(\S+)", said["from"]))
        del own["RAY_ADDRESS"]
        there = Grid(said["jobs"], said["address"], stage, {**environment, **own}, process)
        yield there
        if process.poll() is None:
            assert there.end() == 128 + signal.SIGINT
        assert ray_cleanup.processes(own["RAY_TMPDIR"]) == [] and not Path(own["RAY_TMPDIR"]).exists()
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(stage, ignore_errors=True)
