"""The launch files, and what stands in them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent.parent
CLUSTERS = ROOT / "clusters"
LAUNCHERS = sorted(CLUSTERS.glob("*/cluster.yaml"))
JOBS = sorted((CLUSTERS / "kuberay").glob("job-*.yaml"))
SCRIPTS = sorted([*CLUSTERS.rglob("*.sh"), *CLUSTERS.rglob("*.sbatch")])
ALL = sorted(path for path in CLUSTERS.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def loaded(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def scalars(content: Any) -> Iterator[str]:
    """All texts of a loaded file."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for each in content.values() if isinstance(content, dict) else content:
            yield from scalars(each)


def name(path: Path) -> str:
    return path.relative_to(CLUSTERS).as_posix()


def pinned() -> dict[str, str]:
    """The versions that the tests ran with, by package."""
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return dict(re.findall(r'^    "([\w-]+)==([\w.]+)",$', lines, re.MULTILINE))
