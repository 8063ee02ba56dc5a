"""`raysim.run` and `raysim.resume`: an experiment's population, its fleet, and each of its algorithms in turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from partitioning import Population
from partitioning.store.writing import remove_drafts
from raysim.common.errors import DamagedError, InputError, one_input_error
from raysim.common.log import LOG
from raysim.common.names import CONFIG, POPULATION, RUN_LOG, WATCH
from raysim.config.experiment import Experiment
from raysim.config.read import changed, length_notices, module_folders, read
from raysim.data.catalogue import MEMORY
from raysim.data.features import LABEL
from raysim.data.memory import HeldData, take_objects
from raysim.fleet import Workplace
from raysim.fleet.actors import Actors
from raysim.fleet.machine import settled
from raysim.fleet.user_code import pickled_by_value
from raysim.measures.evaluate import Targets
from raysim.simulation.algorithm_run import StartedRun, run_algorithm
from raysim.simulation.failures import name_user_code, offer_resume, repeat_after, report_if_stopped, write_page
from raysim.simulation.finished import Run
from raysim.simulation.options import RunOptions
from raysim.simulation.plan import plan_run, targets_of
from raysim.simulation.population import population_of
from raysim.simulation.stop import Stop
from raysim.store.config_file import write_config
from raysim.store.location import RunLocation, existing_location, new_location
from raysim.store.result import AlgorithmResult
from raysim.store.resume import check_fingerprint, read_result, stored_experiment
from raysim.store.run_folder import has_begun, locked, run_folder
from raysim.store.wall_clock import CommandTime, read_commands, write_commands
from raysim.watching.log import log_command_time, log_population, run_log
from raysim.watching.loggers.logger import LoggedRun, loggers_of
from raysim.watching.loggers.threads import LoggerThreads
from raysim.watching.progress import Watcher, default_watcher
from raysim.watching.stopwatch import Stopwatch


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
    started: float | None = None,
    fleet: Actors | None = None,
) -> Run:
    """Run an experiment.

    Args:
        config: experiment file, name of a recipe, or a mapping with the same keys. In a mapping `algorithm.name` may
            also be a function, `model.name` a class, and `data.dataset` and `data.test` data in memory: a pair `(X, y)`
            of arrays, a data set of PyTorch or Hugging Face, a frame of pandas or polars, a pyarrow table, a dictionary
            of columns, or a dictionary of these with the keys `train` and `test`.
        out: new folder of the run, or its URI; default `runs/NAME-TIME`.
        changes: changes of the form `key.path=value`.
        actors: number of client actors, instead of the file's; never changes the result.
        inline: whether to run in this process, without Ray; never changes the result.
        address: address of a running Ray cluster; None starts Ray on this machine.
        watcher: observer of the run; None shows a bar in a notebook, and nothing elsewhere.
        stop: request to stop between two rounds.
        started: beginning of the command for its breakdown, on the clock of `time.perf_counter`; None for this call.
        fleet: client actors of earlier runs, instead of new ones; never changes the result.

    Raises:
        InputError: the input is wrong; nothing is left behind unless rounds were written before.
        StoppedError: the run was stopped or interrupted; `resume` continues it.
        OutOfMemoryError: a block does not fit the memory; the rounds so far stay.
        DivergedError: a client update or an aggregation gave NaN or infinity, and `local.nonfinite` is "stop". The
            rounds so far stay, and the report shows them. Later algorithms do not run.
        OwnCodeError: the user's own code raised an error; the rounds so far stay.
    """
    watcher, stop = watcher or default_watcher(), stop or Stop()
    options = RunOptions(actors, inline, address, fleet, watcher, stop, Stopwatch(started))
    changes = tuple(changes)
    experiment = read_experiment(config, changes)
    for text in length_notices(config if isinstance(config, Mapping) else read(config), changes):
        options.tell(text)
    with new_location(new_out(config, out), options.watcher) as location, report_if_stopped(location):
        with _counted("run", location.folder, options):
            results = run_experiment(experiment, location, options)
        # The report comes last, so that no error in it removes trained models.
        return _with_report("run", location, results, options)


def resume(
    folder: str | Path,
    *,
    actors: int | None = None,
    inline: bool = False,
    address: str | None = None,
    watcher: Watcher | None = None,
    stop: Stop | None = None,
    started: float | None = None,
    fleet: Actors | None = None,
) -> Run:
    """Continue a run that was stopped at any moment; its files become those of an uninterrupted run.

    Args:
        folder: folder or URI of the run, or of one of its algorithms to continue that one alone.
        actors: number of client actors, instead of the run's; never changes the result.
        inline, address, watcher, stop, started, fleet: as in `run`.

    Raises:
        InputError: the folder holds no run, another process runs it, or this machine computes other bytes.
        Others: as `run`.
    """
    watcher, stop = watcher or default_watcher(), stop or Stop()
    options = RunOptions(actors, inline, address, fleet, watcher, stop, Stopwatch(started))
    with existing_location(folder, options.watcher) as (location, only), report_if_stopped(location):
        with _counted("resume", location.folder, options):
            results = resume_experiment(location, options, only)
        # Write the report even if nothing was left to do: the page may date from before the run diverged.
        return _with_report("resume", location, results, options)


def read_experiment(config: str | Path | Mapping[str, Any], changes: Iterable[str] = ()) -> Experiment:
    """Return the checked experiment; arguments as in `run`."""
    if not isinstance(config, Mapping):
        return Experiment.of(read(config, changes), module_folders(config))
    raw, objects = take_objects(config)
    experiment = Experiment.of(changed(raw, changes), module_folders(config))
    # Large data are read only when the rest of the experiment is right, and not if `changes` name others.
    data = experiment.data
    label = data.label if isinstance(data.label, str) else LABEL  # a name for the labels of a pair
    held = {key: HeldData.of(each, label) for key, each in objects.items() if getattr(data, key) == MEMORY}
    return experiment.model_copy(update={"data": data.holding(held)}) if held else experiment


def new_out(config: str | Path | Mapping[str, Any], out: str | Path | None) -> str | Path:
    """Return the folder or URI of a new run."""
    if out is not None:
        return out
    name = "run" if isinstance(config, Mapping) else Path(config).stem
    first = Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    # Two short runs may begin in the same second.
    others = (first.with_name(f"{first.name}-{number}") for number in count(2))
    return first if not first.exists() else next(each for each in others if not each.exists())


def run_experiment(experiment: Experiment, location: RunLocation, options: RunOptions) -> dict[str, AlgorithmResult]:
    """Run an experiment without its report; return the results by the algorithms' names."""
    experiment, folder = options.placed(experiment), location.folder
    with offer_resume(location, options), run_folder(folder, experiment.names), _run_context(folder, experiment):
        # From now on the folder has all that `resume` needs.
        write_config(folder / CONFIG, experiment.to_toml())
        return _run_algorithms(experiment, location, options, experiment.names)


