"""Keys of `[study]` and `[study.tune]`: their types, defaults and checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from raysim.common.errors import InputError, check_known
from raysim.config.check import ConfigTable, checked, distinct
from raysim.config.experiment import Experiment
from raysim.config.ranges import Construction
from raysim.config.reference import Group, group_of
from raysim.config.tables import MOST_FOLDS

LOCAL_VALIDATION = "local_validation_"
"""Beginning of the columns of the search on the clients' own validation parts."""

Seeds = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**63)], ...], Field(min_length=1), AfterValidator(distinct)]
Folds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1), AfterValidator(distinct)]


class TuneTable(ConfigTable):
    """`[study.tune]`: seeds and folds of the search; by default all."""

    seeds: Seeds | None = None
    """Seeds of the search; by default all of `study.seeds`."""
    folds: Folds | None = None
    """Test folds of the search; by default all. The clients of their validation folds choose the points."""
    local_validation: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of each client's training part on which the search compares points, as `local_validation_accuracy`: for
    methods with personal models. By default validation clients compare."""
    partition_seeds: Seeds | None = None
    """Partitions of the search; by default all of `study.partition_seeds`."""


class StudyTable(ConfigTable):
    """`[study]`: seeds, folds and metrics; `grid`, `inherit` and `datasets` are read separately."""

    seeds: Seeds | None = None
    """Seeds of the training; by default the file's `seed`, which then makes the clients."""
    partition_seeds: Seeds | None = None
    """Seeds of the partition: every seed of the training runs on every draw of the clients. By default one draw, by the
    file's `seed`."""
    folds: Annotated[int, Field(ge=0, le=MOST_FOLDS)] | None = None
    """Folds, each tested once; 0 tests the partition's test clients. Default: its folds."""
    validation: Literal["next", "rotate"] = "next"
    """Validation fold of a test fold: the next one, or each other fold in turn."""
    metric: str | None = None
    """Reported metric; by default the first that all trials measure, of the held-out clients, else of the test set."""
    select_by: str | None = None
    """Validation metric that chooses a point; by default `evaluate.select_by`."""
    baseline: str | None = None
    """Algorithm that the others are compared with; by default `fedavg`, else the first."""
    tune: TuneTable = TuneTable()


def study_groups() -> Iterator[Group]:
    """Yield the keys of `[study]` and of `[study.tune]`."""
    tables: Mapping[str, type[ConfigTable]] = {"study": StudyTable, "study.tune": TuneTable}
    for name, table in tables.items():
        construction = Construction(lambda keys, table=table, name=name: checked(table, keys, name))  # type: ignore[misc]
        yield group_of(name, table, construction, skip=("tune",))


def resolved_table(table: StudyTable, experiment: Experiment, has_search: bool) -> StudyTable:
    """Return `[study]` with every default, except the metric.

    Args:
        table: the table as given.
        experiment: experiment on the first data set.
        has_search: whether any algorithm has several points.

    Raises:
        InputError: an algorithm or a column is unknown, test data would decide the search, seeds and folds of the
            search are none of the study's, or there are no folds to rotate.
    """
    seeds = table.seeds or (experiment.seed,)
    folds = table.folds if table.folds is not None else getattr(experiment.partition, "folds", 0)
    if table.validation == "rotate" and not folds:
        raise InputError(
            'study.validation = "rotate" without folds: must have some, each of which validates in turn; set '
            "study.folds = 5, or leave study.validation out"
        )
    cut = table.tune.local_validation
    usual = experiment.evaluate.select_by if cut is None else f"{LOCAL_VALIDATION}accuracy"
    select_by = table.select_by or usual
    if has_search:
        _check_select_by(select_by, cut)
    names = experiment.names
    baseline = table.baseline or ("fedavg" if "fedavg" in names else names[0])
    check_known(f"study.baseline = {baseline!r}", baseline, names)
    drawn = table.tune.partition_seeds or table.partition_seeds
    if table.tune.partition_seeds and not set(table.tune.partition_seeds) <= set(table.partition_seeds or ()):
        raise InputError(
            f"study.tune.partition_seeds = {list(table.tune.partition_seeds)}: must be some of study.partition_seeds = "
            f"{list(table.partition_seeds or ())}; add them there, or leave it out"
        )
    folded = table.tune.folds or tuple(range(folds)) or None
    tune = table.tune.model_copy(update={"seeds": table.tune.seeds or seeds, "folds": folded, "partition_seeds": drawn})
    beyond = [fold for fold in tune.folds or () if fold >= folds]
    if beyond:
        allowed = f"0 to {folds - 1}" if folds else "left out, because there are no folds"
        raise InputError(f"study.tune.folds = {list(tune.folds or ())}: must be {allowed}; correct it")
    update = {"seeds": seeds, "folds": folds, "select_by": select_by, "baseline": baseline, "tune": tune}
    return table.model_copy(update=update)


def _check_select_by(column: str, cut: float | None) -> None:
    """Raise InputError if the search does not measure a column, or the column is of test data."""
    if column.startswith("validation_" if cut is None else LOCAL_VALIDATION):
        return
    if cut is not None:
        raise InputError(
            f"study.select_by = {column!r} with study.tune.local_validation: must be a column of the clients' own "
            "validation parts, which alone the search then measures; set study.select_by = "
            f'"{LOCAL_VALIDATION}accuracy", or leave study.tune.local_validation out'
        )
    remedy = 'set study.select_by = "validation_accuracy"'
    if column.startswith("local_"):
        remedy = (
            "set study.tune.local_validation = 0.2, which cuts validation parts from the clients' training parts, and "
            f'study.select_by = "{LOCAL_VALIDATION}accuracy"'
        )
    raise InputError(
        f"study.select_by = {column!r} with study.grid: must be a column of the validation clients, or of the clients' "
        f"own validation parts, because test data must not decide; {remedy}"
    )
