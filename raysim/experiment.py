"""Running an experiment: its population, its fleet, and each of its algorithms in turn."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from raysim import report
from raysim.config import Experiment, changed, read
from raysim.config.experiment import FleetTable
from raysim.ending import continuable, own_errors
from raysim.errors import InputError, one_input_error
from raysim.fleet import ClientActors, FittedActors, Inline, sent_whole, settled
from raysim.folder import old_folder, run_folder, run_log, write_config
from raysim.job import Job
from raysim.measures import Targets
from raysim.planning import planned
from raysim.population import population_of
from raysim.preparing import prepared
from raysim.progress import Watcher
from raysim.result import Result
from raysim.resuming import check_place, read_result, run_of, stored
from raysim.stopping import Stop

LOG = logging.getLogger("raysim")

Workplace = Callable[[], ClientActors | Inline]


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, its report, and a result for each algorithm."""

    folder: Path
    report: Path
    results: tuple[Result, ...]


def run(
    config: str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    changes: Iterable[str] = (),
    actors: int | None = None,
    inline: bool = False,
    address: str | None = None,
    watcher: Watcher | None = None,
    stop: Stop | None = None,
) -> Run:
    """Run an experiment.

    Args:
        config: an experiment file, a recipe's name, or the same as a mapping, where `algorithm.name` may also be
            a function of one's own, and `model.name` a class.
        out: the run's folder, which must be new; default `runs/NAME-TIME`.
        changes: `key.path=value` each, applied to the file.
        actors: client actors, instead of the file's; never changes the result.
        inline: run in this process, without Ray; never changes the result.
        address: of a running Ray cluster; None starts Ray here.
        watcher: is told what happens.
        stop: asks the run to stop between two rounds.

    Raises:
        InputError: something of the input is wrong; nothing was left behind, unless rounds were written before.
        StoppedError: it was asked to stop, or interrupted; `resume` goes on.
        OutOfMemoryError: a block does not fit the memory; what was written so far stays.
        DivergedError: a visit or a merge gave NaN or infinity, and `local.nonfinite` is "stop"; what was written so
            far stays, and the report is of it. Algorithms that come after it are not run.
        OwnCodeError: a user's own part raised something on the way; what was written so far stays.
    """
    experiment, workplace = _placed(resolved(config, changes), actors, inline, address)
    folder = place_of(config, out)
    watcher = watcher or Watcher()
    with continuable(folder, watcher), run_folder(folder), _working(folder, experiment):
        # From here on whatever stops the run leaves what `resume` needs.
        write_config(folder / "config.toml", experiment.to_toml())
        results = _run(experiment, folder, workplace(), watcher, stop or Stop(), experiment.names)
    # Outside, where nothing that goes wrong removes what was trained.
    return Run(folder, report.write([folder], folder / "report.html"), tuple(results.values()))


def resolved(config: str | Path | Mapping[str, Any], changes: Iterable[str] = ()) -> Experiment:
    """The experiment that `run` is given, checked."""
    raw = changed(config, changes) if isinstance(config, Mapping) else read(config, changes)
    return Experiment.of(raw, _folders(config))


def place_of(config: str | Path | Mapping[str, Any], out: str | Path | None) -> Path:
    """The folder of a run that is about to begin."""
    name = "run" if isinstance(config, Mapping) else Path(config).stem
    return Path(out) if out is not None else Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


def resume(
    folder: str | Path,
    *,
    actors: int | None = None,
    inline: bool = False,
    address: str | None = None,
    watcher: Watcher | None = None,
    stop: Stop | None = None,
) -> Run:
    """Go on with a run that was stopped, at whatever instant; its files are those of a run that was not.

    Args:
        folder: the run's, or that of one of its algorithms: then only that one goes on.
        actors: client actors, instead of the run's; never changes the result.
        inline: go on in this process, without Ray; never changes the result.
        address: of a running Ray cluster; None starts Ray here.
        watcher: is told what happens.
        stop: asks the run to stop between two rounds.

    Raises:
        InputError: this is no run's folder, a process is running it, or it was begun where bytes come out differently.
        Others: as `run`.
    """
    folder, only = run_of(Path(folder))
    experiment, workplace = _placed(stored(folder), actors, inline, address)
    watcher = watcher or Watcher()
    page = folder / "report.html"
    with old_folder(folder):
        names = experiment.names if only is None else (only,)
        there = {name: result for name in names if (result := read_result(folder / name, experiment)) is not None}
        left = [name for name in names if name not in there]
        if left:
            with continuable(folder, watcher), _working(folder, experiment):
                there |= _run(experiment, folder, workplace(), watcher, stop or Stop(), left)
        else:
            watcher.notice(f"{folder / (only or '')} has ended: nothing is left to do")
    # Also where nothing was left: the page may be of before, when the run stopped for numbers that are none.
    return Run(folder, report.write([folder], page), tuple(there[name] for name in names))


