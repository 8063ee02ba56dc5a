"""A user's own method: terms that read nothing known, and losses that are no terms, are refused; others count."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
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
    Option,
    Participation,
    TopK,
    Uplink,
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


@pytest.mark.parametrize("slot", ["received", "momentum", "first", "second", "steps", "batches", "feedback", "a/b", 7])
@pytest.mark.parametrize("scope", ["personal", "shared"])
def test_a_slot_with_a_name_of_other_values_is_refused(scope: str, slot: Any) -> None:
    """Clients would lose what they keep, or share it with momentum or the uplink's residual."""
    method = type("Given", (Method,), {scope: (slot,)})()
    uplink = Uplink((TopK(0.5),), feedback=True)
    match = f"Given.*: (must be a text without a slash, and none of .*momentum|its `{scope}` must be a tuple of names)"
    with pytest.raises(InputError, match=match):
        fedavg(Participation(), Local(method=method)).having(uplink)


@pytest.mark.parametrize("slots", [("momentum",), ("feedback",), ("mine",), ("a/b",)])
def test_a_slot_of_an_option_is_of_it_alone(slots: tuple[str, ...]) -> None:
    option = type("Given", (Option,), {"slots": slots, "name": "given"})()
    method = type("Keeps", (Method,), {"personal": ("mine",)})()
    algorithm = fedavg(Participation(), Local(method=method)).having(Uplink((TopK(0.5),), feedback=True))
    with pytest.raises(
        InputError, match=r"option .*Given.* with the slot .*: must be a text without a slash, and none"
    ):
        algorithm.having(option)


def test_a_slot_is_personal_or_shared() -> None:
    both = type("Both", (Method,), {"personal": ("mine",), "shared": ("mine",)})()
    with pytest.raises(InputError, match="with the slot 'mine': must be"):
        fedavg(Participation(), Local(method=both))


class Squared:
    """A further term of the loss that has no anchors: the outputs' mean square, twice.

    Args:
        module: model, whose outputs it looks at.
    """

    def __init__(self, module: nn.Module) -> None:
        self.outputs = torch.empty(0)
        self.close = module.register_forward_hook(self.look).remove

    def look(self, module: nn.Module, inputs: Any, outputs: torch.Tensor) -> None:
        self.outputs = outputs

    def anchors(self, lanes: slice | int) -> tuple[()]:
        return ()

    def __call__(self, anchors: Any, constant: Any, x: torch.Tensor) -> torch.Tensor:
        return 2 * self.outputs.square().mean()


class Small(Method):
    """Local steps with that term."""

    def loss_term(self, module: nn.Module, steps: LocalSteps) -> Any:
        return Squared(module)


def test_a_term_without_anchors_counts_in_every_execution(federation: Callable[..., InlineFleet]) -> None:
    found = []
    for execution, method in (("sequential", Small()), ("vectorised", Small()), ("sequential", Method())):
        compute = Compute(execution, "fp64")  # type: ignore[arg-type]
        algorithm = fedavg(Participation(), Local(method=method)).computed(compute)
        fleet = federation(clients((4, 3)), perceptron().double(), algorithm.sharing, 2, compute)
        found.append(next_round(begin(perceptron().double(), fleet, 0), algorithm, fleet).model.floats)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9, atol=1e-11)
    assert np.abs(found[2] - found[0]).max() > 1e-3


class Failing(Squared):
    """A further term of the loss that fails."""

    def __call__(self, anchors: Any, constant: Any, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no term")


class Fails(Method):
    """Local steps with that term."""

    def loss_term(self, module: nn.Module, steps: LocalSteps) -> Any:
        return Failing(module)


@pytest.mark.parametrize("execution", ["sequential", "vectorised"])
def test_a_term_is_closed_if_a_step_fails(execution: Any, federation: Callable[..., InlineFleet]) -> None:
    algorithm, module = fedavg(Participation(), Local(method=Fails())), perceptron()
    fleet = federation(clients((4, 3)), module, algorithm.sharing, 2, Compute(execution))
    with pytest.raises(ValueError, match="no term"):
        next_round(begin(perceptron(), fleet, 0), algorithm, fleet)
    assert not module._forward_hooks


@pytest.mark.parametrize("execution", ["sequential", "vectorised"])
def test_a_further_loss_that_is_no_term_is_refused(execution: Any, federation: Callable[..., InlineFleet]) -> None:
    class Given(Method):
        def loss_term(self, module: nn.Module, steps: LocalSteps) -> Any:
            return torch.zeros(())

    algorithm = fedavg(Participation(), Local(method=Given()))
    fleet = federation(clients((4, 3)), perceptron(), algorithm.sharing, 2, Compute(execution), 1)
    with pytest.raises(InputError, match=r"Given.loss_term returns a Tensor: must return None, or a term such as"):
        next_round(begin(perceptron(), fleet, 0), algorithm, fleet)
