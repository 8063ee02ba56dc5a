"""Running a study: populations, trials, tables and report."""

import logging
import time
import tomllib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from partitioning.common.disk import DiskFullError, write_whole
from raysim.common.errors import InputError, StoppedError, one_input_error
from raysim.common.surface import call, option
from raysim.config import own
from raysim.config.check import flat
from raysim.config.own_notices import module_notices, own_code_notices
from raysim.config.read import changed, length_notices, module_folders, read
from raysim.fleet.machine import settled
from raysim.reproduction.page import section
from raysim.simulation.options import RunOptions
from raysim.simulation.stop import Stop
from raysim.store.config_file import FREE, check_config, config_text, write_config
from raysim.studies.concluding import conclude
from raysim.studies.course import Course, StudyProgress
from raysim.studies.file import Study, completed, read_study
from raysim.studies.folder import POPULATIONS, STUDY, TRIALS, study_folder
from raysim.studies.populations import fitted, populations_of, search_populations
from raysim.studies.runners import TrialRunner, runner_for
from raysim.studies.showing import Board
from raysim.studies.trial import Ending, Trial, TrialResult, read_trial_result
from raysim.watching.log import run_log

LOG = logging.getLogger("raysim.studies")

PAUSE = 10
"""Pause between two writes of the table, in multiples of the time that a write takes."""

SHORT = 80
"""Most characters of a changed key with both values in a notice."""


def study(
    config: str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    changes: Iterable[str] = (),
    actors: int | None = None,
    inline: bool = False,
    address: str | None = None,
    watcher: Board | None = None,
    stop: Stop | None = None,
) -> StudyProgress:
    """Run a study, or resume it; trials that have ended do not run again.

    Args:
        config: study file, recipe name, mapping with the same tables, or folder of a study to resume.
        out: folder of the study, new or of the same study; default `runs/NAME-TIME`.
        changes: `key.path=value` each, applied to the file.
        actors: trials at once or, if each trial has client actors, the number of these; never changes the result.
        inline: run one trial after the other in this process, without Ray; never changes the result.
        address: address of a running Ray cluster; None starts Ray on this machine.
        watcher: observer of the study.
        stop: asks a trial in this process to stop between two rounds.

    Raises:
        InputError: the input is wrong; before the first trial nothing is left on disk.
        StoppedError: the study was interrupted; the same call resumes it.
        RuntimeError: trials failed; the same call runs them again, and the others are done.
    """
    board = watcher or Board()
    options = RunOptions(actors, inline, address, watcher=board, stop=stop or Stop())
    return run_study(config, out, changes, options, board, lambda folder, _: conclude(folder, lead=section(folder)))


def run_study(
    config: str | Path | Mapping[str, Any],
    out: str | Path | None,
    changes: Iterable[str],
    options: RunOptions,
    board: Board,
    write: Callable[[Path, Mapping[str, str]], object],
    again: str | None = None,
) -> StudyProgress:
    """Run the trials of a study; see `study`.

    Args:
        config, out, changes: as for `study`.
        options: options of each trial.
        board: observer of the study.
        write: called after the trials, with the study's folder and the errors of failed trials, to write its report.
        again: command that continues the study, for messages; None for `raysim study` with its folder.
    """
    plan, folder = _opened(config, out, tuple(changes), board)
    runner = runner_for(plan, folder / "trials", options, board.notice)
    again = again or call("study", folder, inline=options.inline, address=options.address)
    with _resumable(folder, again), study_folder(folder), run_log(folder / "run.log", LOG), one_input_error():
        course = _planned(plan, folder, board)
        with runner:
            failed = _run_trials(course, runner, folder, board)
        for text in course.lost().values():
            board.notice(text)
        board.phase("writing the tables and the report")
        write(folder, failed)
    if failed:
        name, text = next(iter(failed.items()))
        raise RuntimeError(
            f"{len(failed)} trials failed, {name} with {text}; see {folder / 'run.log'}, and run them again with: "
            f"{again}"
        )
    return course.progress(folder)


def _opened(
    config: str | Path | Mapping[str, Any], out: str | Path | None, changes: Sequence[str], board: Board
) -> tuple[Study, Path]:
    if not isinstance(config, Mapping) and Path(config).is_dir():
        if not (Path(config) / STUDY).is_file():
            raise InputError(f"{config}: must be the folder of a study, with a {STUDY}; give a study file")
        config, out = Path(config) / STUDY, out or Path(config)
        if (config.parent / POPULATIONS).is_dir():  # else the file is the user's own
            check_config(config, read(config))
    name = "study" if isinstance(config, Mapping) else Path(config).stem
    raw = completed(config) if isinstance(config, Mapping) else read_study(config)
    folder = Path(out) if out is not None else Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    plan = Study.of(changed(raw, changes), module_folders(config))
    for text in length_notices(raw, changes):
        board.notice(text)
    return plan, folder


