"""Commands that write tables of devices: `raysim devices make | read`."""

from pathlib import Path

import click

from partitioning.cli.paths import PATH
from partitioning.cli.terminal import echo
from partitioning.common.text import word

OUT = click.option("--out", type=PATH, required=True, metavar="FILE.parquet", help="Table to write.")


@click.group()
def devices() -> None:
    """Write a table of devices for `devices.table`."""


@devices.command()
@click.option("--clients", type=click.IntRange(min=1), required=True, help="Number of clients, one row each.")
@OUT
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all draws.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="NAME=SHARE,COMPUTE,DOWN,UP",
    help="Kind of devices: weight, and medians of samples and bytes a second. Repeatable.  [default: three of phones]",
)
@click.option(
    "--availability",
    type=click.Choice(["day-night", "always"]),
    default="day-night",
    show_default=True,
    help="Times at which clients are available.",
)
def make(clients: int, out: Path, seed: int, kinds: tuple[str, ...], availability: str) -> None:
    """Draw devices: kinds with log-normal speeds and networks, and nights."""
    from raysim.devices.make import KINDS, DeviceKind
    from raysim.devices.make import make as write

    write(out, clients, seed, tuple(map(DeviceKind.of, kinds)) or KINDS, availability == "day-night")
    _written(out)


@devices.command()
@click.option("--capacity", type=PATH, required=True, metavar="FILE", help="FedScale's client_device_capacity.")
@click.option(
    "--behaviour", type=PATH, metavar="FILE", help="FedScale's client_behave_trace.  [default: always available]"
)
@OUT
def read(capacity: Path, behaviour: Path | None, out: Path) -> None:
    """Convert FedScale's traces of phones.

    raysim runs no code of these pickles: it refuses a file with more than numbers, texts, lists and dictionaries.
    """
    from raysim.devices.fedscale import read_fedscale

    read_fedscale(capacity, behaviour, out)
    _written(out)


def _written(out: Path) -> None:
    echo(f"written {out}")
    echo(f"next    raysim run FILE --set devices.table={word(out)}")
