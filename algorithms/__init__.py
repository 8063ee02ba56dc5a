"""Federated algorithms as values made of parts and options, and the engine that runs them on any fleet."""

from pkgutil import resolve_name
from typing import TYPE_CHECKING

from algorithms.apfl import apfl
from algorithms.centralized import centralized
from algorithms.core.batch_norm import freeze
from algorithms.core.clients import Census, ClientData
from algorithms.core.devices import Availability, Devices, DeviceTable, DrawnDevices
from algorithms.core.entries import Entry, Kind
from algorithms.core.errors import DamagedError, DivergedError, InputError
from algorithms.core.keys import Purpose, generator, torch_seed
from algorithms.core.layout import Layout, Layouts, Memory, Packed
from algorithms.core.personal import Location, PersonalLedger, PersonalStore
from algorithms.core.report import RoundReport
from algorithms.core.sums import Sum
from algorithms.ditto import ditto
from algorithms.dpsgd import dpsgd
from algorithms.fedasync import fedasync
from algorithms.fedavg import fedavg
from algorithms.fedavgm import fedavgm
from algorithms.fedbabu import fedbabu
from algorithms.fedbn import fedbn, singleset
from algorithms.fedbs import fedbs
from algorithms.fedbuff import fedbuff
from algorithms.feddyn import feddyn
from algorithms.fedmmb import fedmmb, fedsmb
from algorithms.fednova import fednova
from algorithms.fedopt import fedadagrad, fedadam, fedyogi
from algorithms.fedper import fedper
from algorithms.fedprox import fedprox
from algorithms.fedrep import fedrep
from algorithms.fedtan import fedtan
from algorithms.fixbn import fixbn
from algorithms.fjord import fjord
from algorithms.heterofl import Sizes, heterofl
from algorithms.hierfavg import Edges, hierfavg
from algorithms.ifca import ifca
from algorithms.lgfedavg import lg_fedavg
from algorithms.moon import moon
from algorithms.options.aggregation import GeometricMedian, Krum, Mean, Median, MultiKrum, TrimmedMean
from algorithms.options.attack import Attack
from algorithms.options.choice import PowerOfChoice
from algorithms.options.downlink import Downlink
from algorithms.options.importance import Importance
from algorithms.options.own_selection import OwnSelection, SelectionContext
from algorithms.options.privacy import AdaptiveClip, Privacy
from algorithms.options.robust import Robust
from algorithms.options.stages import Changes, Clip, Message, Noise, Quantise, RandomK, Sign, Stage, TopK
from algorithms.options.topology import Topology
from algorithms.options.uplink import Uplink
from algorithms.parts.adaptive import Adagrad, Adam, Adaptive, Yogi
from algorithms.parts.algorithm import Algorithm, phases
from algorithms.parts.arrivals import Arrivals, Concurrent, Drawn, matching, parallelism
from algorithms.parts.clustered import ChoiceContext, OwnChoice
from algorithms.parts.option import Conflict, Draft, Option
from algorithms.parts.received import Received
from algorithms.parts.rules import AfterRound, LossAgreement, Rule, SteadyStatistics
from algorithms.parts.schedule import Participation, Rounds, Schedule
from algorithms.parts.server import Assign, Mix, Momentum, Server, Stretched, WeightedMix
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import ClientLoss, Equal, Hinge, Polynomial, Samples, SamplesUsed, Weighting
from algorithms.perfedavg import per_fedavg
from algorithms.pfedme import pfedme
from algorithms.qfedavg import q_fedavg
from algorithms.radfed import radfed, radfeda, radfedi, radfedm, radfedp
from algorithms.scaffold import scaffold
from algorithms.sgp import sgp
from algorithms.silobn import silobn
from algorithms.staticbn import static_bn
from algorithms.training.local import Compute, Local
from algorithms.training.method import Method
from algorithms.training.terms import AffineTerm, pull

if TYPE_CHECKING:
    from algorithms.core.fleet import Block, Fleet, Function, Outcome, Output
    from algorithms.core.state import State, TravellingModel, begin
    from algorithms.options.measures import BatchStatistics, Divergence
    from algorithms.parts.client_update import ClientInput, ClientUpdates, Trained
    from algorithms.rounds.next_round import aggregated_model, current_model, next_round, start_round
    from algorithms.rounds.round import PendingRound, start_synchronous
    from algorithms.training.augment import Augment, Augmented
    from algorithms.training.choose import choose, lanes_of, low_rank_trainer, trainer, with_format
    from algorithms.training.resident import Resident
    from algorithms.training.steps import LocalSteps
    from algorithms.training.work import Trainer, Work
    from algorithms.training.worker import Worker