def _planned(plan: Study, folder: Path, board: Board) -> Course:
    """Make the populations, check everything that needs no training, and return the study's course."""
    names = own.names_in(plan.raw)
    for text in own_code_notices(names) + module_notices(own.modules_of(names)):
        LOG.info(text)
        board.notice(text)
    with settled(max(dataset.experiment.fleet.cpus_per_actor for dataset in plan.datasets)):
        populations = populations_of(plan, folder / POPULATIONS, board.phase, board.notice)
        searched = search_populations(plan, populations, folder / POPULATIONS, board.phase)
        plan, columns = fitted(plan, populations, searched, board.phase)
    (folder / "trials").mkdir(exist_ok=True)
    if changes := _changes(folder, plan):
        board.notice(
            f"the tables and the report in {folder} are of other settings, and those of this study replace them "
            f"({changes}); to keep them, choose another {option('out')}"
        )
    write_config(folder / STUDY, plan.to_toml())
    return Course(plan, populations, columns, searched)


def _changes(folder: Path, plan: Study) -> str:
    """Return the keys that differ from those of the tables in a study's folder; "" without tables."""
    if not (folder / "table.md").is_file():
        return ""
    try:
        before = dict(flat(read(folder / STUDY)))
    except InputError:  # a damaged file is replaced
        return ""
    now = dict(flat(tomllib.loads(config_text(plan.to_toml()))))
    both = {**before, **now}
    keys = [key for key in both if before.get(key) != now.get(key) and {key, key.partition(".")[0]}.isdisjoint(FREE)]
    after, earlier = ([repr(each[key]) if key in each else "the default" for key in keys] for each in (now, before))
    texts = [f"{key}: {new}, before {old}" for key, new, old in zip(keys, after, earlier, strict=True)]
    return "; ".join(text if len(text) <= SHORT else key for key, text in zip(keys, texts, strict=True))


def _run_trials(course: Course, runner: TrialRunner, folder: Path, board: Board) -> dict[str, str]:
    """Run all trials that have not ended; return the errors of those that failed.

    Raises:
        InputError, DiskFullError: an error that every trial would meet.
    """
    failed: dict[str, str] = {}
    waiting, due = deque(course.begin()), 0.0
    try:
        while waiting or runner.busy:
            if waiting and (result := read_trial_result(folder / "trials" / waiting[0].name, waiting[0])):
                trial = waiting.popleft()
            elif waiting and runner.free:
                runner.begin(waiting.popleft())
                continue
            else:
                if (started := time.monotonic()) >= due:
                    _write(course, folder, board, runner.busy)
                    due = time.monotonic() + PAUSE * (time.monotonic() - started)
                trial, ending = runner.next()
                result = _result_of(trial, ending, folder / "trials")
                if result.status == "failed":
                    failed[trial.name] = ending[1]
                _report(trial, result, ending[1], board)
            waiting.extend(course.end(trial, result))
    finally:
        _write(course, folder, board, 0)
    return failed


def _result_of(trial: Trial, ending: Ending, trials: Path) -> TrialResult:
    """Return a trial's result, read from its folder as a resumed study would read it."""
    status, text = ending
    if status in ("wrong", "full"):
        kind = InputError if status == "wrong" else DiskFullError
        raise kind(f"{trial.name}: {text}; trials that have ended stay")
    result = None if status == "failed" else read_trial_result(trials / trial.name, trial)
    return result or TrialResult("failed")


def _report(trial: Trial, result: TrialResult, error: str, board: Board) -> None:
    split = trial.split
    of_fold = "" if split.fold is None else f", fold {split.fold}, validation {split.validation}"
    of_partition = "" if split.partition is None else f", partition {split.partition}"
    of_point = f", {trial.point}" if trial.point else ""
    text = f"{trial.name}: {result.status}{of_point}, seed {split.seed}{of_fold}{of_partition}"
    LOG.info("%s, %d rounds, %.3f s", text, result.rounds, result.seconds)
    board.ended(text)
    if result.status != "done":
        LOG.warning("%s: %s", trial.name, error)
        board.notice(f"{trial.name}: {result.status}: {error}")


def _write(course: Course, folder: Path, board: Board, running: int) -> None:
    progress = course.progress(folder)
    with write_whole(folder / TRIALS) as aside:
        pq.write_table(progress.trials, aside)
    board.update(progress, running)


@contextmanager
def _resumable(folder: Path, again: str) -> Iterator[None]:
    """Name the command `again` that resumes the study if it is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        remedy = f"; continue with: {again}" if (folder / STUDY).is_file() else ""
        raise StoppedError(f"stopped{remedy}") from None
