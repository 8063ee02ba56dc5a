"""Running an experiment: its population, its fleet, and each of its algorithms in turn."""

from __future__ import annotations

import json
import logging
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
from raysim.fleet import ClientActors, FittedActors, Inline, PinnedActors, sent_whole, settled
from raysim.folder import old_folder, run_folder, run_log, write_config
from raysim.home import Home, new_home, old_home
from raysim.job import Job
from raysim.measures import Targets
from raysim.planning import planned
from raysim.population import population_of
from raysim.preparing import prepared
from raysim.progress import Watcher
from raysim.result import Result
from raysim.resuming import check_place, read_result, stored
from raysim.stopping import Stop

LOG = logging.getLogger("raysim")

Workplace = Callable[[], ClientActors | Inline]
Placed = tuple[Experiment, Workplace]


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, its report, and a result for each algorithm.

    Where it is kept at a URI, the folder is a copy in the cache.
    """

    folder: Path
    report: Path
    results: tuple[Result, ...]
    uri: str | None = None


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
        out: the run's folder, which must be new, or its URI; default `runs/NAME-TIME`.
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
    raw = changed(config, changes) if isinstance(config, Mapping) else read(config, changes)
    name = "run" if isinstance(config, Mapping) else Path(config).stem
    experiment, workplace = _placed(Experiment.of(raw, _folders(config)), actors, inline, address)
    out = Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}" if out is None else out
    watcher = watcher or Watcher()
    with new_home(out, watcher) as home:
        folder = home.folder
        with continuable(folder, watcher, home.name), run_folder(folder), _working(folder, experiment):
            # From here on whatever stops the run leaves what `resume` needs.
            write_config(folder / "config.toml", experiment.to_toml())
            results = _run(experiment, home, workplace(), watcher, stop or Stop(), experiment.names)
        # Outside, where nothing that goes wrong removes what was trained.
        return Run(folder, report.write([folder], folder / "report.html"), tuple(results.values()), home.uri)


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
        folder: the run's, or that of one of its algorithms: then only that one goes on; or its URI.
        actors: client actors, instead of the run's; never changes the result.
        inline: go on in this process, without Ray; never changes the result.
        address: of a running Ray cluster; None starts Ray here.
        watcher: is told what happens.
        stop: asks the run to stop between two rounds.

    Raises:
        InputError: this is no run's folder, a process is running it, or it was begun where bytes come out differently.
        Others: as `run`.
    """
    watcher = watcher or Watcher()
    with old_home(folder, watcher) as (home, only):
        return _resume(
            home, only, watcher, stop or Stop(), partial(_placed, actors=actors, inline=inline, address=address)
        )


def _resume(home: Home, only: str | None, watcher: Watcher, stop: Stop, placed: Callable[[Experiment], Placed]) -> Run:
    """Go on with a run, or with only one of its algorithms."""
    folder, page = home.folder, home.folder / "report.html"
    experiment, workplace = placed(stored(folder))
    with old_folder(folder):
        names = experiment.names if only is None else (only,)
        there = {name: result for name in names if (result := read_result(folder / name, experiment)) is not None}
        left = [name for name in names if name not in there]
        if left:
            with continuable(folder, watcher, home.name), _working(folder, experiment):
                there |= _run(experiment, home, workplace(), watcher, stop, left)
        else:
            watcher.notice(
                f"{Path(home.name, only or '') if home.uri is None else home.uri} has ended: nothing is left to do"
            )
    # Also where nothing was left: the page may be of before, when the run stopped for numbers that are none.
    return Run(folder, report.write([folder], page), tuple(there[name] for name in names), home.uri)


def _placed(experiment: Experiment, actors: int | None, inline: bool, address: str | None) -> Placed:
    """The experiment with as many actors as are asked for, and what starts the place to work."""
    if inline and (actors is not None or address is not None):
        raise InputError(
            "--inline with --actors or --address: must stand alone, for it starts no actors; leave one out"
        )
    if actors is not None:
        if actors < 1:
            raise InputError(f"--actors = {actors}: must be a whole number >= 1; use --actors 1")
        fleet = experiment.fleet.model_copy(update={"actors": actors})
        experiment = experiment.model_copy(update={"fleet": fleet})
    return experiment, _workplace(experiment.fleet, inline, address)


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
    home: Home,
    place: ClientActors | Inline,
    watcher: Watcher,
    stop: Stop,
    names: Sequence[str],
) -> dict[str, Result]:
    """Run these algorithms one after the other; client actors start, in the background, once all input is checked.

    What is there already of a run that goes on is taken as it is.
    """
    folder = home.folder
    for text in experiment.own_code_told:
        LOG.info(text)
        watcher.notice(text)
    watcher.stage("reading the data and partitioning it into clients")
    population = population_of(experiment, folder / "population", watcher.stage)
    targets = Targets.of(population, experiment.evaluate.on, experiment.evaluate.metrics)
    experiment.evaluate.selection.check(targets.columns)
    samples = prepared(population, experiment.data)
    experiment, plans = planned(experiment, folder, samples, targets, place.device, names)
    if not targets.targets:
        watcher.notice("there is nothing to evaluate on; set data.test, partition.test_clients or partition.local_test")
    write_config(folder / "config.toml", experiment.to_toml())
    if home.uri is not None:
        watcher.stage(f"storing what is there so far at {home.uri}")
        home.keep()
    LOG.info("%d clients, %d samples", len(population), population.sizes.sum())

    watcher.stage("starting the fleet")
    with sent_whole(experiment.own_code), place:
        place.fit(plans)
        LOG.info("fingerprint %s", place.fingerprint)
        here = {**place.fingerprint, "population": population.fingerprint}
        check_place([folder / name for name in experiment.names if name not in names], here)
        job = Job(experiment, folder, place, targets, here, watcher, stop, home.saving(watcher))
        results = {name: job.run(name, plan) for name, plan in plans.items()}
    watcher.stage("writing the report")
    return results


def _workplace(table: FleetTable, inline: bool, address: str | None) -> Workplace:
    """What starts the place to work: this process, or client actors on Ray."""
    gpus = table.gpus_per_actor
    if table.transport == "direct":
        raise InputError(
            'fleet.transport = "direct": must be "host", for Ray\'s direct transport between GPUs takes one object a '
            'call, and the calls of a block leave a model for each visit; set fleet.transport = "host"'
        )
    if inline:
        _check_inline(table)
        return Inline
    if gpus == "auto" and table.pinned:
        raise InputError(
            'fleet.gpus_per_actor = "auto" with fleet.pinned = true: must be a number, for sites may have different '
            "GPUs; set fleet.gpus_per_actor = 1"
        )
    actors, cpus, labels, group = table.actors, table.cpus_per_actor, table.labels, table.group
    if gpus == "auto":
        return partial(FittedActors, actors, cpus, address, labels=labels, group=group)
    kind = PinnedActors if table.pinned else ClientActors
    return partial(kind, actors, cpus, gpus, address, labels=labels, group=group)


def _check_inline(table: FleetTable) -> None:
    """Refuse what is asked of actors where there are none."""
    if table.gpus_per_actor:
        raise InputError(
            f"fleet.gpus_per_actor = {json.dumps(table.gpus_per_actor)} with --inline: must be 0, for this process "
            "computes on the CPU; set fleet.gpus_per_actor = 0, or leave --inline out"
        )
    if table.pinned:
        raise InputError(
            "fleet.pinned = true with --inline: must be false, for this process would need the data of all sites; set "
            "fleet.pinned = false, or leave --inline out"
        )
