"""Each pair of the table of conflicts is refused, with both settings, the reason and the remedy."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from algorithms import (
    Algorithm,
    Attack,
    Availability,
    ClientLoss,
    DeviceTable,
    Downlink,
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
    TopK,
    Uplink,
    WeightedMix,
    centralized,
    fedasync,
    fedavg,
    fedbuff,
    fedtan,
    phases,
    q_fedavg,
)
from algorithms.names import CONFLICTS
from algorithms.options.oort import Oort
from algorithms.parts.option import Conflict, Draft
from algorithms.parts.reporting import Reporting
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


def drawn(by: object = "uniform", **keys: Any) -> dict[str, Any]:
    return {"schedule": Rounds(Participation(by=by, **keys))}  # type: ignore[arg-type]


def late(**keys: Any) -> dict[str, Any]:
    return {"schedule": Rounds(Participation(reporting=Reporting(deadline=1.0, late="stale")), **keys)}


CHANGES: dict[str, dict[str, Any]] = {
    "aggregate_every > 1": {"schedule": Rounds(aggregate_every=2)},
    'sampling = "poisson"': drawn("poisson", fraction=0.5),
    'sampling other than "poisson"': drawn(),
    "active < 1": drawn(active=0.5),
    "weights by samples": {"weighting": Samples()},
    "weights that are not equal": {"weighting": Samples()},
    "weights by reports": {"weighting": ClientLoss()},
    "weights that stay with the clients": {"sharing": Sharing(weights="personal")},
    "personal batch-norm statistics": {"sharing": Sharing(statistics="personal")},
    'newcomer = "average"': {"sharing": Sharing(statistics="personal", newcomer="average")},
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
    "losses measured after an update": drawn(Importance()),
    "candidates": drawn(PowerOfChoice(2), cohort=1),
    "oort": drawn(Oort()),
    'start = "score"': drawn(Importance()),
    "attack": {"options": (Attack(0.1, "sign-flip"),)},
    "colluding attack": {"options": (Attack(0.1, "little-is-enough"),)},
    "robust rule": {"options": (Robust(Krum(1)),)},
    "option that looks at single models": {"options": (Robust(Krum(1)),)},
    "uplink": {"options": (Uplink((TopK(0.1),)),)},
    "uplink.feedback": {"options": (Uplink((TopK(0.1),), feedback=True),)},
    "downlink": {"options": (Downlink((TopK(0.1),)),)},
    "privacy": {"options": (Privacy(1.0, 0.1),)},
    'late = "stale"': late(),
    "over > 1": drawn(reporting=Reporting(over=1.5)),
    "weighted-mix": {"server": WeightedMix(0.5)},
    "virtual time of the devices": {},
    "weights above one": {},
    "option of plain rounds": {"options": (Traced(),)},
    "option with work of its own": {"options": (Traced(),)},
}
"""Changes of a plain algorithm by which it has a setting."""

WHOLE: dict[str, Callable[[], Algorithm]] = {
    "round function": lambda: fedasync(EVERY, LOCAL),
    "own rounds": lambda: fedtan(EVERY, LOCAL),
    "synchronous rounds of its own": lambda: fedtan(EVERY, LOCAL),
    "centralized": lambda: centralized(EVERY, LOCAL),
    "asynchronous arrivals": lambda: fedasync(EVERY, LOCAL),
    "buffer of arrivals": lambda: fedbuff(EVERY, LOCAL),
    "max_staleness": lambda: fedasync(EVERY, LOCAL, max_staleness=3),
}
"""Algorithms that have a setting, of themselves."""

BOTH: dict[tuple[str, str], dict[str, Any]] = {
    ("aggregate_every > 1", 'sampling = "poisson"'): {"schedule": Rounds(Participation(0.5, by="poisson"), 2)},
    ("aggregate_every > 1", "candidates"): {"schedule": Rounds(Participation(by=PowerOfChoice(2), cohort=1), 2)},
    ("oort", "active < 1"): drawn(Oort(), active=0.5),
    ("oort", "aggregate_every > 1"): {"schedule": Rounds(Participation(by=Oort()), 2)},
    ("over > 1", 'sampling = "poisson"'): drawn("poisson", fraction=0.5, reporting=Reporting(over=1.5)),
    ("over > 1", "aggregate_every > 1"): {"schedule": Rounds(Participation(reporting=Reporting(over=1.5)), 2)},
    ('late = "stale"', "aggregate_every > 1"): late(aggregate_every=2),
    ("active < 1", "privacy"): {
        **drawn("poisson", fraction=0.5, active=0.5),
        "options": (Privacy(1.0, 0.1),),
    },
    ("personal state", "asynchronous arrivals"): {"sharing": Sharing(statistics="personal")},
    ("colluding attack", "uplink"): {"options": (Attack(0.1, "little-is-enough"), Uplink((TopK(0.1),)))},
    ("option that looks at single models", "privacy"): {"options": (Robust(Krum(1)), Privacy(1.0, 0.1))},
}
"""Changes of both settings of a pair at once, because both are of one part."""


def refused(conflict: Conflict) -> None:
    """Build an algorithm with both settings of a conflict."""
    one, other = conflict.one, conflict.other
    plain = WHOLE[other]() if other in WHOLE else WHOLE[one]() if one in WHOLE else fedavg(EVERY, LOCAL)
    plain = plain if {one, other} & WHOLE.keys() else replace(plain, weighting=Equal())
    changes = {**CHANGES.get(one, {}), **CHANGES.get(other, {}), **BOTH.get((one, other), {})}
    private = other == "privacy" and one not in (
        "aggregate_every > 1",
        'sampling other than "poisson"',
        "own rounds",
        "active < 1",
    )
    options = changes.pop("options", ())
    algorithm = replace(plain, **{**(drawn("poisson", fraction=0.5) if private else {}), **changes}).having(*options)
    check_virtual_time(algorithm, NIGHT if one == "virtual time of the devices" else None)


@pytest.mark.parametrize("conflict", CONFLICTS, ids=lambda conflict: f"{conflict.one}, {conflict.other}")
def test_a_pair_is_refused(conflict: Conflict) -> None:
    with pytest.raises(InputError) as error:
        refused(conflict)
    text = re.escape(f"{conflict.must}; {conflict.remedy}")
    assert re.fullmatch(rf"[^\n]+ with [^\n]+: must {text}", str(error.value))


def test_an_option_of_a_user_has_conflicts_of_its_own() -> None:
    class Own(Option):
        name: ClassVar[str] = "own"
        conflicts: ClassVar[tuple[Conflict, ...]] = (Conflict("own", "uplink", "be left out, to see", "remove it"),)

    with pytest.raises(InputError, match=r"option .*Own.* with uplink = .*: must be left out, to see; remove it"):
        fedavg(EVERY, LOCAL).having(Own(), Uplink((TopK(0.1),)))


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
    assert set(SETTINGS) <= named <= {*SETTINGS, *CHANGES}
    assert len({(each.one, each.other) for each in CONFLICTS}) == len(CONFLICTS)
