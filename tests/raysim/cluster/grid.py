"""A Ray cluster of three nodes on this machine with a job server, as a process of its own that ends with its input.

It says in a line of JSON where it is. The head has no CPU: so the driver is there, and the actors are not.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NODES = 2


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


@contextmanager
def grid() -> Iterator[Grid]:
    """Within, a cluster runs that wants a token."""
    folder = Path(tempfile.mkdtemp(prefix="g", dir="/tmp"))
    (folder / "stage").mkdir()
    (folder / "token").write_text(secrets.token_hex(32))
    (folder / "token").chmod(0o600)
    # A job runs the `python` of the head's path.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token")}
    environment = {
        **os.environ,
        **token,
        "RAY_TMPDIR": str(folder),
        "PATH": path,
        "RAY_raylet_start_wait_time_s": "120",
    }
    environment.pop("RAY_ADDRESS", None)
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "tests.raysim.cluster.grid"]
    root = Path(__file__).parents[3]
    process = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment, cwd=root
    )
    try:
        assert process.stdout is not None
        where = json.loads(next(line for line in process.stdout if line.startswith("{")))
        yield Grid(**where, stage=folder / "stage", environment=environment, process=process)
    finally:
        process.communicate()
        shutil.rmtree(folder, ignore_errors=True)


def serve() -> None:
    from ray.cluster_utils import Cluster

    head = {
        "num_cpus": 0,
        "include_dashboard": True,
        "dashboard_host": "127.0.0.1",
        "dashboard_port": free_port(),
        # Ray's own default is one port, which another cluster on this machine may have.
        "dashboard_agent_listen_port": free_port(),
    }
    cluster = Cluster(True, head_node_args=head)
    for _ in range(NODES):
        cluster.add_node(num_cpus=1)
    dashboard = f"http://{cluster.head_node.address_info['webui_url']}"
    sys.stdout.write(json.dumps({"dashboard": dashboard, "address": cluster.address}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    cluster.shutdown()


def free_port() -> int:
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        return int(there.getsockname()[1])


if __name__ == "__main__":
    serve()
