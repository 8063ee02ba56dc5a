"""Running an experiment: its population, its fleet, and each of its algorithms in turn."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from raysim.common.errors import one_input_error
from raysim.config.experiment import Experiment
from raysim.config.read import changed, read
from raysim.fleet.client_actors import ClientActors
from raysim.fleet.inline import InlineWorkplace
from raysim.fleet.machine import settled
from raysim.fleet.user_code import pickled_by_value
from raysim.measures.evaluate import Targets
from raysim.report.page import write_report
from raysim.simulation.failures import continuable, own_errors
from raysim.simulation.job import Job
from raysim.simulation.options import RunOptions, placed
from raysim.simulation.plan import planned
from raysim.simulation.population import population_of
from raysim.simulation.samples import prepared
from raysim.simulation.stop import Stop
from raysim.store.location import RunLocation, existing_location, new_location
from raysim.store.result import AlgorithmResult
from raysim.store.resume import check_fingerprint, read_result, stored_experiment
from raysim.store.run_folder import existing_folder, run_folder, write_config
from raysim.watching.log import log_population, logged, run_log
from raysim.watching.loggers.logger import LoggedRun
from raysim.watching.loggers.named import loggers_of
from raysim.watching.loggers.threads import LoggerThreads
from raysim.watching.progress import Watcher

LOG = logging.getLogger("raysim")


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, its report, and a result for each algorithm.

    Where it is kept at a URI, the folder is a copy in the cache.
    """

    folder: Path
    report: Path
    results: tuple[AlgorithmResult, ...]
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
    how = RunOptions(actors, inline, address, watcher or Watcher(), stop or Stop())
    experiment = resolved(config, changes)
    with new_location(place_of(config, out), how.watcher) as home:
        # The report comes last, where nothing that goes wrong removes what was trained.
        return _reported(home, begin(experiment, home, how), how.watcher)


def resolved(config: str | Path | Mapping[str, Any], changes: Iterable[str] = ()) -> Experiment:
    """The experiment that `run` is given, checked."""
    raw = changed(config, changes) if isinstance(config, Mapping) else read(config, changes)
    return Experiment.of(raw, own_folders(config))


def place_of(config: str | Path | Mapping[str, Any], out: str | Path | None) -> str | Path:
    """The folder of a run that is about to begin, or its URI."""
    name = "run" if isinstance(config, Mapping) else Path(config).stem
    return out if out is not None else Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


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
    how = RunOptions(actors, inline, address, watcher or Watcher(), stop or Stop())
    with existing_location(folder, how.watcher) as (home, only):
        # Also where nothing was left: the page may be of before, when the run stopped for numbers that are none.
        return _reported(home, go_on(home, how, only), how.watcher)


def begin(experiment: Experiment, home: RunLocation, how: RunOptions) -> dict[str, AlgorithmResult]:
    """Run an experiment as `run` does, all but its report: the results by the algorithms' names."""
    experiment, workplace = placed(experiment, how)
    folder = home.folder
    with continuable(folder, how.watcher, home.name), run_folder(folder), _working(folder, experiment):
        # From here on whatever stops the run leaves what `resume` needs.
        write_config(folder / "config.toml", experiment.to_toml())
        return _run(experiment, home, workplace(), how, experiment.names)


def go_on(home: RunLocation, how: RunOptions, only: str | None = None) -> dict[str, AlgorithmResult]:
    """Go on with a run as `resume` does, all but its report: the results by the algorithms' names.

    Args:
        home: the run's.
        how: it is run.
        only: the algorithm that goes on; None for all.
    """
    folder = home.folder
    experiment, workplace = placed(stored_experiment(folder), how)
    with existing_folder(folder):
        names = experiment.names if only is None else (only,)
        there = {name: result for name in names if (result := read_result(folder / name, experiment)) is not None}
        left = [name for name in names if name not in there]
        if left:
            with continuable(folder, how.watcher, home.name), _working(folder, experiment):
                there |= _run(experiment, home, workplace(), how, left)
        else:
            how.watcher.notice(f"{home.name_of(only)} has ended: nothing is left to do")
    return {name: there[name] for name in names}


def own_folders(config: str | Path | Mapping[str, Any]) -> tuple[Path, ...]:
    """Where a user's own modules may be: beside the experiment's file, and in the current folder."""
    here = Path.cwd()
    if isinstance(config, Mapping) or not Path(config).is_file():
        return (here,)
    return (Path(config).resolve().parent, here)


def ended(home: RunLocation) -> Run:
    """A run that has ended, as its folder has it."""
    experiment = stored_experiment(home.folder)
    results = [read_result(home.folder / name, experiment) for name in experiment.names]
    there = tuple(result for result in results if result is not None)
    return Run(home.folder, home.folder / "report.html", there, home.uri)


def _reported(home: RunLocation, results: Mapping[str, AlgorithmResult], watcher: Watcher) -> Run:
    watcher.stage("writing the report")
    page = write_report([home.folder], home.folder / "report.html")
    return Run(home.folder, page, tuple(results.values()), home.uri)


@contextmanager
def _working(folder: Path, experiment: Experiment) -> Iterator[None]:
    """Within, the run's log is written, and this process computes as the experiment says."""
    threads, log = settled(experiment.fleet.cpus_per_actor), folder / "run.log"
    with run_log(log), one_input_error(), threads, own_errors(experiment, log):
        yield


def _run(
    experiment: Experiment,
    home: RunLocation,
    place: ClientActors | InlineWorkplace,
    how: RunOptions,
    names: Sequence[str],
) -> dict[str, AlgorithmResult]:
    """Run these algorithms one after the other; client actors start, in the background, once all input is checked.

    What is there already of a run that goes on is taken as it is.
    """
    folder, watcher = home.folder, how.watcher
    tell = logged(watcher.notice)
    for text in experiment.own_code_notices:
        tell(text)
    loggers = loggers_of(experiment.watch)
    watcher.stage("reading the data and partitioning it into clients")
    population = population_of(experiment, folder / "population", watcher.stage)
    log_population(population)
    targets = Targets.of(population, experiment.evaluate.on, experiment.evaluate.metrics)
    experiment.evaluate.selection.check(targets.columns)
    samples = prepared(population, experiment.data)
    experiment, plans = planned(experiment, folder, samples, targets, place.device, names)
    if not targets.targets:
        tell("there is nothing to evaluate on; set data.test, partition.test_clients or partition.local_test")
    write_config(folder / "config.toml", experiment.to_toml())
    if home.uri is not None:
        watcher.stage(f"storing what is there so far at {home.uri}")
        home.store()

    watcher.stage("starting the fleet")
    watched = LoggedRun(folder.resolve().name, folder / "watch", experiment.watch)
    loggers |= place.loggers
    with pickled_by_value(experiment.own_code), place, LoggerThreads(watched, loggers, watcher.notice) as telling:
        place.fit(plans)
        LOG.info("fingerprint %s", place.fingerprint)
        here = {**place.fingerprint, "population": population.fingerprint}
        check_fingerprint([folder / name for name in experiment.names if name not in names], here)
        job = Job(experiment, folder, place, targets, here, watcher, telling, how.stop, home.after_checkpoint(watcher))
        return {name: job.run(name, plan) for name, plan in plans.items()}
