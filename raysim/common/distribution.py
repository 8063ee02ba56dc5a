"""The distribution of raysim: its version, which the build reads too, and its extras."""

from importlib.util import find_spec

from raysim.common.errors import InputError

VERSION = "0.1.0"


def install(extra: str) -> str:
    """Return the remedy for a missing extra. The index has another project under raysim's name."""
    return f'run `uv sync --extra {extra}`, or `pip install ".[{extra}]"`, in the folder of raysim'


def require(package: str, key: str, otherwise: str = "") -> None:
    """Raise InputError if the package of an extra of its name is missing.

    Args:
        package: name of the package, and of the extra.
        key: key that needs it, and its value.
        otherwise: remedy beside the installation.
    """
    if find_spec(package) is None:
        raise InputError(f"{key}: must have the package {package}, which is missing; {install(package)}{otherwise}")
