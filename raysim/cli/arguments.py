"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import TypeVar

import click

from partitioning.cli.paths import PATH
from partitioning.common.paths import check_path


def folder_or_uri(value: str) -> Path | str:
    """Return a local folder as a path, and a URI as text."""
    if "://" not in value:  # the exact check imports pyarrow
        return check_path("the folder", value)
    from partitioning.store.remote import is_uri

    return str(value) if is_uri(value) else check_path("the folder", value)


CHANGES = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY.PATH=VALUE",
    help="Change a key of the file; algorithm.KEY changes all algorithms, algorithm.NAME.KEY one. Repeatable.",
)
STUDY_OUT = click.option(
    "--out", type=PATH, help="Folder of the study; an existing study continues.  [default: runs/NAME-TIME]"
)
Command = TypeVar("Command", bound=Callable[..., None])


def fleet_options(actors: str, inline: str) -> Callable[[Command], Command]:
    """Return a decorator that adds `--actors`, `--inline` and `--address` with these help texts."""
    options = (
        click.option("--actors", type=int, help=actors),
        click.option("--inline", is_flag=True, help=inline),
        click.option("--address", help="Address of a running Ray cluster, HOST:PORT.  [default: start Ray here]"),
    )
    return lambda command: reduce(lambda inner, option: option(inner), reversed(options), command)


RUN_FLEET = fleet_options(
    "Number of client actors.  [default: the file's, else one per core, once the run proves long]",
    "Run in this process, without Ray.",
)
STUDY_FLEET = fleet_options(
    "Number of parallel trials, or of client actors per trial.  [default: one per core]",
    "Run one trial after the other in this process, without Ray.",
)
