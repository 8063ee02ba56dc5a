"""Runs of every algorithm, and compressed, private or robust ones, that are killed and resumed: same bytes."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.kit.runs import ALL, SMALL, Breaks, assert_same, quick_resume, quick_run

TOP_K = [{"name": "top-k", "share": 0.05}]
POISSON = {"sampling": "poisson", "fraction": 0.5, "weighting": "equal"}
PRIVACY = {"noise": 1.5, "clip": 0.5, "delta": 1e-3, "accountant": "rdp", "adaptive": {"count_noise": 3.0}}

KILLED: dict[str, dict[str, Any]] = {
    **{algorithm["name"]: {"algorithm": algorithm} for algorithm in ALL},
    "power-of-choice": {"algorithm": {"name": "fedavg", "cohort": 2, "candidates": 3}},
    "feedback": {"uplink": {"chain": TOP_K, "feedback": True}, "algorithm": {"name": "fedavg", "cohort": 3}},
    "downlink": {"downlink": {"chain": TOP_K}, "algorithm": {"name": "fedavg", "cohort": 3}},
    "privacy": {"privacy": PRIVACY, "model": {"name": "logistic"}, "algorithm": {"name": "fedavg", **POISSON}},
    "median": {"attack": {"share": 0.4}, "algorithm": {"name": "fedavg", "server": {"aggregate": "median"}}},
}

EXPERIMENT: dict[str, Any] = {**SMALL, "rounds": 300, "evaluate": {"every": 100, "metrics": ["accuracy"]}}

BEFORE = 2
"""Rounds that a checkpoint holds before the process is killed."""


@pytest.mark.slow
@pytest.mark.parametrize("case", KILLED)
def test_a_run_that_is_killed_ends_with_the_same_bytes(case: str, tmp_path: Path) -> None:
    config = {**EXPERIMENT, **KILLED[case]}
    name = config["algorithm"]["name"]
    quick_run(config, tmp_path / "whole", inline=True)
    killed = tmp_path / "killed"
    (tmp_path / "killed.toml").write_text(tomli_w.dumps(config))
    arguments = ["run", str(tmp_path / "killed.toml"), "--inline", "--out", str(killed)]
    process = subprocess.Popen([sys.executable, "-m", "raysim", *arguments], stdout=subprocess.DEVNULL)
    while process.poll() is None and newest(killed / name / "checkpoint") < BEFORE:
        time.sleep(0.001)
    process.kill()
    assert process.wait(60) == -signal.SIGKILL
    done = newest(killed / name / "checkpoint")
    assert BEFORE <= done < EXPERIMENT["rounds"] and not (killed / name / "summary.json").exists()
    watcher = Breaks(0)
    quick_resume(killed, inline=True, watcher=watcher)
    assert f"{name}: continues after round {done}" in watcher.notices
    assert_same(tmp_path / "whole", killed, name)


def newest(folder: Path) -> int:
    """Return the round of the newest checkpoint in a folder, 0 without one."""
    return max((int(path.name.split("-")[1]) for path in folder.glob("round-*")), default=0)
