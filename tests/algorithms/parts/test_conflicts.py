"""Each pair of the table of conflicts is refused, with both settings, the reason and the remedy."""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from algorithms import (
    Algorithm,
    Attack,
    Availability,
    BatchStatistics,
    ClientLoss,
    DeviceTable,
    Divergence,
    Downlink,
    Edges,
    Equal,
    Importance,
    InputError,
    Krum,
    Local,
    LossAgreement,
    Mix,
    Option,
    Participation,
    PowerOfChoice,
    Privacy,
    Robust,
    Rounds,
    Samples,
    Sharing,
    Sizes,
    TopK,
    Topology,
    Uplink,
    WeightedMix,
    centralized,
    dpsgd,
    fedasync,
    fedavg,
    fedbuff,
    fedtan,
    ifca,
    phases,
    q_fedavg,
)
from algorithms.names import CONFLICTS
from algorithms.options.oort import Oort
from algorithms.options.own_selection import OwnSelection
from algorithms.parts.option import Conflict, Draft
from algorithms.parts.schedule import Reporting
from algorithms.parts.settings import SETTINGS
from algorithms.rounds.timed import check_virtual_time

LOCAL, EVERY = Local(), Participation()
UNTRACKED = Local(statistics="untracked")
RULE = q_fedavg(EVERY, LOCAL)
NIGHT = DeviceTable(
    *(np.zeros(1, np.int64), np.ones(1), np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1, np.int64), ("phone",)),
    Availability(np.array([0, 1]), np.zeros(1), np.ones(1), np.full(1, 10.0)),
)


@dataclass(frozen=True)
class Traced(Option):
    """Option of a user, who changes the client updates of plain rounds."""

    name: ClassVar[str] = "traced"

    def wrap(self, draft: Draft, updates: Any) -> Any:
        return updates


@dataclass(frozen=True)
class Everywhere(Traced):
    """`Traced` that claims to work in all rounds."""

    in_own_rounds: ClassVar[bool] = True


CHANGES: dict[str, dict[str, Any]] = {
    "aggregate_every > 1": {"aggregate_every": 2},
    'sampling = "poisson"': {"by": "poisson", "fraction": 0.5},
    'sampling other than "poisson"': {"by": "uniform"},
    "active < 1": {"active": 0.5},
    "weights by samples": {"weighting": Samples()},
    "weights that are not equal": {"weighting": Samples()},
    "weights by reports": {"weighting": ClientLoss()},
    "weights that stay with the clients": {"weights": "personal"},
    "personal batch-norm statistics": {"statistics": "personal"},
    "personal state": {"statistics": "personal"},
    'newcomer = "average"': {"statistics": "personal", "newcomer": "average"},
    "server rule": {"server": Mix(0.5)},
    "server rule that reads reports": {"server": RULE.server},
    "phase by reports": {
        "until": LossAgreement(0.1, 2),
        "then": replace(fedavg(Participation(0.5, by="poisson"), LOCAL), weighting=Equal()),
    },
    "later phase that freezes statistics": {
        "until": LossAgreement(0.1, 2),
        "then": fedavg(EVERY, Local(statistics="frozen")),
    },
    'local.steps = "largest"': {"local": Local(steps="largest")},
    'local.statistics = "untracked"': {"local": UNTRACKED},
    "losses measured after an update": {"by": Importance()},
    "candidates": {"by": PowerOfChoice(2), "cohort": 1},
    "oort": {"by": Oort()},
    "own-selection": {"by": OwnSelection("mine:rule", lambda context: context.clients)},
    'start = "score"': {"by": Importance()},
    "attack": {"options": (Attack(0.1, "sign-flip"),)},
    "colluding attack": {"options": (Attack(0.1, "little-is-enough"),)},
    "robust rule": {"options": (Robust(Krum(1)),)},
    "option that looks at single models": {"options": (Robust(Krum(1)),)},
    "uplink": {"options": (Uplink((TopK(0.1),)),)},
    "uplink.feedback": {"options": (Uplink((TopK(0.1),), feedback=True),)},
    "another round function": {"own_round": ifca(EVERY, LOCAL).own_round},
    "edges": {"options": (Edges(),)},
    "models of many sizes": {"options": (Sizes(),)},
    "dl": {"options": (Divergence(),)},
    "bn": {"options": (BatchStatistics(),)},
    "downlink": {"options": (Downlink((TopK(0.1),)),)},
    "privacy": {"options": (Privacy(1.0, 0.1),)},
    'late = "stale"': {"deadline": 1.0, "late": "stale"},
    "over > 1": {"over": 1.5},
    "weighted-mix": {"server": WeightedMix(0.5)},
    "server rule of the mean alone": {"server": Mix(0.5)},
    "topology": {"options": (Topology(),)},
    "directed graph": {"options": (Topology(directed=True),)},
    "unequal shares": {"options": (Topology("erdos-renyi", probability=0.5, mixing="uniform"),)},
    "models for a server": {},
    "virtual time of the devices": {},
    "weights above one": {},
    "option of plain rounds": {"options": (Traced(),)},
    "option with work of its own": {"options": (Traced(),)},
    "option with a hook that arrivals leave out": {"options": (Everywhere(),)},
    "option with a hook that united data leave out": {"options": (Everywhere(),)},
    "own part that epsilon does not cover": {"options": (Traced(),)},
}
"""Arguments of a plain algorithm, and of the parts in `PARTS`, by which it has a setting."""

