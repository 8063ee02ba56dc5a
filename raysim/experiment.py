"""Running an experiment: its population, its fleet, and each of its algorithms in turn."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from algorithms import DivergedError as AlgorithmDivergedError
from algorithms import InputError as AlgorithmInputError
from algorithms import Purpose, begin, torch_seed
from partitioning.disk import DiskFullError
from raysim import report
from raysim.budget import rounds_of
from raysim.checkpoint import Checkpoints
from raysim.columns import TWINS, columns_of
from raysim.config import Experiment, changed, own, read
from raysim.config.experiment import FleetTable
from raysim.errors import (
    DivergedError,
    InputError,
    OutOfMemoryError,
    OwnCodeError,
    RetriesSpentError,
    StoppedError,
    of_algorithm,
    one_input_error,
)
from raysim.fleet import BenchPlan, ClientActors, FittedActors, Inline, ModelPlan, sent_whole, settled
from raysim.folder import AlgorithmFolder, old_folder, run_folder, run_log, write_config
from raysim.measures import Targets, check_measures, twins_of
from raysim.population import population_of
from raysim.preparing import Prepared, prepared
from raysim.progress import Watcher
from raysim.result import Result
from raysim.resuming import check_place, own_modules, read_result, run_of, settings, stored, summary_of
from raysim.simulation import Simulation
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
    raw = changed(config, changes) if isinstance(config, Mapping) else read(config, changes)
    name = "run" if isinstance(config, Mapping) else Path(config).stem
    experiment, workplace = _placed(Experiment.of(raw, _folders(config)), actors, inline, address)
    folder = Path(out) if out is not None else Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    watcher = watcher or Watcher()
    with _continuable(folder, watcher), run_folder(folder), _working(folder, experiment):
        # From here on whatever stops the run leaves what `resume` needs.
        write_config(folder / "config.toml", experiment.to_toml())
        results = _run(experiment, folder, workplace(), watcher, stop or Stop(), experiment.names)
    # Outside, where nothing that goes wrong removes what was trained.
    return Run(folder, report.write([folder], folder / "report.html"), tuple(results.values()))


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
        OutOfMemoryError: a block does not fit the memory; what was written so far stays.
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
            with _continuable(folder, watcher), _working(folder, experiment):
                there |= _run(experiment, folder, workplace(), watcher, stop or Stop(), left)
        else:
            watcher.notice(f"{folder} has ended: nothing is left to do")
    if left or not page.exists():
        report.write([folder], page)
    return Run(folder, page, tuple(there[name] for name in names))


def _placed(
    experiment: Experiment, actors: int | None, inline: bool, address: str | None
) -> tuple[Experiment, Workplace]:
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
    with run_log(log), one_input_error(), threads, _own_errors(experiment, log):
        yield


@contextmanager
def _continuable(folder: Path, watcher: Watcher) -> Iterator[None]:
    """Within, whatever ends the run says how to go on."""
    remedy = f"continue with: raysim resume {folder}"
    try:
        yield
    except KeyboardInterrupt as error:
        raise StoppedError(f"{str(error) or 'interrupted'}; {remedy}") from None
    except InputError:
        raise
    except DivergedError as error:
        page = report.write([folder], folder / "report.html")
        raise DivergedError(f"{error}; {page} shows the rounds before") from None
    except Exception:
        watcher.notice(f"what was done stays; {remedy}")
        raise


@contextmanager
def _own_errors(experiment: Experiment, log: Path) -> Iterator[None]:
    """Within, what a user's own part raises becomes one line that says where; the log has the traceback."""
    try:
        yield
    except (InputError, AlgorithmInputError, DivergedError, OutOfMemoryError, RetriesSpentError, DiskFullError):
        raise
    except Exception as error:
        if text := own.told(error, experiment.own_code):
            raise OwnCodeError(f"your own code raised {text}; see {log}") from error
        raise


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
    model = _model_plan(experiment, samples)
    experiment, plans = _plans(experiment, folder, samples, model, place.device, names)
    asked = experiment.evaluate
    for name, plan in plans.items():
        try:
            check_measures(asked.measures, targets, asked.every, plan.algorithm, plan.placement)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    if not targets.targets:
        watcher.notice("there is nothing to evaluate on; set data.test, partition.test_clients or partition.local_test")
    write_config(folder / "config.toml", experiment.to_toml())
    LOG.info("%d clients, %d samples, %s", len(population), population.sizes.sum(), model)

    watcher.stage("starting the fleet")
    with sent_whole(experiment.own_code), place:
        place.fit(plans)
        LOG.info("fingerprint %s", place.fingerprint)
        here = {**place.fingerprint, "population": population.fingerprint}
        check_place([folder / name for name in experiment.names if name not in names], place.fingerprint)
        job = Job(experiment, folder, place, targets, here, watcher, stop)
        results = {name: job.run(name, plan) for name, plan in plans.items()}
    watcher.stage("writing the report")
    return results


