"""Ray itself: started on this machine or connected to, and ended again with all that it left."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray._private import ray_constants
from ray._raylet import AuthenticationTokenLoader, Config, GcsClient  # type: ignore[attr-defined]
from ray.exceptions import AuthenticationError, RpcError

from partitioning import InputError
from raysim.fleet import leftovers

ANSWER_SECONDS = 10
"""How long the head of a cluster may take to answer."""

FRAME, SETTINGS = 9, 4
"""Bytes of the head of a frame of HTTP/2, and the type of the one that comes first."""

HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0])
"""What begins a connection: no settings of ours."""

LONGEST_FOLDER = 38
"""Bytes of a folder's path in which Ray's sockets still have names that the kernel takes (107 bytes)."""

LATE = "timed out during startup"
"""What Ray says when its node did not come in time."""

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
    elif address and address != "local":
        check_answers(address)
        with _connected(address=address):
            yield
    else:
        with _cleared() as folder, _token(folder), _connected(folder, address="local", num_cpus=cpus):
            yield


@contextmanager
def _connected(folder: Path | None = None, **given: Any) -> Iterator[None]:
    """Within, this process is Ray's driver; with a folder, of a Ray that is started there."""
    try:
        with _signals_kept():
            if folder is None:
                ray.init(**given, **QUIET)
            else:
                # As many logical CPUs as the actors take: more actors than cores share them, and give the same bytes.
                with _environment({leftovers.MARK: str(folder)}), _loopback():
                    # A folder in it, for Ray opens its own to everybody.
                    _patiently(include_dashboard=False, _temp_dir=str(folder / "ray"), **given, **QUIET)
        yield
    finally:
        ray.shutdown()


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Within, Ray may take SIGTERM for itself, as it does in a main thread; after it the handler is the one before."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _patiently(**given: Any) -> None:
    """Start Ray, and once more where it was late: it gives itself 30 seconds, which a busy machine may exceed."""
    try:
        ray.init(**given)
    except Exception as error:  # Ray has no class for it
        if LATE not in str(error):
            raise
        ray.shutdown()
        ray.init(**given)


@contextmanager
def _cleared() -> Iterator[Path]:
    """A folder for Ray; it goes at the end, and what still runs with it, even where this process is killed."""
    folder = Path(tempfile.mkdtemp(prefix="raysim-", dir=_temporary()))
    # A session of its own: what a terminal sends to the driver's, Ctrl-C or the end of the line, does not reach it.
    command = [sys.executable, "-I", "-S", str(Path(leftovers.__file__)), str(folder)]
    silent = subprocess.DEVNULL
    watcher = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=silent, stderr=silent, cwd="/", start_new_session=True
    )
    try:
        yield folder
    finally:
        watcher.communicate()
        if watcher.returncode:  # someone has ended it
            leftovers.clear(str(folder))


def _temporary() -> str:
    """Where temporary folders are made, short enough for the names of sockets."""
    for place in (os.environ.get("RAY_TMPDIR"), tempfile.gettempdir()):
        if place and Path(place).is_dir() and len(os.fsencode(place)) + len("/raysim-xxxxxxxx") <= LONGEST_FOLDER:
            return str(Path(place).resolve())
    return "/tmp"


@contextmanager
def _token(folder: Path) -> Iterator[None]:
    """Within, Ray asks for a token that only this run has; a Ray of the user's has its own again afterwards."""
    path = folder / "token"
    path.write_text(secrets.token_hex(32), encoding="ascii")
    path.chmod(0o600)
    # No mode of ours: where none is set, Ray turns tokens on, in this process as well as in those that it starts.
    try:
        with _environment({"RAY_AUTH_TOKEN_PATH": str(path), "RAY_AUTH_TOKEN": None, "RAY_AUTH_MODE": None}):
            AuthenticationTokenLoader.instance().reset_cache()
            yield
    finally:
        # As the environment has it again, which Ray reads once.
        AuthenticationTokenLoader.instance().reset_cache()
        Config.initialize("")


@contextmanager
def _loopback() -> Iterator[None]:
    """Within, a Ray is started that listens on this machine alone, as it does where it knows no clusters.

    `_node_ip_address="127.0.0.1"` would say it, but Ray takes it for the address that others see.
    """
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Within, these variables of the environment are set, or not set where they are None."""
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
    """Refuse an address at which no Ray listens: Ray itself would try for minutes."""
    if address == "auto":
        return
    wrong = f"--address = {address!r}: must be HOST:PORT of a running Ray cluster"
    if address.startswith(("http://", "https://")):
        raise InputError(f"{wrong}, and is a URL; `raysim submit FILE --address {address}` sends a run there as a job")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise InputError(f"{wrong}; leave it out to start Ray here")
    try:
        with socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS) as there:
            known = os.environ.get("RAY_USE_TLS", "0") != "0" or _speaks_grpc(there)
    except (OSError, OverflowError) as error:
        raise InputError(f"{wrong}, and nothing answers there ({error}); leave it out to start Ray here") from None
    try:
        # Where something else answers, Ray's own check goes on for a minute, unless that speaks gRPC, too.
        if known:
            GcsClient(address=address)
    except AuthenticationError:
        raise InputError(
            f"--address = {address!r}: the cluster wants its token, and has another one or none from here; set "
            "RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to a file that has it"
        ) from None
    except RpcError:
        known = False
    if not known:
        raise InputError(f"{wrong}, and what answers there is none; check the port, which is 6379 in most clusters")


def _speaks_grpc(there: socket.socket) -> bool:
    """Whether the other end answers as Ray's control store does: with the settings of HTTP/2; OSError if not at all."""
    there.sendall(HTTP2)
    answer = there.recv(FRAME)
    return len(answer) == FRAME and answer[3] == SETTINGS
