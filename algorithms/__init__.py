"""Federated algorithms as values made of five parts, and the engine that runs them on any fleet."""

from algorithms.algorithm import Algorithm, Step, Switch
from algorithms.arrivals import Arrivals, Concurrent, Drawn, matching, parallelism
from algorithms.centralized import centralized
from algorithms.compute import Compute
from algorithms.devices import Devices
from algorithms.errors import DivergedError, InputError
from algorithms.fedasync import fedasync
from algorithms.fedavg import fedavg
from algorithms.fedbn import fedbn, singleset
from algorithms.fedbs import fedbs
from algorithms.fedmmb import fedmmb, fedsmb
from algorithms.fedopt import fedadagrad, fedadam, fedyogi
from algorithms.fedprox import fedprox
from algorithms.fedtan import fedtan
from algorithms.fixbn import fixbn
from algorithms.fleet import Bench, Block, Census, ClientData, Fleet, Function, Outcome, Output
from algorithms.importance import Importance
from algorithms.kept import KeptLedger, KeptStore, Location
from algorithms.keys import Purpose, generator, torch_seed
from algorithms.layout import Entry, Kind, Layout, Packed
from algorithms.local import Local
from algorithms.merge import Sum
from algorithms.norms import freeze
from algorithms.phases import After, Calm, Rule, Window, phases
from algorithms.place import Place, Placement
from algorithms.radfed import radfed, radfeda, radfedi, radfedm, radfedp
from algorithms.resident import Resident
from algorithms.scaffold import scaffold
from algorithms.schedule import Rounds, Sample, Schedule
from algorithms.server import Adagrad, Adam, Adaptive, Assign, Memory, Mix, Server, WeightedMix, Yogi
from algorithms.silobn import silobn
from algorithms.state import RoundReport, State, Traveller, begin
from algorithms.staticbn import static_bn
from algorithms.step import current, merged, step
from algorithms.training import Augment, Augmented, Trainer, Work, choose, lanes_of, trainer
from algorithms.update import Update
from algorithms.visit import Start, Task, Visits
from algorithms.weigh import Equal, Hinge, Loss, Polynomial, Samples, Used, Weigh

__all__ = [
    "Adagrad",
    "Adam",
    "Adaptive",
    "After",
    "Algorithm",
    "Arrivals",
    "Assign",
    "Augment",
    "Augmented",
    "Bench",
    "Block",
    "Calm",
    "Census",
    "ClientData",
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
    "KeptLedger",
    "KeptStore",
    "Kind",
    "Layout",
    "Local",
    "Location",
    "Loss",
    "Memory",
    "Mix",
    "Outcome",
    "Output",
    "Packed",
    "Place",
    "Placement",
    "Polynomial",
    "Purpose",
    "Resident",
    "RoundReport",
    "Rounds",
    "Rule",
    "Sample",
    "Samples",
    "Schedule",
    "Server",
    "Start",
    "State",
    "Step",
    "Sum",
    "Switch",
    "Task",
    "Trainer",
    "Traveller",
    "Update",
    "Used",
    "Visits",
    "Weigh",
    "WeightedMix",
    "Window",
    "Work",
    "Yogi",
    "begin",
    "centralized",
    "choose",
    "current",
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
    "matching",
    "merged",
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
    "step",
    "torch_seed",
    "trainer",
]