@dataclass(frozen=True)
class Job:
    """What the algorithms of a run have in common.

    Args:
        experiment: resolved.
        folder: of the run.
        place: where blocks run.
        targets: what is evaluated on.
        here: what the bytes depend on beside the experiment.
        watcher: is told what happens.
        stop: asks the run to stop.
    """

    experiment: Experiment
    folder: Path
    place: ClientActors | Inline
    targets: Targets
    here: Mapping[str, str]
    watcher: Watcher
    stop: Stop

    def run(self, name: str, plan: BenchPlan) -> Result:
        """Run one algorithm, or go on with it."""
        experiment, folder, watcher = self.experiment, self.folder / name, self.watcher
        LOG.info("%s: %r", name, plan.algorithm)
        if text := _idle(name, plan, self.place.workers):
            watcher.notice(text)
        measures = experiment.evaluate.measures
        identity = {**self.here, "settings": settings(experiment, name)}
        checkpoints = Checkpoints(folder, plan.algorithm, identity, own_modules(experiment))
        snapshot = checkpoints.newest(watcher.notice)
        done = snapshot.state.round if snapshot else 0
        if folder.exists():
            watcher.notice(f"{name}: goes on after round {done}" if done else f"{name}: begins anew")
        files = AlgorithmFolder(folder, [*self.targets.columns, *columns_of(measures)], checkpoints, done)
        with (
            of_algorithm(name),
            closing(files),
            closing(self.place.fleet(plan, watcher.block, watcher.notice)) as fleet,
        ):
            rounds = _rounds(experiment, name, plan)
            wanted = [measure for measure in measures if measure not in TWINS]
            devices = experiment.devices.profile() if experiment.devices else None
            module = plan.module()
            state = begin(module, fleet, experiment.seed, rounds, wanted, devices)
            simulation = Simulation(
                name,
                plan.algorithm,
                fleet,
                self.targets,
                experiment.evaluate.selection,
                files,
                watcher,
                twins_of(measures, state, self.targets),
                experiment.checkpoint.every,
                self.stop,
            )
            try:
                state, result = simulation.run(state, rounds, experiment.evaluate.every, snapshot)
            except AlgorithmDivergedError as error:
                files.stop(
                    {"stopped": str(error), "algorithm": repr(plan.algorithm), "fingerprint": self.place.fingerprint}
                )
                raise
            summary = summary_of(result, experiment.evaluate.target, self.place.fingerprint)
            files.finish(state, fleet.placement, summary, module.state_dict())
        return result


def _rounds(experiment: Experiment, name: str, plan: BenchPlan) -> int:
    """How many rounds an algorithm has; with a budget of epochs it depends on what its visits do."""
    if experiment.epochs is None:
        return experiment.rounds or 0
    rounds = rounds_of(experiment.epochs, plan.algorithm, plan.census)
    LOG.info("%s: %g epochs are %d rounds", name, experiment.epochs, rounds)
    return rounds


def _idle(name: str, plan: BenchPlan, workers: int) -> str:
    """What to tell a person whose rounds have fewer blocks than there are actors; nothing otherwise."""
    cohort = plan.cohort
    size = plan.block_size(cohort)
    blocks = -(-cohort // size)
    if blocks >= min(workers, cohort):
        return ""
    return (
        f"{name}: {cohort} visits a round make {blocks} blocks of {size}, fewer than the {workers} actors; "
        "a smaller fleet.block uses more of them, and has its own bytes"
    )


def _plans(
    experiment: Experiment, folder: Path, samples: Prepared, model: ModelPlan, device: str, names: Sequence[str]
) -> tuple[Experiment, dict[str, BenchPlan]]:
    """A plan for each of these algorithms, and the experiment with what "auto" has come to.

    Raises:
        InputError: what would fail on the way: an algorithm does not fit the model or the population.
    """
    plans: dict[str, BenchPlan] = {}
    tables = dict(zip(experiment.names, experiment.algorithm, strict=True))
    for name in names:
        table = tables[name]
        kept = (folder / name / "kept").absolute()
        plan = BenchPlan(
            samples.path,
            model,
            table.compose(),
            kept,
            experiment.fleet.block,
            device,
            fold=experiment.fold,
            joins=table.joins,
            standardise=samples.standardise,
            augment=samples.augment,
        )
        try:
            plans[name] = plan.resolved()
        except AlgorithmInputError as error:
            raise InputError(f"{name}: {error}") from None
        tables[name] = table.computed(plans[name].algorithm.local.compute.execution)
    return experiment.model_copy(update={"algorithm": tuple(tables.values())}), plans


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


def _model_plan(experiment: Experiment, samples: Prepared) -> ModelPlan:
    table, seed = experiment.model, torch_seed(experiment.seed, Purpose.INITIALISE)
    plan = ModelPlan(
        table.name,
        table.keys,
        samples.shape,
        samples.classes,
        seed,
        table.own,
        whole=samples.whole,
        per_pixel=samples.per_pixel,
    )
    if table.weights is not None:
        plan.build(LOG.info)
    return plan
