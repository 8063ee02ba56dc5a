"""Affine terms of a local step, as data; torch, which takes seconds to import, is left out."""

from __future__ import annotations

from dataclasses import dataclass

RECEIVED = "received"
"""Name under which terms read the weights that the client update received."""


@dataclass(frozen=True)
class AffineTerm:
    """Term that is affine in the weights w: g <- g + a w + b v. Weight decay is `AffineTerm(a=decay)`.

    Args:
        a: factor of the weights.
        b: factor of v.
        v: name of stacks that stay constant during a client update: a slot of the method, or `RECEIVED`, "received".
    """

    a: float = 0.0
    b: float = 0.0
    v: str | None = None


def pull(strength: float, to: str = RECEIVED) -> AffineTerm:
    """Return the term strength (w - v), the gradient of strength / 2 ||w - v||^2; `to` names v."""
    return AffineTerm(a=strength, b=-strength, v=to)
