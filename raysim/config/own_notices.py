"""Notices of the user's own code: whose code runs, and a random generator that no key seeds."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterable
from types import ModuleType

from raysim.config.own import OURS


def own_code_notices(names: Iterable[str]) -> list[str]:
    """Return a notice for each name of foreign code, so that the reader knows whose code runs."""
    own = [name for name in dict.fromkeys(names) if ":" in name and re.split(r"[.:]", name)[0] not in OURS]
    return [
        f"{name} is not part of raysim: the code of {getattr(sys.modules[name.partition(':')[0]], '__file__', None)} "
        "runs here and in the actors, with all your permissions"
        for name in own
    ]


def generator_notices(modules: Iterable[ModuleType]) -> list[str]:
    """Return a notice if a module holds a random generator of its own, which no key seeds."""
    import numpy as np  # late, as torch: a wrong file is refused without them

    kinds: list[type] = [np.random.Generator, np.random.RandomState, random.Random]
    if (torch := sys.modules.get("torch")) is not None:
        kinds.append(torch.Generator)
    held = [(module, name) for module in modules for name, value in vars(module).items() if type(value) in kinds]
    return [
        f"{module.__name__}.{name} is a random generator that raysim does not seed: its draws may differ with the "
        "number of actors; make it where you draw: np.random.default_rng(np.random.randint(2**31, size=4))"
        for module, name in held[:1]
    ]
