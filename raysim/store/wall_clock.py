"""Wall clock of a run's commands on disk: `wall-clock.json`, one entry for `run` and one for each `resume`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from partitioning.common.disk import write_whole
from partitioning.common.paths import read_text
from raysim.common.errors import InputError
from raysim.common.names import WALL_CLOCK
from raysim.watching.stopwatch import StageTime


@dataclass(frozen=True)
class CommandTime:
    """Stages of one command, which add up to its wall clock.

    Args:
        command: "run" or "resume".
        stages: stages in order.
    """

    command: str
    stages: Sequence[StageTime]

    @property
    def seconds(self) -> float:
        """Wall clock of the command."""
        return sum(each.seconds for each in self.stages)


def read_commands(folder: Path) -> list[CommandTime]:
    """Return the commands of a run, in order; none if the file is missing.

    Raises:
        InputError: the file is damaged.
    """
    path = folder / WALL_CLOCK
    if not path.is_file():
        return []
    try:
        found: list[dict[str, Any]] = json.loads(read_text(path))
        return [CommandTime(each["command"], [StageTime(**one) for one in each["stages"]]) for each in found]
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} is damaged ({error!r}): must be as raysim wrote it; remove it") from None


def write_commands(folder: Path, commands: Sequence[CommandTime]) -> None:
    """Write the commands of a run."""
    found = [{"command": each.command, "stages": [asdict(one) for one in each.stages]} for each in commands]
    with write_whole(folder / WALL_CLOCK) as aside:
        aside.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