def ended(folder: Path) -> Run:
    """A run that has ended, as its folder has it."""
    experiment = stored(folder)
    results = [read_result(folder / name, experiment) for name in experiment.names]
    return Run(folder, folder / "report.html", tuple(result for result in results if result is not None))


def _placed(
    experiment: Experiment, actors: int | None, inline: bool, address: str | None
) -> tuple[Experiment, Workplace]:
    """The experiment with as many actors as are asked for, and what starts the place to work."""
    if inline and (actors is not None or address is not None):
        raise InputError(
            "--inline with --actors or --address: must stand alone, for it starts no actors; leave one out"
        )
    experiment = with_actors(experiment, actors)
    return experiment, _workplace(experiment.fleet, inline, address)


def with_actors(experiment: Experiment, actors: int | None) -> Experiment:
    """The experiment with as many actors as are asked for; None leaves it."""
    if actors is None:
        return experiment
    if actors < 1:
        raise InputError(f"--actors = {actors}: must be a whole number >= 1; use --actors 1")
    return experiment.model_copy(update={"fleet": experiment.fleet.model_copy(update={"actors": actors})})


@contextmanager
def _working(folder: Path, experiment: Experiment) -> Iterator[None]:
    """Within, the run's log is written, and this process computes as the experiment says."""
    threads, log = settled(experiment.fleet.cpus_per_actor), folder / "run.log"
    with run_log(log), one_input_error(), threads, own_errors(experiment, log):
        yield


def _folders(config: str | Path | Mapping[str, Any]) -> tuple[Path, ...]:
    """Where a user's own modules may be: beside the experiment's file, and in the current folder."""
    here = Path.cwd()
    if isinstance(config, Mapping) or not Path(config).is_file():
        return (here,)
    return (Path(config).resolve().parent, here)


def _run(
    experiment: Experiment,
    folder: Path,
    place: ClientActors | Inline,
    watcher: Watcher,
    stop: Stop,
    names: Sequence[str],
) -> dict[str, Result]:
    """Run these algorithms one after the other; client actors start, in the background, once all input is checked.

    What is there already of a run that goes on is taken as it is.
    """
    for text in experiment.own_code_told:
        LOG.info(text)
        watcher.notice(text)
    watcher.stage("reading the data and partitioning it into clients")
    population = population_of(experiment, folder / "population")
    targets = Targets.of(population, experiment.evaluate.on, experiment.evaluate.metrics)
    experiment.evaluate.selection.check(targets.columns)
    samples = prepared(population, experiment.data)
    experiment, plans = planned(experiment, folder, samples, targets, place.device, names)
    if not targets.targets:
        watcher.notice("there is nothing to evaluate on; set data.test, partition.test_clients or partition.local_test")
    write_config(folder / "config.toml", experiment.to_toml())
    LOG.info("%d clients, %d samples", len(population), population.sizes.sum())

    watcher.stage("starting the fleet")
    with sent_whole(experiment.own_code), place:
        place.fit(plans)
        LOG.info("fingerprint %s", place.fingerprint)
        here = {**place.fingerprint, "population": population.fingerprint}
        check_place([folder / name for name in experiment.names if name not in names], here)
        job = Job(experiment, folder, place, targets, here, watcher, stop)
        results = {name: job.run(name, plan) for name, plan in plans.items()}
    watcher.stage("writing the report")
    return results


def _workplace(table: FleetTable, inline: bool, address: str | None) -> Workplace:
    """What starts the place to work: this process, or client actors on Ray."""
    gpus = table.gpus_per_actor
    if inline and gpus:
        raise InputError(
            f"fleet.gpus_per_actor = {json.dumps(gpus)} with --inline: must be 0, for this process computes on the "
            "CPU; set fleet.gpus_per_actor = 0, or leave --inline out"
        )
    if inline:
        return Inline
    if gpus == "auto":
        return partial(FittedActors, table.actors, table.cpus_per_actor, address)
    actors = table.actors or max(1, (os.cpu_count() or 1) // table.cpus_per_actor)
    return partial(ClientActors, actors, table.cpus_per_actor, gpus, address)
