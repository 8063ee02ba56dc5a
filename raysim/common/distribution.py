"""The distribution of raysim: its version, which the build reads too, and its extras."""

VERSION = "0.1.0"


def install(extra: str) -> str:
    """Return the remedy for a missing extra. The index has another project under raysim's name."""
    return f'run `uv sync --extra {extra}`, or `pip install ".[{extra}]"`, in the folder of raysim'
