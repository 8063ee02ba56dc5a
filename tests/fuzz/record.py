"""Records of the attacks: a JSON file each, with the commit and the machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def keep(name: str, found: Mapping[str, Any]) -> None:
    """Write the record of an attack to NAME.json beside this file.

    Args:
        name: name of the attack.
        found: its counts.
    """
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    hardware = f"{os.cpu_count()} cores, {platform.machine()}"
    whole = {"commit": commit.stdout.strip(), "hardware": hardware, **found}
    (HERE / f"{name}.json").write_text(json.dumps(whole, indent=2) + "\n")
