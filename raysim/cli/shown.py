"""Contexts and output of the commands."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

import click

from partitioning.cli.terminal import echo
from raysim.common.names import CONFIG, REPORT

if TYPE_CHECKING:  # These imports take seconds.
    from raysim.cluster.following import FetchedRun
    from raysim.simulation.finished import Run
    from raysim.simulation.stop import Stop


@contextmanager
def watched() -> Iterator[tuple[ModuleType, dict[str, Any]]]:
    """Show a run and let the user stop it; yield the module that runs it and its arguments for that."""
    from partitioning.cli.console import Console

    with stoppable() as stop:
        with Console(stderr=True).status("loading"), uncollected():
            from raysim.simulation import api
            from raysim.watching.progress import display
            from raysim.watching.remote import RemoteWatcher, is_followed
            from raysim.watching.stopwatch import process_started
        with nullcontext(RemoteWatcher(sys.stdout)) if is_followed() else display() as watcher:
            yield api, {"watcher": watcher, "stop": stop, "started": process_started()}


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Turn Ctrl-C and SIGTERM into a request to stop, and end the command with one line."""
    from raysim.simulation.stop import stopped_by_signals

    with stopped_by_signals() as stop:
        try:
            yield stop
        except KeyboardInterrupt as stopped:
            echo(str(stopped) or "interrupted", err=True)
            # A shell reports the same status for a program that a signal ended.
            raise click.exceptions.Exit(128 + stop.signal) from None


def show_run(done: Run | FetchedRun, *more: str, walls: Mapping[str, float] = MappingProxyType({})) -> None:
    """Print the results of a run and where its report is."""
    from partitioning.cli.console import Console
    from raysim.watching.remote import is_followed

    if is_followed():  # The follower shows the results when it has the folder.
        return
    from raysim.cli.tables import results_table
    from raysim.config.read import read
    from raysim.measures.epsilon.outside_epsilon import SENTENCE

    screen = Console()
    evaluate = read(done.folder / CONFIG).get("evaluate", {})
    screen.print(results_table(done.results, walls, evaluate.get("metrics", ()), screen.width))
    if any(result.epsilon is not None for result in done.results):
        screen.print(SENTENCE, highlight=False)
    stored = [] if done.uri is None else [f"stored  {done.uri}"]
    for line in (f"report  {done.folder / REPORT}", *stored, *more):
        screen.print(line, soft_wrap=True, highlight=False)


def walls_of(done: Run) -> dict[str, float]:
    """Return the wall-clock seconds of each algorithm, over all commands of the run."""
    from raysim.store.wall_clock import read_commands

    walls: dict[str, float] = {}
    for each in (each for command in read_commands(done.folder) for each in command.stages if each.algorithm):
        walls[each.algorithm] = walls.get(each.algorithm, 0.0) + each.seconds
    return walls


@contextmanager
def uncollected() -> Iterator[None]:
    """Search for no garbage in the context, and never among its objects: imports leave a million that stay."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
