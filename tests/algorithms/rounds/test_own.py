"""Options and rounds of a user's own: what they return is checked, in one line that names theirs."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from algorithms import (
    Attack,
    Importance,
    InputError,
    Local,
    Option,
    Participation,
    PendingRound,
    PowerOfChoice,
    Rounds,
    begin,
    fedavg,
    fedbuff,
    fedtan,
    next_round,
    radfed,
    start_round,
    start_synchronous,
)
from algorithms.core import returned
from algorithms.core.devices import DrawnDevices
from algorithms.core.held import held
from algorithms.options.oort import Oort
from algorithms.options.own_selection import OwnSelection
from algorithms.parts.option import HOOKS
from algorithms.parts.ordering import ORDER, RESERVED
from algorithms.parts.schedule import Reporting
from algorithms.training.own import Own
from algorithms.training.own_update import OwnUpdate
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import clients, perceptron

Federation = Callable[..., InlineFleet]
PLAIN = fedavg(Participation(), Local(lr=0.1, batch_size=4))


@dataclass(frozen=True)
class Mine(Option):
    hook: str
    value: Any = None

    name: ClassVar[str] = "mine"

    def attend(self, draft: Any) -> Any:
        return self._of("attend", draft)

    def wrap(self, draft: Any, updates: Any) -> Any:
        return self._of("wrap", updates)

    def reduce(self, draft: Any, received: Any) -> Any:
        return self._of("reduce", received)

    def publish(self, draft: Any, received: Any, state: Any) -> Any:
        return self._of("publish", state)

    def _of(self, hook: str, given: Any) -> Any:
        return self.value if hook == self.hook else given


@dataclass(frozen=True)
class Keeps(Mine):
    """Option that counts the calls of a hook on itself, where no other actor and no checkpoint sees them."""

    calls: list[str] = field(default_factory=list)

    def _of(self, hook: str, given: Any) -> Any:
        self.calls.extend([hook] * (hook == self.hook))
        return given


@pytest.mark.parametrize("hook", HOOKS)
def test_an_option_keeps_nothing_on_itself(federation: Federation, hook: str) -> None:
    with pytest.raises(InputError, match=f"option Keeps.*`{hook}`: must keep nothing on itself, and sets 'calls'"):
        one_round(federation, PLAIN.having(Keeps(hook)))


def test_an_option_is_compared_around_its_own_hooks_only(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wraps(Option):
        name = "wraps"

        def wrap(self, draft: Any, updates: Any) -> Any:
            return updates

    calls: list[object] = []
    monkeypatch.setattr(returned, "held", lambda thing: calls.append(thing) or held(thing))
    one_round(federation, PLAIN.having(option := Wraps()))
    assert calls == [option]


@dataclass(frozen=True)
class Draws(Option):
    cohort: Any

    name: ClassVar[str] = "draws"

    def attend(self, draft: Any) -> Any:
        return replace(draft, cohort=self.cohort)


def one_round(federation: Federation, algorithm: Any) -> Any:
    fleet = federation(clients((9, 5, 7)), perceptron())
    return next_round(begin(perceptron(), fleet, 0), algorithm, fleet)


@pytest.mark.parametrize(
    ("hook", "value", "kind"),
    [
        ("attend", None, "Draft, and returns a NoneType"),
        ("wrap", len, "Function, and returns a builtin_function_or_method"),
        ("reduce", 3, "Received, and returns a int"),
        ("publish", None, "State, and returns a NoneType"),
    ],
)
def test_hooks_return_what_they_are_given(federation: Federation, hook: str, value: Any, kind: str) -> None:
    with pytest.raises(InputError, match=f"option Mine.*: `{hook}` must return a {kind}"):
        one_round(federation, PLAIN.having(Mine(hook, value)))
    one_round(federation, PLAIN.having(Mine("")))


@pytest.mark.parametrize("cohort", [[0, 1], np.array([1, 0]), np.array([0, 0]), np.array([7]), np.array([0.0])])
def test_a_cohort_of_an_option_is_checked(federation: Federation, cohort: Any) -> None:
    with pytest.raises(InputError, match="must be ids of different clients of the 3 to draw from, ascending"):
        one_round(federation, PLAIN.having(Draws(cohort)))
    rows = one_round(federation, PLAIN.having(Draws(np.array([0, 2])))).report.updates
    assert rows.clients.tolist() == [0, 2]


@dataclass(frozen=True)
class Narrows(Option):
    """Option of a user, who leaves out client 0."""

    weighs: bool = True

    name: ClassVar[str] = "narrows"

    def attend(self, draft: Any) -> Any:
        left = draft.clients != 0
        return replace(draft, clients=draft.clients[left], weights=draft.weights[left if self.weighs else slice(None)])


class Widens(Draws):
    """Option of a user, who draws from all clients again."""

    def attend(self, draft: Any) -> Any:
        return replace(draft, clients=draft.fleet.census.clients, weights=draft.fleet.census.samples)


@pytest.mark.parametrize("by", ["uniform", "size", Importance(start="equal")])
def test_an_option_narrows_the_clients_to_draw_from(federation: Federation, by: Any) -> None:
    algorithm = replace(PLAIN, schedule=Rounds(Participation(cohort=2, by=by)))
    assert one_round(federation, algorithm.having(Narrows())).report.updates.clients.tolist() == [1, 2]
    with pytest.raises(InputError, match=r"leaves 2 clients .* `weights` of the shape \(3,\): must be one weight for"):
        one_round(federation, algorithm.having(Narrows(weighs=False)))


@pytest.mark.parametrize("option", [Narrows(), Draws(np.array([1])), Mine(""), Draws(np.array([0, 2]))])
@pytest.mark.parametrize(
    "drawing", [PowerOfChoice(3), OwnSelection("first", lambda context: [0, 2]), "devices", "step"]
)
def test_a_cohort_that_is_drawn_stays(federation: Federation, drawing: Any, option: Any) -> None:
    """An option of a user comes last, so the clients that it leaves would not be those of the cohort."""
    part = Participation(cohort=2, by="uniform" if isinstance(drawing, str) else drawing)
    algorithm = (fedtan if drawing == "step" else fedavg)(part, PLAIN.local).having(option)
    fleet = federation(clients((9, 5, 7)), module := perceptron(norm=drawing == "step"))
    if drawing == "devices":
        fleet.census = replace(fleet.census, devices=DrawnDevices())
        algorithm = replace(algorithm, schedule=Rounds(replace(part, reporting=Reporting(over=1.5))))
    state = begin(module, fleet, 0)
    cohort = next_round(state, replace(algorithm, options=()), fleet).report.updates.clients
    changes = isinstance(option, Narrows) or (isinstance(option, Draws) and not np.array_equal(cohort, option.cohort))
    refused = pytest.raises(InputError, match="must keep them, because an earlier option has drawn the cohort")
    with refused if changes else nullcontext():
        next_round(state, algorithm, fleet)


@pytest.mark.parametrize("option", [Draws(np.arange(3)), Widens(None)])
def test_an_option_draws_none_that_have_not_joined(federation: Federation, option: Any) -> None:
    fleet = federation(clients((9, 5, 7)), perceptron())
    fleet.census = replace(fleet.census, joins=np.array([1, 1, 2]))
    state = begin(perceptron(), fleet, 0)
    with pytest.raises(InputError, match=r"\[0 1 2\]: must be ids of different clients of the 2 to draw from"):
        next_round(state, PLAIN.having(option), fleet)
    state = next_round(state, PLAIN, fleet)
    assert next_round(state, PLAIN.having(option), fleet).report.updates.clients.tolist() == [0, 1, 2]


@dataclass(frozen=True)
class Counts(Option):
    """Option of a user, who measures."""

    measured: str

    name: ClassVar[str] = "counts"
    columns: ClassVar[tuple[str, ...]] = ("first", "second")

    def publish(self, draft: Any, received: Any, state: Any) -> Any:
        return state.measuring({self.measured: float(draft.number)})


def test_an_option_measures_its_columns(federation: Federation) -> None:
    for name in ("first", "second", "simulated_seconds"):
        assert one_round(federation, PLAIN.having(Counts(name))).report.measures == {name: 1.0}
    with pytest.raises(InputError, match=r"Counts.*: `publish` measures 'updates', which is not among its `columns`"):
        one_round(federation, PLAIN.having(Counts("updates")))


@pytest.mark.parametrize("value", ["many", None, [1.0], 1j, 10**400])
def test_a_measure_that_is_no_number_is_named(federation: Federation, value: Any) -> None:
    class Odd(Counts):
        def publish(self, draft: Any, received: Any, state: Any) -> Any:
            return state.measuring({"first": value})

    with pytest.raises(InputError, match=r"^the measures of a round: must return numbers.*'first' is "):
        one_round(federation, PLAIN.having(Odd("first")))


def test_a_measure_may_be_a_tensor_of_one_number(federation: Federation) -> None:
    class Tensors(Counts):
        def publish(self, draft: Any, received: Any, state: Any) -> Any:
            return state.measuring({"first": torch.tensor(1.5)})

    assert one_round(federation, PLAIN.having(Tensors("first"))).report.measures == {"first": 1.5}


def test_a_cohort_of_an_option_is_no_larger_than_the_models_that_travel(federation: Federation) -> None:
    @dataclass(frozen=True)
    class Grows(Draws):
        def attend(self, draft: Any) -> Any:
            return replace(draft, cohort=np.arange(draft.number + 1))

    algorithm = radfed(Participation(), PLAIN.local).having(Grows(None))
    fleet = federation(clients((9, 5, 7)), perceptron())
    state = next_round(begin(perceptron(), fleet, 0), algorithm, fleet)
    with pytest.raises(InputError, match=r"Grows.* draws 3 clients in round 2: must draw at most 2, as many as models"):
        next_round(state, algorithm, fleet)


@pytest.mark.parametrize("name", [*ORDER, *RESERVED, 7])
def test_an_option_has_a_name_of_its_own(name: Any) -> None:
    """The engine reads such memories: `edges` would stop a switch of phases, and `virtual-time` has the time."""
    taken = type("Taken", (Option,), {"name": name})
    with pytest.raises(InputError, match=f"must be .* whose `name` is a text .* and its name is {name!r}; set another"):
        PLAIN.having(taken())
    replaced = type("Replaced", (Attack,), {"name": name})
    with nullcontext() if name == "attack" else pytest.raises(InputError, match=f"and its name is {name!r}; set"):
        PLAIN.having(replaced())


def test_a_subclass_of_local_is_refused() -> None:
    with pytest.raises(InputError, match=r"must be a Local and no subclass.*write Local\(method=...\)"):
        fedavg(Participation(), type("Stepping", (Local,), {})())


def test_samplers_are_given_to_the_schedule() -> None:
    for sampler in (Importance(), Oort(), PowerOfChoice(10)):
        with pytest.raises(InputError, match=rf"write Participation\(by={type(sampler).__name__}"):
            PLAIN.having(sampler)


@pytest.mark.parametrize(
    ("round_of", "text"),
    [
        (lambda state, algorithm, fleet, *, last, meanwhile: state, "must take .*a required .*argument: 'meanwhile'"),
        (lambda state, algorithm, fleet, *, last: state, "must return a PendingRound, and returns a State"),
        (lambda state, algorithm, fleet, *, last: None, "must return a PendingRound, and returns a NoneType"),
        (lambda state, algorithm, fleet, *, last: PendingRound(lambda: state), "and returns a State without a report"),
        (lambda state, algorithm, fleet, *, last: PendingRound(lambda: None), "its report, and returns a NoneType"),
    ],
)
def test_a_round_of_ones_own_is_checked(federation: Federation, round_of: Any, text: str) -> None:
    with pytest.raises(InputError, match=f"own_round = tests.*: .*{text}"):
        one_round(federation, replace(PLAIN, own_round=round_of))
    assert one_round(federation, replace(PLAIN, own_round=start_synchronous)).round == 1


def test_a_round_of_ones_own_counts_itself(federation: Federation) -> None:
    """Otherwise a run would go on for ever."""

    def stays(state: Any, algorithm: Any, fleet: Any, *, last: bool) -> PendingRound:
        pending = start_synchronous(state, algorithm, fleet, last=last)
        return PendingRound(lambda: replace(pending.finish(), round=state.round))

    with pytest.raises(InputError, match="a State after round 1 and its report, and returns a State after round 0"):
        one_round(federation, replace(PLAIN, own_round=stays))


@pytest.mark.parametrize("algorithm", [PLAIN, fedbuff(Participation(), Local(lr=0.1, batch_size=4), buffer=2)])
def test_a_round_is_finished_once(federation: Federation, algorithm: Any) -> None:
    fleet = federation(clients((9, 5, 7)), perceptron())
    pending = start_round(begin(perceptron(), fleet, 0), algorithm, fleet)
    assert pending.finish().round == 1
    with pytest.raises(RuntimeError, match="the round is finished already"):
        pending.finish()


@pytest.mark.parametrize("name", ["samples", "change", "staleness"])
def test_an_update_of_ones_own_reports_no_name_of_ours(federation: Federation, name: str) -> None:
    def train(model: Any, batches: Any, context: Any) -> dict[str, float]:
        return {"loss": 0.5, name: 1.0}

    update = OwnUpdate("mine:train", train)
    fleet = federation(clients((9, 5, 7)), perceptron())
    fleet._worker = replace(fleet._worker, trainer=Own(fleet._worker.resident, update))
    with pytest.raises(InputError, match=f"local.update returns '{name}', which every report has"):
        next_round(begin(perceptron(), fleet, 0), fedavg(Participation(), Local(update=update)), fleet)