__all__ = [
    "Adagrad",
    "Adam",
    "Adaptive",
    "AdaptiveClip",
    "AffineTerm",
    "AfterRound",
    "Algorithm",
    "Arrivals",
    "Assign",
    "Attack",
    "Augment",
    "Augmented",
    "Availability",
    "BatchStatistics",
    "Block",
    "Census",
    "Changes",
    "ChoiceContext",
    "ClientData",
    "ClientInput",
    "ClientLoss",
    "ClientUpdates",
    "Clip",
    "Compute",
    "Concurrent",
    "Conflict",
    "DamagedError",
    "DeviceTable",
    "Devices",
    "DivergedError",
    "Divergence",
    "Downlink",
    "Draft",
    "Drawn",
    "DrawnDevices",
    "Edges",
    "Entry",
    "Equal",
    "Fleet",
    "Function",
    "GeometricMedian",
    "Hinge",
    "Importance",
    "InputError",
    "Kind",
    "Krum",
    "Layout",
    "Layouts",
    "Local",
    "LocalSteps",
    "Location",
    "LossAgreement",
    "Mean",
    "Median",
    "Memory",
    "Message",
    "Method",
    "Mix",
    "Momentum",
    "MultiKrum",
    "Noise",
    "Option",
    "Outcome",
    "Output",
    "OwnChoice",
    "OwnSelection",
    "Packed",
    "Participation",
    "PendingRound",
    "PersonalLedger",
    "PersonalStore",
    "Polynomial",
    "PowerOfChoice",
    "Privacy",
    "Purpose",
    "Quantise",
    "RandomK",
    "Received",
    "Resident",
    "Robust",
    "RoundReport",
    "Rounds",
    "Rule",
    "Samples",
    "SamplesUsed",
    "Schedule",
    "SelectionContext",
    "Server",
    "Sharing",
    "Sign",
    "Sizes",
    "Stage",
    "State",
    "SteadyStatistics",
    "Stretched",
    "Sum",
    "TopK",
    "Topology",
    "Trained",
    "Trainer",
    "TravellingModel",
    "TrimmedMean",
    "Uplink",
    "WeightedMix",
    "Weighting",
    "Work",
    "Worker",
    "Yogi",
    "aggregated_model",
    "apfl",
    "begin",
    "centralized",
    "choose",
    "current_model",
    "ditto",
    "dpsgd",
    "fedadagrad",
    "fedadam",
    "fedasync",
    "fedavg",
    "fedavgm",
    "fedbabu",
    "fedbn",
    "fedbs",
    "fedbuff",
    "feddyn",
    "fedmmb",
    "fednova",
    "fedper",
    "fedprox",
    "fedrep",
    "fedsmb",
    "fedtan",
    "fedyogi",
    "fixbn",
    "fjord",
    "freeze",
    "generator",
    "heterofl",
    "hierfavg",
    "ifca",
    "lanes_of",
    "lg_fedavg",
    "low_rank_trainer",
    "matching",
    "moon",
    "next_round",
    "parallelism",
    "per_fedavg",
    "pfedme",
    "phases",
    "pull",
    "q_fedavg",
    "radfed",
    "radfeda",
    "radfedi",
    "radfedm",
    "radfedp",
    "scaffold",
    "sgp",
    "silobn",
    "singleset",
    "start_round",
    "start_synchronous",
    "static_bn",
    "torch_seed",
    "trainer",
    "with_format",
]

# torch takes seconds to import, and an algorithm is described without it.
_MODULES = {
    **dict.fromkeys(("ClientInput", "ClientUpdates", "Trained"), "algorithms.parts.client_update"),
    **dict.fromkeys(("Block", "Fleet", "Function", "Outcome", "Output"), "algorithms.core.fleet"),
    "Worker": "algorithms.training.worker",
    **dict.fromkeys(("aggregated_model", "current_model"), "algorithms.rounds.next_round"),
    "Resident": "algorithms.training.resident",
    **dict.fromkeys(("next_round", "start_round"), "algorithms.rounds.next_round"),
    **dict.fromkeys(("PendingRound", "start_synchronous"), "algorithms.rounds.round"),
    **dict.fromkeys(("BatchStatistics", "Divergence"), "algorithms.options.measures"),
    **dict.fromkeys(("State", "TravellingModel", "begin"), "algorithms.core.state"),
    **dict.fromkeys(("Augment", "Augmented"), "algorithms.training.augment"),
    "LocalSteps": "algorithms.training.steps",
    **dict.fromkeys(("choose", "lanes_of", "low_rank_trainer", "trainer", "with_format"), "algorithms.training.choose"),
    **dict.fromkeys(("Trainer", "Work"), "algorithms.training.work"),
}


def _resolve(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'algorithms' has no attribute {name!r}")
    globals()[name] = found = resolve_name(f"{_MODULES[name]}:{name}")
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


if not TYPE_CHECKING:  # A type checker reads the imports above, and refuses other names.
    __getattr__ = _resolve
