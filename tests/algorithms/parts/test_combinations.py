"""Every pair of parts that makes no sense is refused, with the pair and the remedy."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from algorithms import (
    Adam,
    Algorithm,
    Arrivals,
    ClientLoss,
    Compute,
    Equal,
    Importance,
    InputError,
    Layout,
    Local,
    Mix,
    Participation,
    Rounds,
    Samples,
    SamplesUsed,
    Sharing,
    WeightedMix,
    centralized,
    fedadam,
    fedasync,
    fedavg,
    fedbn,
    fedbs,
    fedmmb,
    fedtan,
    fixbn,
    phases,
    radfed,
    radfedi,
    scaffold,
    silobn,
    singleset,
    static_bn,
)
from algorithms.core.report import Report
from tests.kit.federation import perceptron

LOCAL = Local()
EVERY = Participation()
PERSONAL = Sharing(affine="personal", statistics="personal")


@dataclass(frozen=True)
class Unnamed:
    """Reads what it does not name."""

    def __call__(self, report: Report) -> float:
        return report["loss_after"]


def on_plain_model(algorithm: Algorithm) -> object:
    return algorithm.divide(Layout.of(perceptron()))


PARTS: dict[str, tuple[Callable[[], object], str]] = {
    "a slot without a use": (
        lambda: Algorithm(Rounds(), LOCAL, Sharing(slots={"momentum": "personal"})),
        "sharing.slots = 'momentum' .* set local.momentum = 0.9",
    ),
    "the client's size for a model of many": (
        lambda: Algorithm(Rounds(aggregate_every=2), LOCAL, weighting=Samples()),
        r"weighting = .samples. with aggregate_every = 2: .* set algorithm.weighting = .equal.",
    ),
    "the samples used for a model of many": (
        lambda: Algorithm(Rounds(aggregate_every=2), LOCAL, weighting=SamplesUsed()),
        r"weighting = SamplesUsed\(\) with aggregate_every = 2",
    ),
    "redistribution of nothing": (
        lambda: Algorithm(Rounds(aggregate_every=2), LOCAL, Sharing(weights="personal"), Equal()),
        "sharing.weights = .personal. with aggregate_every = 2: .* use aggregate_every = 1",
    ),
    "a server without models": (
        lambda: Algorithm(Rounds(), LOCAL, Sharing(weights="personal"), Equal(), Mix(0.5)),
        r"server = Mix\(alpha=0.5\) with sharing.weights = .personal.",
    ),
    "arrivals in rounds": (
        lambda: Algorithm(Arrivals(), LOCAL),
        "without own_round: .* own_round = start_arrivals",
    ),
    "personal entries out of order": (
        lambda: replace(fedasync(EVERY, LOCAL), sharing=PERSONAL),
        "personal affine, statistics with asynchronous arrivals: must be shared",
    ),
    "rotating batches out of order": (
        lambda: fedasync(EVERY, Local(batches=2)),
        "personal batches with asynchronous arrivals: .* in place of local.batches",
    ),
    "weights above one": (
        lambda: replace(fedasync(EVERY, LOCAL), weighting=ClientLoss()),
        "'weighted-mix' with weighting = ClientLoss.* set server.rule = .mix.",
    ),
    "a weighted mix of a round's mean": (
        lambda: fedavg(EVERY, LOCAL, WeightedMix(0.5)),
        "'weighted-mix' with synchronous rounds",
    ),
    "personal statistics that never change": (
        lambda: fedbn(EVERY, Local(statistics="untracked")),
        "local.statistics = .untracked. with sharing.statistics = .personal.",
    ),
    "initial statistics in a report": (
        lambda: fedbs(EVERY, Local(statistics="untracked"), loss="after"),
        "local.statistics = .untracked. with a part that needs .loss_after.",
    ),
    "a need that is not named": (
        lambda: Algorithm(Rounds(), LOCAL, weighting=Unnamed()),
        r"weighting = Unnamed\(\): must read only .* and reads 'loss_after'; name it there",
    ),
    "nothing to freeze": (
        lambda: fixbn(EVERY, Local(statistics="untracked")),
        "local.statistics = .untracked. with a later phase that freezes them",
    ),
}
"""Pairs that `algorithms.parts.combinations` refuses."""

OTHERS: dict[str, tuple[Callable[[], object], str]] = {
    "another server for an adaptive algorithm": (
        lambda: fedadam(EVERY, LOCAL, Mix(0.5)),
        "server.rule = .*: must be 'adam' for fedadam",
    ),
    "a server for clients alone": (lambda: singleset(EVERY, LOCAL, Adam()), "must be 'assign' if nothing travels"),
    "phases that share differently": (
        lambda: phases(fedavg(EVERY, LOCAL), (2, fedbn(EVERY, LOCAL))),
        "sharing = .* in a later phase",
    ),
    "phases computed in two ways": (
        lambda: phases(fedavg(EVERY, LOCAL), (2, fedavg(EVERY, Local(compute=Compute("vectorised"))))),
        "local.compute = .* in a later phase",
    ),
    "two lengths of a client update": (lambda: fedmmb(EVERY, Local(steps=3)), "must be left out for fedmmb"),
    "a part of the clients, united": (
        lambda: centralized(Participation(fraction=0.5), LOCAL),
        "must be 1 for united data",
    ),
    "Poisson sampling with redistribution": (
        lambda: radfed(Participation(0.5, by="poisson"), LOCAL),
        'aggregate_every = 15 with algorithm.sampling = "poisson": must be 1',
    ),
    "Poisson sampling of a number": (
        lambda: fedavg(Participation(cohort=3, by="poisson"), LOCAL),
        'algorithm.cohort = 3 with algorithm.sampling = "poisson": must be left out',
    ),
    "Poisson sampling with a fixed share": (
        lambda: scaffold(Participation(0.5, by="poisson"), LOCAL),
        "algorithm.sampling = 'poisson': must be \"uniform\" for scaffold",
    ),
    "a cohort of no fixed share": (lambda: scaffold(Participation(active=0.5), LOCAL), "1.0 for scaffold"),
    "clients that are not there, united": (
        lambda: centralized(Participation(active=0.5), LOCAL),
        "algorithm.active, algorithm.sampling = .*: must be left out for united data",
    ),
    "momentum in a common step": (lambda: fedtan(EVERY, Local(momentum=0.9)), "local.momentum = 0.9: must be 0.0"),
    "rotating batches in a common step": (lambda: fedtan(EVERY, Local(batches=2)), "local.batches = 2"),
    "importance in a common step": (
        lambda: fedtan(Participation(by=Importance()), LOCAL),
        "algorithm.sampling = .*: must be 'uniform' or 'size' for fedtan",
    ),
    "two ways to draw": (lambda: radfedi(Participation(by="size"), LOCAL), "left out for radfedi"),
    "importance with asynchronous arrivals": (
        lambda: fedasync(Participation(by=Importance()), LOCAL),
        'with asynchronous arrivals: must be "uniform"',
    ),
    "inactive clients with asynchronous arrivals": (
        lambda: fedasync(Participation(active=0.5), LOCAL),
        "algorithm.active = 0.5: must be 1.0 with asynchronous arrivals",
    ),
    "two delays": (lambda: fedasync(EVERY, LOCAL, concurrency=2, max_staleness=3), "must be one of them"),
    "momentum that is not there": (
        lambda: fedavg(EVERY, LOCAL, maintained_momentum="global"),
        "set local.momentum = 0.9, or leave",
    ),
    "a statistic of one's own that is shared": (lambda: Sharing(outsider="own"), "algorithm.outsider = 'own'"),
    "personal batch norm that the model lacks": (
        lambda: on_plain_model(fedbn(EVERY, LOCAL)),
        "set model.norm = .batch.",
    ),
    "personal statistics that the model lacks": (lambda: on_plain_model(silobn(EVERY, LOCAL)), "set model.norm"),
    "fixed statistics that the model has not": (lambda: on_plain_model(fixbn(EVERY, LOCAL)), "set model.norm"),
    "static statistics that the model has not": (lambda: on_plain_model(static_bn(EVERY, LOCAL)), "set model.norm"),
    "common statistics that the model has not": (lambda: on_plain_model(fedtan(EVERY, LOCAL)), "set model.norm"),
}


@pytest.mark.parametrize("name", [*PARTS, *OTHERS])
def test_what_makes_no_sense_is_refused(name: str) -> None:
    make, message = (PARTS | OTHERS)[name]
    with pytest.raises(InputError, match=message) as refused:
        make()
    text = str(refused.value)
    assert "\n" not in text and "must " in text and ";" in text


def test_what_makes_sense_is_not() -> None:
    assert fixbn(EVERY, Local(momentum=0.9), maintained_momentum="local").sharing.stays == ("momentum",)
    assert radfed(EVERY, Local(batches=2), Adam(), aggregate_every=3).sharing.slots == {"batches": "personal"}
    assert fedasync(EVERY, LOCAL).schedule == Arrivals()