PARTS: dict[type, str] = {
    Reporting: "reporting",
    Participation: "participation",
    Rounds: "schedule",
    Sharing: "sharing",
}
"""Parts of which settings change single arguments, and the argument that takes each; the inner ones come first."""

WHOLE: dict[str, Callable[[], Algorithm]] = {
    "round function": lambda: fedasync(EVERY, LOCAL),
    "own rounds": lambda: fedtan(EVERY, LOCAL),
    "synchronous rounds of its own": lambda: fedtan(EVERY, LOCAL),
    "centralized": lambda: centralized(EVERY, LOCAL),
    "clusters": lambda: ifca(EVERY, LOCAL),
    "asynchronous arrivals": lambda: fedasync(EVERY, LOCAL),
    "buffer of arrivals": lambda: fedbuff(EVERY, LOCAL),
    "weights of single arrivals": lambda: fedasync(EVERY, LOCAL),
    "D-PSGD": lambda: dpsgd(EVERY, LOCAL),
    "max_staleness": lambda: fedasync(EVERY, LOCAL, max_staleness=3),
}
"""Algorithms that have a setting, of themselves."""


def refused(conflict: Conflict) -> None:
    """Build an algorithm with both settings of a conflict."""
    one, other = conflict.one, conflict.other
    plain = WHOLE[other]() if other in WHOLE else WHOLE[one]() if one in WHOLE else fedavg(EVERY, LOCAL)
    plain = plain if {one, other} & WHOLE.keys() else replace(plain, weighting=Equal())
    poisson = other == "privacy" and one not in ("aggregate_every > 1", "own rounds")
    keys: dict[str, Any] = {"by": "poisson", "fraction": 0.5} if poisson else {}
    options = [each for name in (one, other) for each in CHANGES.get(name, {}).get("options", ())]
    keys |= CHANGES.get(one, {}) | CHANGES.get(other, {})
    keys.pop("options", None)
    for part, argument in PARTS.items():
        if given := {field.name: keys.pop(field.name) for field in fields(part) if field.name in keys}:
            keys[argument] = part(**given)
    algorithm = replace(plain, **keys).having(*options)
    check_virtual_time(algorithm, NIGHT if one == "virtual time of the devices" else None)


@pytest.mark.parametrize("conflict", CONFLICTS, ids=lambda conflict: f"{conflict.one}, {conflict.other}")
def test_a_pair_is_refused(conflict: Conflict) -> None:
    with pytest.raises(InputError) as error:
        refused(conflict)
    text = re.escape(f"{conflict.must}; {conflict.remedy}")
    assert re.fullmatch(rf"[^\n]+ with [^\n]+: must {text}", str(error.value))


UPLINK = Uplink((TopK(0.1),))
LEFT_OUT = ("be left out, to see", "remove it")


def own(**declared: Any) -> Option:
    """Return an option of a user that declares something; its class ends with the test."""
    return type("Own", (Option,), {"name": "own", **declared})()


def test_an_option_of_a_user_has_conflicts_of_its_own() -> None:
    refusing = own(conflicts=(Conflict("own", "uplink", *LEFT_OUT),))
    with pytest.raises(InputError, match=r"option .*Own.* with uplink = .*: must be left out, to see; remove it"):
        fedavg(EVERY, LOCAL).having(refusing, UPLINK)
    fedavg(EVERY, LOCAL).having(refusing)


