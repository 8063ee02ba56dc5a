"""Ray itself: start it on this machine or connect to a cluster, and end it without leftovers."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import AuthenticationError, RpcError

from raysim.common.errors import InputError, RayStartError
from raysim.common.log import LOG
from raysim.common.surface import assigned, given
from raysim.fleet import ray_cleanup
from raysim.fleet.address import check_address
from raysim.fleet.calls import START_SECONDS, ActorTimeouts, one_line
from raysim.fleet.prometheus import PUBLISH_SECONDS
from raysim.fleet.ray_private import CLUSTER_SWITCH, CONTROL_STORE, NODE, TOKEN_SETTINGS, TOKENS, draw_apart
from raysim.fleet.resources import living_nodes, this_node

ANSWER_SECONDS = 10
"""Time that the head of a cluster may take to answer."""

FRAME, SETTINGS = 9, 4
"""Bytes of the header of an HTTP/2 frame, and the type of the first frame."""

HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0])
"""Beginning of an HTTP/2 connection, with empty settings."""

LONGEST_FOLDER = 38
"""Longest path of a folder, in bytes, that leaves room for the names of Ray's sockets (107 bytes in all)."""

QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}

UNUSED = ("start_api_server", "start_monitor", "start_log_monitor")
"""Methods that start Ray's dashboard server, its autoscaler and the forwarding of logs. A run uses none of them."""

NICENESS = "RAY_worker_niceness"
"""Environment variable with the niceness that Ray adds to the driver's for its workers, 15 by default."""

NODE_SECONDS = "RAY_raylet_start_wait_time_s"
"""Environment variable with the seconds that Ray waits for a node to start, 30 by default."""

NODE_WAIT = 38
"""Seconds that our own Ray waits for a node: three starts and their pauses fit into `START_SECONDS`."""

DUE_SECONDS = 0.1
"""Seconds from one look to the next whether Ray is due."""

ENDING: list[threading.Thread] = []
"""Threads of abandoned Ray starts. They must end before another Ray starts."""


class RayThread:
    """Ray in a thread of its own, from start to end; a failed start is repeated.

    One thread does both, because the kernel ends Ray's processes with the thread that started them.

    Args:
        cpus: logical CPUs of a Ray of our own.
        address: address of a running cluster; None or "local" to start Ray on this machine.
        timeouts: number of starts, and the pause between them.
        serving: context that is entered on the running Ray, and left before Ray ends.
        stand_in: called with the reason of a failed start; returns whether the run goes on without Ray.
        publish: called every few seconds.
        is_due: called until it returns whether Ray shall start.
    """

    def __init__(
        self,
        cpus: int,
        address: str | None,
        timeouts: ActorTimeouts,
        serving: Callable[[], AbstractContextManager[None]],
        stand_in: Callable[[str], bool],
        publish: Callable[[], None],
        is_due: Callable[[], bool],
    ) -> None:
        self.home = ""
        """Id of the driver's node; "" before Ray runs."""
        self.is_released = False
        """Whether Ray no longer waits until it is due."""
        self.is_starting = False
        """Whether a start of Ray is under way."""
        self._cpus, self._address, self._timeouts = cpus, address, timeouts
        self._serving, self._stand_in, self._publish, self._asks = serving, stand_in, publish, is_due
        self._error: BaseException | None = None
        self._up, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._live, name="ray", daemon=True)

    def start(self) -> None:
        """Start Ray in the background as soon as it is due, unless it was started before."""
        if not self.is_begun:
            self._thread.start()

    @property
    def is_begun(self) -> bool:
        """Whether `start` was called."""
        return self._thread.ident is not None

    def end(self) -> None:
        """End Ray."""
        self._over.set()
        if not self.is_begun:
            return
        try:
            # If Ray still waits for an address, do not wait with it: the thread and Ray end with the process.
            self._thread.join(START_SECONDS if self.home else ANSWER_SECONDS)
        finally:  # also if a signal interrupts the wait
            ENDING[:] = [thread for thread in (*ENDING, self._thread) if thread.is_alive()]

    def wait(self, seconds: float = START_SECONDS) -> None:
        """Wait until Ray runs or the run goes on without it, and raise the error of Ray's start.

        Args:
            seconds: time to wait; 0 only looks.
        """
        late = f"Ray did not start within {seconds} s"
        if not self._up.wait(seconds) and seconds and not self._goes_on(late):
            raise RayStartError(f"{late}; see its log, or use {given('inline')}")
        if self._error is not None:
            raise self._error

    def _goes_on(self, failure: str) -> bool:
        stands_in = self._stand_in(failure)
        if stands_in:
            self._up.set()
        return stands_in

    def _live(self) -> None:
        try:
            if not self._asks():
                while not self._over.wait(DUE_SECONDS) and not self._asks():
                    pass
                if not self._over.is_set():
                    LOG.info("Ray starts, because the run proves long")
            self.is_released = not self._over.is_set()
            for thread in list(ENDING):  # a process has one Ray
                thread.join()
            is_here = self._address in (None, "local")
            for start in count(1):
                if self._over.is_set() or not (failure := self._serve()):
                    break
                if not self._goes_on(failure) and (start == self._timeouts.starts or not is_here):
                    remedy = f"repeat it when the machine is less busy, or use {given('inline')}"
                    raise RayStartError(f"{failure}; {remedy if is_here else 'check the cluster'}")
                self._over.wait(self._timeouts.pause)
        except BaseException as error:  # `wait` raises it in the main thread
            self._error = error
        self._up.set()

    def _serve(self) -> str:
        """Run Ray until `end`; return the reason if it does not start."""
        with ExitStack() as ray_context:
            self.is_starting = True
            try:
                ray_context.enter_context(running(self._cpus, self._address))
                self.home = this_node()
                ray_context.enter_context(self._serving())
            except InputError:
                raise
            except Exception as error:  # Ray has no class for a start that failed
                return f"Ray did not start ({one_line(str(error).partition('. ')[0]) or type(error).__name__})"
            finally:
                self.is_starting = False
            self._up.set()
            _log_endpoint()
            while not self._over.wait(PUBLISH_SECONDS):
                self._publish()
        return ""


