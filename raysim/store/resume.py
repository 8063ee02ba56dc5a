"""Reading a run to continue it: its experiment, its finished results, and everything that must be unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from partitioning.common.text import word
from partitioning.store.files import sha256
from raysim.common.errors import InputError
from raysim.common.names import CONFIG, SUMMARY
from raysim.config.check import flat
from raysim.config.data import PREPARATION
from raysim.config.experiment import Experiment
from raysim.config.options import option_tables
from raysim.config.read import read
from raysim.config.topology import FILE
from raysim.measures.check import measuring
from raysim.measures.selection import EvaluationHistory
from raysim.models.keys import WEIGHTS_SUFFIX
from raysim.store.algorithm_folder import tidy
from raysim.store.checkpoint import check_same
from raysim.store.config_file import check_config
from raysim.store.result import AlgorithmResult
from raysim.store.run_folder import check_version, has_begun
from raysim.store.summary import read_summary

ADDRESS = re.compile(r" at 0x[0-9a-f]+(?=>)")
"""Place in memory in the text of an object without a text of its own, such as a function."""


def run_of(folder: Path) -> tuple[Path, str | None]:
    """Return a run's folder and None, or, for the folder of an algorithm, the run's folder and the algorithm's name.

    Raises:
        InputError: the folder is neither.
    """
    if has_begun(folder):
        return folder, None
    above, name = folder.resolve().parent, folder.resolve().name
    if has_begun(above) and name in stored_experiment(above).names:
        return above, name
    if (folder / "study.toml").is_file():
        raise InputError(
            f"{folder}: must be the folder of a run, and is a study's; continue with `raysim study {word(folder)}`"
        )
    raise InputError(
        f"{folder}: must be the folder of a run with a config.toml, or of an algorithm in it; give one that "
        "`raysim run` wrote"
    )


def stored_experiment(folder: Path) -> Experiment:
    """Return the experiment of a run's folder.

    Raises:
        InputError: the experiment cannot be read, a former version wrote it, or it names objects of a missing script.
    """
    check_version(folder)
    raw = read(folder / CONFIG)
    check_config(folder / CONFIG, raw)
    try:
        return Experiment.of(raw)
    except InputError as error:
        if '"__main__:' in json.dumps(raw, default=str):
            raise InputError(
                f"{folder}: its run used Python objects of a script: must be resumed from there; call raysim.resume in "
                "that script"
            ) from None
        raise InputError(f"{folder / CONFIG}: {error}") from None


def settings(experiment: Experiment, name: str) -> dict[str, str]:
    """Return the settings that determine an algorithm's result, apart from its data, the machine and own code.

    The values are JSON, by dotted key.
    """
    config = experiment.to_toml()
    of_data = {key: value for key, value in config["data"].items() if key in PREPARATION}
    of_fleet = {key: config["fleet"][key] for key in ("block", "cpus_per_actor")}
    table = config["algorithm"][experiment.names.index(name)]
    table.pop("label", None)
    common = {
        key: config.get(key)
        for key in ("seed", "rounds", "epochs", "model", "evaluate", "devices", *option_tables(Experiment), "partition")
    }
    model = common["model"] = table.pop("model", config["model"])
    # The contents of files matter, and they may have moved.
    if (weights := model.get("weights", "")).endswith(WEIGHTS_SUFFIX):
        model["weights"] = _digest("model.weights", Path(weights))
    if (folder := Path(model.get("pretrained", ""))).is_absolute():
        files = [path for path in sorted(folder.glob("*")) if path.suffix in (".json", WEIGHTS_SUFFIX)]
        model["pretrained"] = {path.name: _digest("model.pretrained", path) for path in files}
    if "sha256" in (topology := table.get("topology", {})):
        topology["graph"] = FILE
    if experiment.devices is not None and experiment.devices.table is not None:
        common["devices"] = {"sha256": experiment.devices.digest}
    content = json.dumps({**common, "data": of_data, "fleet": of_fleet, "algorithm": table})
    # A default may be 0 in memory and 0.0 in the written file.
    alike = json.loads(content, parse_int=lambda digits: digits if len(digits) > 15 else float(digits))
    return {key: json.dumps(value) for key, value in flat(alike)}


def _digest(key: str, path: Path) -> str:
    """Return the sha256 of a file that a key names; raise InputError if it cannot be read."""
    try:
        status = path.stat()
        return _sha256(str(path), status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise InputError(f"{key} = {str(path)!r}: must be a readable file ({error.strerror}); check the path") from None


@lru_cache
def _sha256(path: str, size: int, changed: int) -> str:
    """Return the sha256 of a file of this size and time of change; all trials of a study hash it once."""
    return sha256(Path(path))


def summary_of(result: AlgorithmResult, targets: Mapping[str, float], here: Mapping[str, str]) -> dict[str, Any]:
    """Return the contents of a finished algorithm's `summary.json`; `here` is the fingerprint."""
    # Own code in the algorithm may hold what cannot be copied, such as a module, so `asdict` does not fit.
    summary, history = ({each.name: getattr(of, each.name) for each in fields(of)} for of in (result, result.history))
    del summary["history"]
    reached, best_round = history.pop("reached"), history.pop("best_round")
    history["best"] = {
        column: {"value": value, "round": best_round[column]} for column, value in history["best"].items()
    }
    sent, after = summary.pop("sent"), summary.pop("reached_after")
    rounds = {
        column: {
            "target": value,
            "round": reached.get(column),
            "bytes_up": sent.get(column),
            "simulated_seconds": after.get(column),
        }
        for column, value in targets.items()
    }
    own = {"algorithm": shown(result.algorithm), "fingerprint": dict(here)}
    return {**summary, **history, "reached": rounds, **own}


def shown(algorithm: object) -> str:
    """Return an algorithm as text that is the same in each process."""
    return ADDRESS.sub("", repr(algorithm))


def read_result(folder: Path, experiment: Experiment) -> AlgorithmResult | None:
    """Return the result of a finished algorithm from its folder; None if it is unfinished."""
    if not (folder / SUMMARY).is_file():
        return None
    summary = read_summary(folder / SUMMARY)
    tidy(folder)
    best = {column: each["value"] for column, each in summary["best"].items()}
    best_round = {column: each["round"] for column, each in summary["best"].items()}
    targets = {column: each for column, each in summary["reached"].items() if each["round"] is not None}
    reached = {column: each["round"] for column, each in targets.items()}
    after = {column: each.get("simulated_seconds") for column, each in targets.items()}
    own: dict[str, Any] = {
        "name": folder.name,
        "sent": {column: each.get("bytes_up") for column, each in targets.items()},
        "reached_after": {column: seconds for column, seconds in after.items() if seconds is not None},
        "algorithm": experiment.compose(folder.name).having(*measuring(experiment.evaluate.measures)),
        "history": EvaluationHistory(summary["evaluations"], best, best_round, summary["gained"], reached),
    }
    rest = {each.name: summary[each.name] for each in fields(AlgorithmResult) if each.name not in own}
    return AlgorithmResult(**rest, **own)


def check_fingerprint(folders: Iterable[Path], here: Mapping[str, str]) -> None:
    """Check that finished algorithms, in some of these folders, ran on such a machine and population as the rest would.

    Raises:
        InputError: a fingerprint differs; the first difference is named.
    """
    for folder in folders:
        if (folder / SUMMARY).is_file():
            check_same(folder, read_summary(folder / SUMMARY, ())["fingerprint"], here)
