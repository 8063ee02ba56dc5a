"""A Ray cluster of several nodes on this machine, for as long as a command runs: for trying placement, and for tests.

    python clusters/local/cluster.py --nodes 2 -- raysim run quickstart --set rounds=3 --actors 2

The head has no CPUs, so that actors are on the nodes only. Everything listens on 127.0.0.1 alone and asks for a token
that is drawn for this cluster. In the command `{address}` and `{jobs}` become the cluster's address and its job
server's; it finds the cluster without them, too, by its environment. Without a command the cluster stays until Ctrl-C.
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
    sys.exit("raysim cannot be imported: must be installed; activate its environment: . .venv/bin/activate")

if TYPE_CHECKING:  # Ray reads its settings from the environment when it is imported
    from ray.cluster_utils import Cluster

LEFTOVERS = Path(raysim.__file__).parent / "fleet" / "ray_cleanup.py"
"""The program that clears up; by its path, for its package imports Ray."""

_LEFTOVERS = runpy.run_path(str(LEFTOVERS))
MARK: str = _LEFTOVERS["MARK"]
"""The variable by which it knows the processes of a Ray; its value is the Ray's folder."""

processes: Callable[[str], list[int]] = _LEFTOVERS["processes"]
"""The processes of the Ray of a folder."""

LATE = "timed out during startup"
"""What Ray says when a node did not come in 30 seconds, which a busy machine may exceed."""

TRIES = 3
"""How often a node that is late is started at most."""

MIB = 2**20
LEAST_MEMORY = 80
"""MiB: Ray starts no smaller object store."""


class Stopped(BaseException):
    """A signal asked for the end; as KeyboardInterrupt, it is no error."""

    def __init__(self, number: int) -> None:
        self.number = number


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog="Ends with the command's exit status.")
@click.option("--nodes", type=click.IntRange(1), default=2, show_default=True, help="Nodes beside the head.")
@click.option("--cpus", type=click.IntRange(1), default=1, show_default=True, help="CPUs that Ray counts on each node.")
@click.option(
    "--gpus", type=click.IntRange(0), default=0, show_default=True, help="GPUs that Ray counts on each; may be more."
)
@click.option(
    "--labels",
    "labels",
    multiple=True,
    metavar="KEY=VALUE[,...]",
    help="Labels of the nodes: given once, all have them; given once a node, each has its own.",
)
@click.option(
    "--memory",
    type=click.IntRange(LEAST_MEMORY),
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
        status = 128 + stopped.number  # as a shell has it
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
    """Within, what Ray is started with: a folder and a token of its own, on loopback; all that knows them then ends.

    A small process beside this one ends what is left, by its ids, and removes the folder: also after `kill -9`.
    """
    folder = Path(tempfile.mkdtemp(prefix="raysim-", dir="/tmp"))  # short: sockets in it have names that must fit
    command = [sys.executable, "-I", "-S", str(LEFTOVERS), str(folder)]
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
            # Ray listens on loopback where it knows no clusters of machines; it also finds its nodes there.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        os.environ.pop("RAY_AUTH_TOKEN", None)  # it would be taken instead of ours
        os.environ.update(environment)
        yield environment
    finally:
        _on_signals(signal.SIG_IGN)
        watcher.communicate()


@contextmanager
def _cluster(jobs: bool, memory: int) -> Iterator[Cluster]:
    """Within, a head without CPUs; at the end its nodes are shut down, those first that were added last."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(shutdown_at_exit=False)
    try:
        # The usual ports, of the dashboard and of the agent that takes jobs, may be another Ray's.
        free = {"dashboard_port": None, "dashboard_agent_listen_port": None}
        _add(cluster, num_cpus=0, include_dashboard=jobs, object_store_memory=memory, **free)
        yield cluster
    finally:
        _on_signals(signal.SIG_IGN)  # it is the end already
        cluster.shutdown()  # type: ignore[no-untyped-call]


def _add(cluster: Cluster, **node: Any) -> None:
    """Start a node, and again where it was late, after what came of it has ended: else it might come still."""
    there = set(processes(os.environ[MARK]))
    for left in reversed(range(TRIES)):
        try:
            cluster.add_node(**node)
            return
        except Exception as error:  # Ray has no class for it
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
    """Run the command to its end; its exit status. Signals are passed on, each once, and then it is waited for."""
    if not command:
        signal.pause()
    try:
        # A process group of its own, or a terminal's Ctrl-C would reach it twice; such a group may not read from there.
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