def _log_endpoint() -> None:
    """Log the URL at which Prometheus finds this driver's numbers, if its node has one."""
    here = this_node()
    for node in living_nodes():
        if node["NodeID"] == here and node["MetricsExportPort"] > 0:
            LOG.info("for Prometheus: http://%s:%d/metrics", node["NodeManagerAddress"], node["MetricsExportPort"])


@contextmanager
def running(cpus: int, address: str | None) -> Iterator[None]:
    """Run Ray for the duration of the context; leave a Ray that this process had before alone.

    A Ray of our own, without an address or at "local", has `cpus` logical CPUs, however many this machine has.

    Raises:
        InputError: nothing answers at the address.
    """
    if ray.is_initialized():
        yield
    elif address and address != "local":
        check_answers(address)
        with _connected(address=address):
            yield
    else:
        with _cleared() as folder, _token(folder), _connected(folder, address="local", num_cpus=cpus):
            yield


@contextmanager
def _connected(folder: Path | None = None, **given: Any) -> Iterator[None]:
    """Make this process Ray's driver in the context; with a folder, of a new Ray there."""
    draw_apart()
    try:
        with _signals_kept():
            if folder is None:
                ray.init(**given, **QUIET)
            else:
                # Logical CPUs: more actors than cores share the cores, and give the same bytes.
                ours = {ray_cleanup.MARK: str(folder), NICENESS: os.environ.get(NICENESS, "0")}
                # Without support for clusters Ray listens on this machine only. `_node_ip_address="127.0.0.1"` does not
                # help: Ray takes it for the address that others see.
                local = _changed(CLUSTER_SWITCH.module(), {CLUSTER_SWITCH.name: False})
                with environment(ours), patient(), local, lean():
                    # A subfolder, because Ray makes its own folder readable for everybody.
                    ray.init(include_dashboard=False, _temp_dir=str(folder / "ray"), **given, **QUIET)
        yield
    finally:
        ray.shutdown()


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Restore the handler of SIGTERM after the context; Ray installs its own in a main thread."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _cleared() -> Iterator[Path]:
    """Make a folder for Ray; remove it and Ray's processes after the context, even if this process is killed."""
    folder = Path(tempfile.mkdtemp(prefix="raysim-", dir=_temporary()))
    # In a session of its own it gets no signals from the terminal, such as Ctrl-C.
    command = [sys.executable, "-I", "-S", str(Path(ray_cleanup.__file__)), str(folder)]
    silent = subprocess.DEVNULL
    watcher = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=silent, stderr=silent, cwd="/", start_new_session=True
    )
    try:
        yield folder
    finally:
        watcher.communicate()
        if watcher.returncode:  # it was killed
            ray_cleanup.clear(str(folder))


