"""Addresses of a running Ray cluster: HOST:PORT of its control store, and the URL of its dashboard."""

from contextlib import suppress
from urllib.parse import urlsplit

from raysim.common.errors import InputError
from raysim.common.surface import assigned

LARGEST_PORT = 65535

DASHBOARD_PORT = 8265
"""Default port of a cluster's dashboard."""


def check_address(address: str) -> None:
    """Check the form of an address: HOST:PORT, "auto" or "local".

    Raises:
        InputError: the address has another form.
    """
    if address in ("auto", "local", ""):
        return
    wrong = f"{assigned('address', address)}: must be HOST:PORT of a running Ray cluster"
    if address.startswith(("http://", "https://")):
        raise InputError(f"{wrong}, not a URL; `raysim submit FILE --address {address}` sends a run there as a job")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or len(port) > len(str(LARGEST_PORT)) or int(port) > LARGEST_PORT:
        raise InputError(f"{wrong}; leave it out to start Ray here")


def checked_url(address: str) -> str:
    """Return the URL of a dashboard without slashes at its end.

    Raises:
        InputError: it is not a URL.
    """
    with suppress(ValueError):
        parts = urlsplit(address)
        if parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0):
            return address.rstrip("/")
    remedy = "for HOST:PORT, use `raysim run --address HOST:PORT` on a machine of the cluster"
    raise InputError(
        f"--address = {address!r}: must be the URL of the dashboard of a Ray cluster, such as "
        f"http://HOST:{DASHBOARD_PORT}; {'correct it' if '://' in address else remedy}"
    )
