"""Ray cluster of several nodes on this machine while a command runs, for experiments with placement and for tests.

    python clusters/local/cluster.py --nodes 2 -- raysim run quickstart --set rounds=3 --actors 2

The head has no CPUs, to keep actors on the nodes. Everything listens on 127.0.0.1 only and asks for a token of this
cluster. In the command, `{address}` and `{jobs}` become the addresses of the cluster and of its job server. The
command's environment names the cluster too. Without a command the cluster stays until Ctrl-C.
"""

from __future__ import annotations

import os
import runpy
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

try:
    import raysim
except ModuleNotFoundError:
    sys.exit("raysim: must be installed to be imported; activate its environment: . .venv/bin/activate")

if TYPE_CHECKING:  # late, because Ray reads its settings from the environment at the import
    from ray.cluster_utils import Cluster

CLEANUP = Path(raysim.__file__).parent / "fleet" / "ray_cleanup.py"
"""Program that clears up after Ray, by its path, because its package imports Ray."""

_CLEANUP = runpy.run_path(str(CLEANUP))
MARK: str = _CLEANUP["MARK"]
"""Environment variable of the processes of a Ray; its value is the Ray's folder."""

processes: Callable[[str], list[int]] = _CLEANUP["processes"]
"""Function from a Ray's folder to the ids of its processes."""

NODE_SECONDS = "RAY_raylet_start_wait_time_s"
"""Environment variable with the seconds that Ray waits for a node to start."""

LATE = "timed out during startup"
"""Ray's message if a node did not start in time."""

TRIES = 2
"""Number of starts of a late node."""

MIB = 2**20
MIN_MEMORY = 80
"""Smallest object store in MiB that Ray starts."""


class Stopped(BaseException):
    """End on a signal; like KeyboardInterrupt it is not an error."""

    def __init__(self, number: int) -> None:
        self.number = number


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog="Returns the command's exit status.")
@click.option("--nodes", type=click.IntRange(1), default=2, show_default=True, help="Nodes beside the head.")
@click.option("--cpus", type=click.IntRange(1), default=1, show_default=True, help="CPUs that Ray counts on each node.")
@click.option(
    "--gpus",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="GPUs that Ray counts on each node, real or not.",
)
@click.option(
    "--labels",
    "labels",
    multiple=True,
    metavar="KEY=VALUE[,...]",
    help="Labels of all nodes; repeat the option once a node for different labels.",
)
@click.option(
    "--memory",
    type=click.IntRange(MIN_MEMORY),
    default=200,
    show_default=True,
    metavar="MIB",
    help="Object store of each node.",
)
@click.option("--jobs/--no-jobs", default=True, show_default=True, help="Start the dashboard, which takes jobs.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND ...]")
def main(
    nodes: int, cpus: int, gpus: int, labels: tuple[str, ...], memory: int, jobs: bool, command: tuple[str, ...]
) -> None:
    """Start a head and nodes on this machine, run a command against them, and end them."""
    if len(labels) not in (0, 1, nodes):
        raise click.UsageError(f"--labels, {len(labels)} times: must be given once or {nodes} times, once a node")
    each = [_labels(text) for text in labels] or [{}]
    try:
        _on_signals(_stop)
        with _environment() as environment, _cluster(jobs, memory * MIB) as cluster:
            common = {"num_cpus": cpus, "num_gpus": gpus, "object_store_memory": memory * MIB}
            for node in range(nodes):
                _add(cluster, labels=each[node % len(each)], **common)
            environment["RAY_ADDRESS"] = cluster.address
            places = {"address": cluster.address, "jobs": f"http://{cluster.webui_url}" if jobs else ""}
            _show(places, environment)
            status = _run([_filled(word, places) for word in command], {**os.environ, **environment})
    except Stopped as stopped:
        status = 128 + stopped.number  # as in a shell
    sys.exit(status)


def _labels(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(key and value for key, _, value in pairs):
        raise click.UsageError(f"--labels = {text!r}: must be KEY=VALUE, or several with commas; try site=a")
    return {key: value for key, _, value in pairs}


def _filled(word: str, places: Mapping[str, str]) -> str:
    for name, value in places.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def _stop(number: int, _: Any) -> None:
    raise Stopped(number)


def _on_signals(action: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, action)


@contextmanager
def _environment() -> Iterator[dict[str, str]]:
    """Set Ray's environment for the context: a folder and a token of its own, on loopback.

    A small process beside this one then ends all processes of that Ray and removes the folder, even after `kill -9`.
    """
    folder = Path(tempfile.mkdtemp(prefix="raysim-", dir="/tmp"))  # short, for the names of sockets
    command = [sys.executable, "-I", "-S", str(CLEANUP), str(folder)]
    silent = subprocess.DEVNULL
    watcher = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=silent, stderr=silent, start_new_session=True)
    try:
        token = folder / "token"
        token.touch(0o600)
        token.write_text(secrets.token_hex(32), encoding="ascii")
        environment = {
            MARK: str(folder),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_TMPDIR": str(folder),
            # Without support for clusters of machines Ray listens on loopback, and finds its nodes there.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            NODE_SECONDS: os.environ.get(NODE_SECONDS, "90"),  # beside other work Ray's own 30 are too few
        }
        os.environ.pop("RAY_AUTH_TOKEN", None)  # Ray would prefer it to the file
        os.environ.update(environment)
        yield environment
    finally:
        _on_signals(signal.SIG_IGN)
        watcher.communicate()


@contextmanager
def _cluster(jobs: bool, memory: int) -> Iterator[Cluster]:
    """Run a head without CPUs in the context; then shut down its nodes, the last one first."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(shutdown_at_exit=False)
    try:
        # Another Ray may use the default ports of the dashboard and of the job agent. No run uses the forwarding of
        # logs, which imports Ray for seconds of a core.
        head = {"dashboard_port": None, "dashboard_agent_listen_port": None, "include_log_monitor": False}
        _add(cluster, num_cpus=0, include_dashboard=jobs, object_store_memory=memory, **head)
        yield cluster
    finally:
        _on_signals(signal.SIG_IGN)  # the cluster is ending already
        cluster.shutdown()  # type: ignore[no-untyped-call]


def _add(cluster: Cluster, **node: Any) -> None:
    """Start a node. If it was late, end its processes and start it again."""
    there = set(processes(os.environ[MARK]))
    for left in reversed(range(TRIES)):
        try:
            cluster.add_node(**node)
            return
        except Exception as error:  # Ray has no class for this error
            if LATE not in str(error) or not left:
                raise
        for process in set(processes(os.environ[MARK])) - there:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def _show(places: Mapping[str, str], environment: Mapping[str, str]) -> None:
    click.echo(f"address  {places['address']}", err=True)
    if places["jobs"]:
        click.echo(f"jobs     {places['jobs']}", err=True)
    shown = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items() if name != MARK)
    click.echo(f"from another terminal: export {shown}", err=True)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command, pass signals on to it, and return its exit status."""
    if not command:
        signal.pause()
    try:
        # In its own process group, to get a terminal's Ctrl-C once. Such a group may not read from the terminal.
        child = subprocess.Popen(command, env=environment, process_group=0, stdin=subprocess.DEVNULL)
    except OSError as error:
        click.echo(f"{command[0]}: {error.strerror}", err=True)
        return 127
    while True:
        try:
            status = child.wait()
            return status if status >= 0 else 128 - status
        except Stopped as stopped:
            os.killpg(child.pid, stopped.number)


if __name__ == "__main__":
    main()
