"""A user's own method: terms that read nothing known, and losses that are no terms, are refused in one line."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from algorithms import (
    AffineTerm,
    Compute,
    InputError,
    Layout,
    Local,
    LocalSteps,
    Method,
    Participation,
    begin,
    fedavg,
    next_round,
)
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import clients, perceptron


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ((AffineTerm(a=0.5, b=-0.5, v="global"),), r"Given.terms with AffineTerm.v = 'global': must be 'received', "),
        (AffineTerm(a=0.5), r"Given.terms = AffineTerm\(a=0.5, b=0.0, v=None\): must be a tuple of AffineTerm"),
        ((0.1,), r"Given.terms = \(0.1,\): must be a tuple of AffineTerm"),
    ],
)
def test_terms_of_nothing_known_are_refused(terms: Any, message: str) -> None:
    @dataclass(frozen=True)
    class Given(Method):
        @property
        def terms(self) -> tuple[AffineTerm, ...]:
            given: tuple[AffineTerm, ...] = terms
            return given

    with pytest.raises(InputError, match=message):
        fedavg(Participation(), Local(method=Given())).divide(Layout.of(perceptron()))


@pytest.mark.parametrize("execution", ["sequential", "vectorised"])
def test_a_further_loss_that_is_no_term_is_refused(execution: Any, federation: Callable[..., InlineFleet]) -> None:
    class Given(Method):
        def loss_term(self, module: nn.Module, steps: LocalSteps) -> Any:
            return torch.zeros(())

    algorithm = fedavg(Participation(), Local(method=Given()))
    fleet = federation(clients((4, 3)), perceptron(), algorithm.sharing, 2, Compute(execution), 1)
    with pytest.raises(InputError, match=r"Given.loss_term returns a Tensor: must return None, or a term such as"):
        next_round(begin(perceptron(), fleet, 0), algorithm, fleet)