def test_a_setting_of_a_user_reads_other_parts() -> None:
    def fast(parts: Algorithm, devices: object) -> str:
        return f"local.lr = {parts.local.lr}" if parts.local.lr > 1 else ""

    reading = own(settings={"fast": fast}, conflicts=(Conflict("fast", "uplink", *LEFT_OUT),))
    with pytest.raises(InputError, match=r"local.lr = 2.0 with uplink = .*: must be left out, to see; remove it"):
        fedavg(EVERY, Local(lr=2.0)).having(reading, UPLINK)
    fedavg(EVERY, LOCAL).having(reading, UPLINK)


def test_only_hooks_that_such_rounds_call_go_with_them() -> None:
    def hook(self: Option, draft: Draft, *given: Any) -> Any:
        return given[-1] if given else draft

    everywhere = {"in_own_rounds": True}
    fedasync(EVERY, LOCAL).having(own(wrap=hook, on_the_way=True, **everywhere))
    centralized(EVERY, LOCAL).having(own(publish=hook, **everywhere))
    fedasync(EVERY, LOCAL).having(type("OwnUplink", (Uplink,), {})((TopK(0.1),)))
    for algorithm, name in ((fedasync, "publish"), (fedasync, "attend"), (centralized, "reduce")):
        with pytest.raises(InputError, match=rf"option .*Own.* with `{name}` with .*: must have no hook but"):
            algorithm(EVERY, LOCAL).having(own(**{name: hook}, on_the_way=True, **everywhere))


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ({"conflicts": ("own", "uplink")}, r"its `conflicts` must be a tuple of Conflict.* each a text, and has 'own'"),
        ({"conflicts": "own"}, r"its `conflicts` must be a tuple of Conflict.*, and has 'own'; correct it"),
        ({"conflicts": (("own", "uplink", "x"),)}, r"`conflicts` must .* has \('own', 'uplink', 'x'\); correct it"),
        (
            {"conflicts": (Conflict("own", "uplnk", "x", "y"),)},
            "`conflicts` names 'uplnk': must .*; did you mean 'uplink'",
        ),
        (
            {"conflicts": (Conflict("onw", "uplink", "x", "y"),)},
            "its `conflicts` names 'onw': must be .* did you mean 'own'",
        ),
        ({"settings": "own"}, "its `settings` must be texts by name, and are 'own'; correct it"),
        ({"settings": {"own": 3}}, "its `settings` must be texts, or functions .*, and 'own' is 3; correct it"),
        ({"settings": {"colluding attak": "x"}}, "`settings` names 'colluding attak': must .* mean 'colluding attack'"),
        (
            {"columns": "epsilon"},
            "its `columns` must be a tuple of names such as .*, and is 'epsilon'; correct it",
        ),
        ({"columns": (7,)}, r"Own: its `columns` must be a tuple of names .*, and is \(7,\); correct it"),
        ({"slots": "moment"}, "Own: its `slots` must be a tuple of names such as .*, and is 'moment'; correct it"),
        ({"needs": "loss"}, "Own: its `needs` must be a tuple of names such as .*, and is 'loss'; correct it"),
    ],
)
def test_a_wrong_declaration_of_a_user_is_refused(declared: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text) as refused:
        fedavg(EVERY, LOCAL).having(own(**declared))
    assert "\n" not in str(refused.value)


def test_two_options_of_one_name_are_refused() -> None:
    class Mine(Option):
        pass

    with pytest.raises(InputError, match="of the name 'option': must have names of their own"):
        fedavg(EVERY, LOCAL).having(Mine(), Mine())
    assert len(fedavg(EVERY, LOCAL).having(Mine()).having(Mine()).options) == 1  # the second replaces the first


def test_options_are_the_same_in_all_phases() -> None:
    private, plain = (replace(fedavg(Participation(0.5, by="poisson"), LOCAL), weighting=Equal()) for _ in range(2))
    private = private.having(Privacy(1.0, 0.1))
    with pytest.raises(InputError, match="must be the same in all phases"):
        phases(private, (2, plain))
    assert all(each.option(Privacy) for each in phases(plain, (2, plain)).having(Privacy(1.0, 0.1)).phases)


def test_every_setting_is_of_a_pair() -> None:
    named = {name for each in CONFLICTS for name in (each.one, each.other)}
    assert set(SETTINGS) <= named <= {*SETTINGS, *CHANGES, *WHOLE}
    assert named <= {*CHANGES, *WHOLE}
    assert len({(each.one, each.other) for each in CONFLICTS}) == len(CONFLICTS)
