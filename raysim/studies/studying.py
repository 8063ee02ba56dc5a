"""Running a study: its populations, its trials, and what they come to."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from partitioning.common.disk import DiskFullError, write_whole
from raysim.common.errors import InputError, StoppedError, one_input_error
from raysim.config import own
from raysim.config.own import own_code_notices
from raysim.fleet.machine import settled
from raysim.simulation.api import own_folders
from raysim.simulation.options import RunOptions
from raysim.simulation.stop import Stop
from raysim.store.run_folder import write_config
from raysim.studies.concluding import conclude
from raysim.studies.course import Course
from raysim.studies.file import Study, completed, read_study
from raysim.studies.folder import STUDY, TRIALS, study_folder
from raysim.studies.grid import Point
from raysim.studies.places import Place, place_for
from raysim.studies.populations import fitted, populations_of
from raysim.studies.read import Standing
from raysim.studies.showing import Board, OfTrial
from raysim.studies.trial import Ending, Record, Trial, Trials, read_record
from raysim.watching.log import run_log

LOG = logging.getLogger("raysim.studies")

PAUSE = 10
"""After the table was written it is left alone for so many times as long: it has a row for each of many trials."""


@dataclass(frozen=True)
class Studied:
    """A finished study.

    Args:
        folder: of the study.
        standing: at the end.
        winners: the chosen hyper-parameters by data set and algorithm.
    """

    folder: Path
    standing: Standing
    winners: Mapping[tuple[str, str], Point]

    @property
    def trials(self) -> pa.Table:
        """One row a trial, as in `trials.parquet`."""
        return self.standing.trials


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
) -> Studied:
    """Run a study, or go on with it: trials that have ended are not run again.

    Args:
        config: a study file, a recipe's name, the same as a mapping, or the folder of a study to go on with.
        out: the study's folder, a new one or that of the same study; default `runs/NAME-TIME`.
        changes: `key.path=value` each, applied to the file.
        actors: trials at once or, where each has client actors, how many of these; never changes the result.
        inline: run one trial after the other in this process, without Ray; never changes the result.
        address: of a running Ray cluster; None starts Ray here.
        watcher: is told what happens.
        stop: asks a trial that runs in this process to stop between two rounds.

    Raises:
        InputError: something of the input is wrong; before the first trial nothing is left behind.
        StoppedError: it was interrupted; the same call goes on.
        RuntimeError: trials failed, which the same call runs again; the others are done.
    """
    plan, folder = _opened(config, out, changes)
    board = watcher or Board()
    how = RunOptions(actors, inline, address, OfTrial(board), stop or Stop())
    place = place_for(plan, folder / "trials", how, board.notice)
    with _continuable(folder), study_folder(folder), run_log(folder / "run.log", LOG), one_input_error():
        course = _planned(plan, folder, board)
        with place:
            failed = carry_out(course, place, folder, board)
        for text in course.lost():
            board.notice(text)
        board.stage("writing the tables and the report")
        conclude(folder)
    if failed:
        name, text = next(iter(failed.items()))
        raise RuntimeError(
            f"{len(failed)} trials failed, {name} with {text}; see {folder / 'run.log'}, and run them again with: "
            f"raysim study {folder}"
        )
    return Studied(folder, course.standing(), course.winners())


def _opened(
    config: str | Path | Mapping[str, Any], out: str | Path | None, changes: Iterable[str]
) -> tuple[Study, Path]:
    """The study as its file says, and its folder."""
    if not isinstance(config, Mapping) and Path(config).is_dir():
        if not (Path(config) / STUDY).is_file():
            raise InputError(f"{config}: must be the folder of a study, with a {STUDY}; give a study file")
        config, out = Path(config) / STUDY, out or Path(config)
    name = "study" if isinstance(config, Mapping) else Path(config).stem
    raw = completed(config, changes) if isinstance(config, Mapping) else read_study(config, changes)
    folder = Path(out) if out is not None else Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    return Study.of(raw, own_folders(config)), folder


def _planned(plan: Study, folder: Path, board: Board) -> Course:
    """The course of the study, its populations made and everything checked that takes no training."""
    for text in own_code_notices(own.names_in(plan.raw)):
        LOG.info(text)
        board.notice(text)
    with settled(max(dataset.experiment.fleet.cpus_per_actor for dataset in plan.datasets)):
        populations = populations_of(plan, folder / "populations", board.stage)
        plan, columns = fitted(plan, populations, folder)
    (folder / "trials").mkdir(exist_ok=True)
    write_config(folder / STUDY, plan.to_toml())
    return Course(plan, Trials(plan, populations), columns)


def carry_out(course: Course, place: Place, folder: Path, board: Board) -> dict[str, str]:
    """Run all trials of a course that have not ended; those that failed, and why.

    Raises:
        InputError, DiskFullError: what every trial would meet with.
    """
    failed: dict[str, str] = {}
    try:
        _carry_on(course, place, folder, board, failed)
    finally:
        _write(course, folder, board, 0)
    return failed


def _carry_on(course: Course, place: Place, folder: Path, board: Board, failed: dict[str, str]) -> None:
    """Run trials until none is left, and note those that failed."""
    waiting, due = deque(course.begin()), 0.0
    while waiting or place.busy:
        if waiting and (record := read_record(folder / "trials" / waiting[0].name, waiting[0])):
            trial = waiting.popleft()
        elif waiting and place.free:
            place.begin(waiting.popleft())
            continue
        else:
            if (started := time.monotonic()) >= due:
                _write(course, folder, board, place.busy)
                due = time.monotonic() + PAUSE * (time.monotonic() - started)
            trial, ending = place.next()
            record = _recorded(trial, ending, folder / "trials")
            if record.status == "failed":
                failed[trial.name] = ending.text
            _tell(trial, record, ending, board)
        waiting.extend(course.end(trial, record))


def _recorded(trial: Trial, ending: Ending, trials: Path) -> Record:
    if ending.status in ("wrong", "full"):
        kind = InputError if ending.status == "wrong" else DiskFullError
        raise kind(f"{trial.name}: {ending.text}; trials that have ended stay")
    # What it came to is read from its folder, as another time it will be.
    record = None if ending.status == "failed" else read_record(trials / trial.name, trial)
    return record or Record("failed")


def _tell(trial: Trial, record: Record, ending: Ending, board: Board) -> None:
    split = trial.split
    of_fold = "" if split.fold is None else f", fold {split.fold}, validation {split.validation}"
    text = f"{trial.name}: {record.status}, {trial.point}, seed {split.seed}{of_fold}"
    LOG.info("%s, %d rounds, %.3f s", text, record.rounds, record.seconds)
    board.ended(text)
    if record.status != "done":
        LOG.warning("%s: %s", trial.name, ending.text)
        board.notice(f"{trial.name}: {record.status}: {ending.text}")


def _write(course: Course, folder: Path, board: Board, running: int) -> None:
    standing = course.standing()
    with write_whole(folder / TRIALS) as aside:
        pq.write_table(standing.trials, aside)
    board.stand(standing, running)


@contextmanager
def _continuable(folder: Path) -> Iterator[None]:
    """Within, whatever interrupts the study says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        remedy = f"; continue with: raysim study {folder}" if (folder / STUDY).is_file() else ""
        raise StoppedError(f"stopped{remedy}") from None