def _temporary() -> str:
    """Return the folder for temporary folders, with a path short enough for the names of sockets."""
    for place in filter(None, (os.environ.get("RAY_TMPDIR"), tempfile.gettempdir())):
        folder = Path(place).resolve()
        if folder.is_dir() and len(os.fsencode(folder)) + len("/raysim-xxxxxxxx") <= LONGEST_FOLDER:
            return str(folder)
    return "/tmp"


@contextmanager
def _token(folder: Path) -> Iterator[None]:
    """Make Ray ask for a token that only this run has; restore the user's token after the context."""
    path = folder / "token"
    path.write_text(secrets.token_hex(32), encoding="ascii")
    path.chmod(0o600)
    # Without a mode Ray turns tokens on, in this process and in those that it starts.
    try:
        with environment({"RAY_AUTH_TOKEN_PATH": str(path), "RAY_AUTH_TOKEN": None, "RAY_AUTH_MODE": None}):
            _forget_token()
            yield
    finally:
        _forget_token()
        # Ray reads the restored environment only once.
        if settings := TOKEN_SETTINGS.find():
            settings.initialize("")


def _forget_token() -> None:
    """Make Ray read its token anew."""
    if tokens := TOKENS.find():
        tokens.instance().reset_cache()


@contextmanager
def patient(seconds: int = NODE_WAIT) -> Iterator[None]:
    """Make Ray wait longer for nodes that start in the context, because a start that is given up starts from zero."""
    with environment({NODE_SECONDS: os.environ.get(NODE_SECONDS, str(seconds))}):
        yield


@contextmanager
def lean() -> Iterator[None]:
    """Make a Ray that starts in the context leave out the `UNUSED` processes.

    Each of them imports Ray, for a second or more of a core. `ray.init` even waits for the first one, and again for its
    end; `include_dashboard=False` removes its pages only.
    """
    with _changed(NODE.find(), dict.fromkeys(UNUSED, lambda self, **given: None)):
        yield


@contextmanager
def _changed(owner: Any, attributes: Mapping[str, Any]) -> Iterator[None]:
    """Set these attributes of an object in the context, apart from those that it lacks."""
    before = {name: getattr(owner, name) for name in attributes if hasattr(owner, name)}
    try:
        for name in before:
            setattr(owner, name, attributes[name])
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


@contextmanager
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set these environment variables in the context; None removes one."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def check_answers(address: str) -> None:
    """Refuse an address without Ray. Ray itself would try for minutes."""
    if address == "auto":
        return
    check_address(address)
    wrong = f"{assigned('address', address)}: must be HOST:PORT of a running Ray cluster"
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS) as server:
            known = os.environ.get("RAY_USE_TLS", "0") != "0" or _speaks_grpc(server)
    except (OSError, OverflowError) as error:
        raise InputError(f"{wrong}, and nothing answers there ({error}); leave it out to start Ray here") from None
    try:
        # Ray's own check of a server that does not speak gRPC takes a minute.
        if known and (store := CONTROL_STORE.find()):
            store(address=address)
    except AuthenticationError:
        raise InputError(
            f"{assigned('address', address)}: the cluster wants its token, and this machine sends another one or none; "
            "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to a file with the token"
        ) from None
    except RpcError:
        known = False
    if not known:
        raise InputError(f"{wrong}, and something else answers there; check the port, which is 6379 in most clusters")


def _speaks_grpc(server: socket.socket) -> bool:
    """Return whether the server answers with HTTP/2 settings, like Ray's control store; OSError if it is silent."""
    server.sendall(HTTP2)
    answer = server.recv(FRAME)
    return len(answer) == FRAME and answer[3] == SETTINGS