def resume_experiment(
    location: RunLocation, options: RunOptions, only: str | None = None
) -> dict[str, AlgorithmResult]:
    """Continue a run, or `only` one algorithm, without its report; return the results by the algorithms' names."""
    folder = location.folder
    experiment = options.placed(stored_experiment(folder))
    with locked(folder):
        remove_drafts(folder)
        names = experiment.names if only is None else (only,)
        results = {name: result for name in names if (result := read_result(folder / name, experiment)) is not None}
        left = [name for name in names if name not in results]
        if left:
            with offer_resume(location, options), _run_context(folder, experiment):
                results |= _run_algorithms(experiment, location, options, left)
        else:
            name = location.name if only is None else f"{location.name.rstrip('/')}/{only}"
            options.watcher.notice(f"{name} has ended: nothing is left to do")
    return {name: results[name] for name in names}


def _with_report(
    command: str, location: RunLocation, results: Mapping[str, AlgorithmResult], options: RunOptions
) -> Run:
    """Write the report and the command's breakdown; the page shows the breakdown as far as the report's beginning."""
    folder, earlier = location.folder, _earlier_commands(location.folder, options)
    options.watcher.stage("writing the report")
    options.stopwatch.enter("report")
    write_commands(folder, [*earlier, CommandTime(command, options.stopwatch.times)])
    page = write_page(folder)
    done = CommandTime(command, options.stopwatch.stop())
    write_commands(folder, [*earlier, done])
    log_command_time(folder / RUN_LOG, command, done.stages)
    options.watcher.end()
    return Run(location.folder, page, tuple(results.values()), location.uri)


