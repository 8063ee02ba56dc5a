"""Several runs side by side: the keys in which their resolved configurations differ."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from raysim.report.read import RunOutput, algorithm_folders
from raysim.report.tables import ResultTable, TableColumn
from raysim.report.words import ABSENT


def differences(runs: Sequence[RunOutput]) -> ResultTable | None:
    """Return a row for each run with its values of the keys that differ; None if the runs are equal.

    A key of an algorithm is compared among the runs that have the algorithm; algorithms with equal values share a
    column.
    """
    columns = dict(_differing([_flat(run.config, leave_out="algorithm") for run in runs]))
    tables = [_algorithms(run.config) for run in runs]
    names = list(dict.fromkeys(name for own in tables for name in own))
    if len({tuple(own) for own in tables}) > 1:
        columns["algorithm"] = [", ".join(own) for own in tables]
    owners: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name in names:
        for key, texts in _differing([_flat(own[name]) if name in own else None for own in tables]):
            owners.setdefault((key, tuple(texts)), []).append(name)
    for (key, values), own_names in owners.items():
        columns[key if own_names == names else f"{', '.join(own_names)}: {key}"] = list(values)
    if not columns:
        return None
    return ResultTable(
        [TableColumn(key, texts) for key, texts in columns.items()], (TableColumn("Run", [run.name for run in runs]),)
    )


def _algorithms(config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    tables = config.get("algorithm", [])
    tables = [tables] if isinstance(tables, Mapping) else tables
    return dict(zip(algorithm_folders(config), tables, strict=True))


def _flat(table: Mapping[str, Any], prefix: str = "", leave_out: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif key != leave_out:
            flat[prefix + key] = value if isinstance(value, str) else json.dumps(value, default=str)
    return flat


def _differing(every: Sequence[Mapping[str, str] | None]) -> Iterator[tuple[str, list[str]]]:
    """Yield each key with different texts, and the text of each run; a run without the table does not count."""
    known = [each for each in every if each is not None]
    for key in dict.fromkeys(key for each in known for key in each):
        if len({each.get(key) for each in known}) > 1:
            yield key, [ABSENT if each is None else each.get(key, ABSENT) for each in every]
