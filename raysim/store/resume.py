"""What is there of a run that goes on: its experiment, the results of what has ended, and what must be as it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from raysim.common.errors import InputError
from raysim.config.check import flat
from raysim.config.experiment import Experiment
from raysim.config.preparation import Preparation
from raysim.config.read import read
from raysim.measures.selection import Best, Standing
from raysim.models.weights import FILE
from raysim.store.checkpoint import check_same
from raysim.store.folder import SUMMARY, has_begun, tidy
from raysim.store.result import Result


def run_of(folder: Path) -> tuple[Path, str | None]:
    """The folder of a run, and one of its algorithms where the folder is that one's.

    Raises:
        InputError: it is neither.
    """
    if has_begun(folder):
        return folder, None
    above, name = folder.resolve().parent, folder.resolve().name
    if has_begun(above) and name in stored(above).names:
        return above, name
    if (folder / "study.toml").is_file():
        raise InputError(f"{folder}: must be the folder of a run, and is a study's; go on with `raysim study {folder}`")
    raise InputError(
        f"{folder}: must be the folder of a run, or of an algorithm in it, with a config.toml in the run's; give one "
        "that `raysim run` wrote"
    )


def stored(folder: Path) -> Experiment:
    """The experiment of a run's folder.

    Raises:
        InputError: it cannot be read, or names what was given as a Python object and is not there.
    """
    raw = read(folder / "config.toml")
    try:
        return Experiment.of(raw)
    except InputError as error:
        if '"__main__:' in json.dumps(raw, default=str):
            raise InputError(
                f"{folder}: its run was given Python objects of a script: must be resumed from there; call "
                "raysim.resume in that script"
            ) from None
        raise InputError(f"{folder / 'config.toml'}: {error}") from None


def own_modules(experiment: Experiment) -> set[str]:
    """The names of the user's modules: those of what the experiment names, and those beside them."""
    tops = {name.partition(":")[0].partition(".")[0] for name in experiment.named if ":" in name}
    return tops | {module.__name__ for module in experiment.own_code}


def settings(experiment: Experiment, name: str) -> dict[str, str]:
    """All of the experiment that an algorithm's result depends on, but for its data and the machine, in words.

    Args:
        experiment: resolved.
        name: the algorithm's folder.

    Returns:
        a value by its key, and the sha256 of the user's own code by its file.
    """
    config = experiment.to_toml()
    of_data = {key: value for key, value in config["data"].items() if key in Preparation.model_fields}
    of_fleet = {key: config["fleet"][key] for key in ("block", "cpus_per_actor")}
    table = config["algorithm"][experiment.names.index(name)]
    kept = {key: config.get(key) for key in ("seed", "rounds", "epochs", "model", "evaluate", "devices", "partition")}
    model = kept["model"] = table.pop("model", config["model"])
    if (weights := model.get("weights", "")).endswith(FILE):
        # Which file it was, wherever it is now.
        kept["model"] = {**model, "weights": _sha256(Path(weights))}
    content = json.dumps({**kept, "data": of_data, "fleet": of_fleet, "algorithm": table})
    # A default may be 0 where the file, read again, says 0.0.
    alike = json.loads(content, parse_int=lambda digits: digits if len(digits) > 15 else float(digits))
    files = {name: _sha256(path) for name, path in _own_files(experiment).items()}
    return {**{key: json.dumps(value) for key, value in flat(alike)}, **files}


def _own_files(experiment: Experiment) -> dict[str, Path]:
    """The files of the user's own code, modules and all of a package's, by their places beside each other."""
    files: dict[str, Path] = {}
    for module in experiment.own_code:
        if module.__file__:
            path = Path(module.__file__).resolve()
            whole = path.stem == "__init__"
            home = path.parent.parent if whole else path.parent
            files |= {str(each.relative_to(home)): each for each in (path.parent.rglob("*.py") if whole else [path])}
    return dict(sorted(files.items()))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def summary_of(result: Result, targets: Mapping[str, float], here: Mapping[str, str]) -> dict[str, Any]:
    """What `summary.json` says of an algorithm that has ended.

    Args:
        result: what it came to.
        targets: values of columns that were to be reached.
        here: what its bytes depend on beside the experiment.
    """
    summary: dict[str, Any] = asdict(result)
    standing = summary.pop("standing")
    reached = standing.pop("reached")
    rounds = {column: {"target": value, "round": reached.get(column)} for column, value in targets.items()}
    own = {"algorithm": repr(result.algorithm), "fingerprint": dict(here)}
    return {**summary, **standing, "reached": rounds, **own}


def read_result(folder: Path, experiment: Experiment) -> Result | None:
    """The result of an algorithm that has ended, by its folder; None where it has not."""
    if not (folder / SUMMARY).is_file():
        return None
    tidy(folder)
    summary = _summary(folder)
    best = {column: Best(**each) for column, each in summary["best"].items()}
    reached = {column: each["round"] for column, each in summary["reached"].items() if each["round"] is not None}
    own: dict[str, Any] = {
        "name": folder.name,
        "algorithm": experiment.table(folder.name).compose(),
        "standing": Standing(summary["evaluations"], best, summary["gained"], reached),
    }
    return Result(**{each.name: summary[each.name] for each in fields(Result) if each.name not in own}, **own)


def check_place(folders: Iterable[Path], here: Mapping[str, str]) -> None:
    """Check that what has ended was computed by such processes, and on such a population, as go on.

    Args:
        folders: of algorithms; those that have not ended are passed over.
        here: what the bytes depend on beside the experiment.

    Raises:
        InputError: it was not; the first difference is named.
    """
    for folder in folders:
        if (folder / SUMMARY).is_file():
            check_same(folder, _summary(folder)["fingerprint"], here)


def _summary(folder: Path) -> dict[str, Any]:
    try:
        summary: dict[str, Any] = _numbers(json.loads((folder / SUMMARY).read_text(encoding="utf-8")))
    except ValueError as error:
        raise InputError(
            f"{folder / SUMMARY} is not JSON ({error}): must be as it was written; remove {folder}"
        ) from None
    return summary


def _numbers(value: Any) -> Any:
    """What JSON says of numbers that it has not: see `raysim.store.folder`."""
    if isinstance(value, dict):
        return {key: _numbers(each) for key, each in value.items()}
    return float(value) if value in ("nan", "inf", "-inf") else value