@contextmanager
def _counted(command: str, folder: Path, options: RunOptions) -> Iterator[None]:
    """Write the breakdown of a command that is stopped or fails, if it began an algorithm that `resume` continues."""
    try:
        yield
    except BaseException:
        stages = options.stopwatch.stop()
        with suppress(Exception):  # the first error matters, and not the times
            if any(each.algorithm for each in stages) and has_begun(folder):
                with locked(folder):  # another process may continue the run by now, and write its own times
                    write_commands(folder, [*read_commands(folder), CommandTime(command, stages)])
        raise


def _earlier_commands(folder: Path, options: RunOptions) -> list[CommandTime]:
    """Return the commands of a run so far; a damaged file is replaced, because only times are lost."""
    try:
        return read_commands(folder)
    except InputError as error:
        options.watcher.notice(f"{error}; it begins anew")
        return []


@contextmanager
def _run_context(folder: Path, experiment: Experiment) -> Iterator[None]:
    """Write the run's log, and compute in this process as the experiment says."""
    threads, log = settled(experiment.fleet.cpus_per_actor), folder / RUN_LOG
    with run_log(log), one_input_error(), threads, name_user_code(experiment, log):
        yield


def _run_algorithms(
    experiment: Experiment, location: RunLocation, options: RunOptions, names: Sequence[str]
) -> dict[str, AlgorithmResult]:
    """Run algorithms one after the other; client actors start in the background once all input is checked."""
    folder, watcher, stopwatch = location.folder, options.watcher, options.stopwatch
    place, loggers = options.workplace(experiment), loggers_of(experiment.watch)
    stopwatch.enter("data")
    population = _population(experiment, folder, options)
    stopwatch.enter("plan")
    targets = _targets(experiment, population, options)
    plan = plan_run(experiment.solved(options.tell), population, targets, folder, names, place.device)
    write_config(folder / CONFIG, plan.experiment.to_toml())
    if location.uri is not None:
        watcher.stage(f"storing the first files at {location.uri}")
        location.store()

    stopwatch.enter("fleet")
    watcher.beside(place.current)
    logged_run = LoggedRun(folder.resolve().name, folder / WATCH, experiment.watch)
    # Before `place` starts Ray's threads, whose locks a process of a logger would keep.
    threads = LoggerThreads(logged_run, loggers, place.loggers, watcher.notice)
    with threads, pickled_by_value(experiment.own_code), place, _ended(place, options):
        updates = sum(each.rounds * each.workers.cohort for each in plan.algorithms.values())
        place.fit({name: each.workers for name, each in plan.algorithms.items()}, updates)
        LOG.info("fingerprint %s", place.fingerprint)  # Such a log is kept, see `LOG_BEGUN`.
        others = [folder / name for name in experiment.names if name not in names]
        fingerprint = {**place.fingerprint, "population": plan.population}
        check_fingerprint(others, fingerprint)
        run = StartedRun(plan, place, location, options, threads, fingerprint)
        return {
            name: repeat_after(
                DamagedError,
                partial(run_algorithm, run, each),
                lambda text: options.tell(f"{text}; raysim goes back to an earlier checkpoint"),
            )
            for name, each in plan.algorithms.items()
        }


@contextmanager
def _ended(place: Workplace, options: RunOptions) -> Iterator[None]:
    """Begin the stage "end" after the context, and say what it waits for."""

    def end() -> None:
        options.stopwatch.enter("end")
        if text := place.ending():
            options.watcher.stage(text)

    try:
        yield
    except BaseException:
        with suppress(Exception):  # the run's error matters, and not that of a watcher
            end()
        raise
    end()


def _population(experiment: Experiment, folder: Path, options: RunOptions) -> Population:
    """Open or make the population, and log it."""
    for text in experiment.own_code_notices:
        options.tell(text)
    options.watcher.stage("reading the data and partitioning it into clients")
    population = population_of(experiment, folder / POPULATION, options.watcher.stage, options.tell)
    log_population(population)
    return population


def _targets(experiment: Experiment, population: Population, options: RunOptions) -> Targets:
    """Return the data to evaluate on; read them, so that a damaged test set is refused before anything is trained."""
    targets = targets_of(experiment, population)
    for target in targets.targets:
        for number in target.owners.tolist() if target.part is None else ():
            population.test_batch(number, target.domain)
    if not targets.targets:
        options.tell("no data to evaluate on; set data.test, partition.test_clients or partition.local_test")
    return targets
