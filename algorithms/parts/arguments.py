"""Checks of arguments that many algorithms take."""

from __future__ import annotations

from typing import Literal

from algorithms.core.errors import require
from algorithms.parts.server import Assign, Server
from algorithms.training.local_values import FLOAT32_MAX


def require_float32(what: str, value: float, bound: Literal[">= 0", "> 0"], usual: float) -> None:
    """Raise InputError unless a number fits single precision; `usual` is the value in the remedy."""
    holds = 0 <= value <= FLOAT32_MAX and (value > 0 or bound == ">= 0")
    require(holds, what, value, f"a float32 number {bound}", f"set {what} = {usual}")


def require_rule(server: Server, kind: type[Server], rule: str, algorithm: str) -> None:
    """Raise InputError unless the server's rule is of a kind; `rule` is its name in experiment files."""
    allowed, remedy = f"{rule!r} for {algorithm}", f'set server.rule = "{rule}"'
    require(isinstance(server, kind), "server.rule", server, allowed, remedy)


def require_no_rule(server: Server, why: str) -> None:
    """Raise InputError if the server has a rule of its own; `why` says that the algorithm leaves it no step."""
    require(isinstance(server, Assign), "server.rule", server, f"'assign' {why}", "remove the table [server]")
