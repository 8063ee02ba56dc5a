"""Address of a running Ray cluster."""

from raysim.common.errors import InputError
from raysim.common.surface import assigned

LARGEST_PORT = 65535


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
