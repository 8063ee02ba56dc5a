"""Federated algorithms as values made of five parts, and the engine that runs them on any fleet."""

from algorithms.centralized import centralized
from algorithms.engine.batch_norm import freeze
from algorithms.engine.client_update import ClientInput, ClientUpdates
from algorithms.engine.clients import Census, ClientData
from algorithms.engine.devices import Devices
from algorithms.engine.entries import Entry, Kind
from algorithms.engine.errors import DivergedError, InputError
from algorithms.engine.fleet import Block, Fleet, Function, Outcome, Output, Worker
from algorithms.engine.global_model import aggregated_model, current_model
from algorithms.engine.keys import Purpose, generator, torch_seed
from algorithms.engine.layout import Layout, Packed
from algorithms.engine.layouts import Layouts
from algorithms.engine.personal import Location, PersonalLedger, PersonalStore
from algorithms.engine.report import RoundReport
from algorithms.engine.resident import Resident
from algorithms.engine.rounds import next_round
from algorithms.engine.state import State, TravellingModel, begin
from algorithms.engine.sums import Sum
from algorithms.fedasync import fedasync
from algorithms.fedavg import fedavg
from algorithms.fedbn import fedbn, singleset
from algorithms.fedbs import fedbs
from algorithms.fedmmb import fedmmb, fedsmb
from algorithms.fedopt import fedadagrad, fedadam, fedyogi
from algorithms.fedprox import fedprox
from algorithms.fedtan import fedtan
from algorithms.fixbn import fixbn
from algorithms.parts.adaptive import Adagrad, Adam, Adaptive, Yogi
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.arrivals import Arrivals, Concurrent, Drawn, matching, parallelism
from algorithms.parts.compute import Compute
from algorithms.parts.importance import Importance
from algorithms.parts.local import Local
from algorithms.parts.phases import phases
from algorithms.parts.rules import AfterRound, LossAgreement, Rule, SteadyStatistics
from algorithms.parts.schedule import Rounds, Sample, Schedule
from algorithms.parts.server import Assign, Memory, Mix, Server
from algorithms.parts.sharing import Sharing
from algorithms.parts.staleness import Hinge, Polynomial, WeightedMix
from algorithms.parts.weighting import ClientLoss, Equal, Samples, SamplesUsed, Weighting
from algorithms.radfed import radfed, radfeda, radfedi, radfedm, radfedp
from algorithms.scaffold import scaffold
from algorithms.silobn import silobn
from algorithms.staticbn import static_bn
from algorithms.training.augment import Augment, Augmented
from algorithms.training.chain import AffineTerm, Chain, LocalSteps
from algorithms.training.choose import choose, lanes_of, low_rank_trainer, trainer
from algorithms.training.work import Trainer, Work

__all__ = [
    "Adagrad",
    "Adam",
    "Adaptive",
    "AffineTerm",
    "AfterRound",
    "Algorithm",
    "Arrivals",
    "Assign",
    "Augment",
    "Augmented",
    "Block",
    "Census",
    "Chain",
    "ClientData",
    "ClientInput",
    "ClientLoss",
    "ClientUpdates",
    "Compute",
    "Concurrent",
    "Devices",
    "DivergedError",
    "Drawn",
    "Entry",
    "Equal",
    "Fleet",
    "Function",
    "Hinge",
    "Importance",
    "InputError",
    "Kind",
    "Layout",
    "Layouts",
    "Local",
    "LocalSteps",
    "Location",
    "LossAgreement",
    "Memory",
    "Mix",
    "Outcome",
    "Output",
    "Packed",
    "PersonalLedger",
    "PersonalStore",
    "Polynomial",
    "Purpose",
    "Resident",
    "RoundReport",
    "Rounds",
    "Rule",
    "Sample",
    "Samples",
    "SamplesUsed",
    "Schedule",
    "Server",
    "Sharing",
    "State",
    "SteadyStatistics",
    "Sum",
    "Trainer",
    "TravellingModel",
    "WeightedMix",
    "Weighting",
    "Work",
    "Worker",
    "Yogi",
    "aggregated_model",
    "begin",
    "centralized",
    "choose",
    "current_model",
    "fedadagrad",
    "fedadam",
    "fedasync",
    "fedavg",
    "fedbn",
    "fedbs",
    "fedmmb",
    "fedprox",
    "fedsmb",
    "fedtan",
    "fedyogi",
    "fixbn",
    "freeze",
    "generator",
    "lanes_of",
    "low_rank_trainer",
    "matching",
    "next_round",
    "parallelism",
    "phases",
    "radfed",
    "radfeda",
    "radfedi",
    "radfedm",
    "radfedp",
    "scaffold",
    "silobn",
    "singleset",
    "static_bn",
    "torch_seed",
    "trainer",
]
