"""Stages of a run's commands: a bar and a row for each command, and for each of its algorithms."""

from collections.abc import Iterator, Mapping, Sequence

from raysim.common.units import human_seconds
from raysim.report.read import RunOutput
from raysim.report.tables import ResultTable, StageBar, TableColumn, stage_bars
from raysim.report.words import COMMAND_STAGES
from raysim.store.wall_clock import CommandTime
from raysim.watching.stopwatch import StageTime


def breakdown(runs: Sequence[RunOutput]) -> tuple[list[StageBar], ResultTable] | None:
    """Return the seconds of each stage of each command as bars and as a table; None if no run has them."""
    named = {name: parts for run in runs for name, parts in _bars(run, len(runs) > 1)}
    if not named:
        return None
    every = list(named.values())
    columns = [TableColumn.of("Whole", [sum(parts.values()) for parts in every], human_seconds)]
    columns += [
        TableColumn.of(stage.title, [parts.get(name) for parts in every], human_seconds, colour=stage.colour)
        for name, stage in COMMAND_STAGES.items()
        if any(name in parts for parts in every)
    ]
    bars = stage_bars({name: (0.0, parts) for name, parts in named.items()}, COMMAND_STAGES)
    return bars, ResultTable(columns, (TableColumn("", list(named)),))


def _bars(run: RunOutput, several: bool) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Yield a command's name and the seconds of its stages, then those of each of its algorithms."""
    for number, command in enumerate(run.commands, start=1):
        which = f"raysim {command.command}" + (f" ({number})" if len(run.commands) > 1 else "")
        name = f"{run.name}: {which}" if several else which
        yield name, _sums(command.stages)
        algorithms = _algorithms(command)
        for algorithm in algorithms if len(algorithms) > 1 else ():
            yield f"{name}: {algorithm}", _sums([each for each in command.stages if each.algorithm == algorithm])


def _algorithms(command: CommandTime) -> list[str]:
    return list(dict.fromkeys(each.algorithm for each in command.stages if each.algorithm))


def _sums(stages: Sequence[StageTime]) -> dict[str, float]:
    return {
        name: sum(each.seconds for each in stages if each.stage == name)
        for name in COMMAND_STAGES
        if any(each.stage == name for each in stages)
    }
