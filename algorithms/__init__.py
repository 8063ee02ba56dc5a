"""Federated algorithms as values made of five parts, and the engine that runs them on any fleet."""

from algorithms.algorithm import Algorithm, Switch
from algorithms.arrivals import Arrivals, Concurrent, Drawn, matching, parallelism
from algorithms.compute import Compute
from algorithms.devices import Devices
from algorithms.errors import InputError
from algorithms.fedasync import fedasync
from algorithms.fedavg import fedavg
from algorithms.fedbn import fedbn, singleset
from algorithms.fedbs import fedbs
from algorithms.fedopt import fedadagrad, fedadam, fedyogi
from algorithms.fedprox import fedprox
from algorithms.fixbn import fixbn
from algorithms.fleet import Bench, Block, Census, ClientData, Fleet, Function, Outcome, Output
from algorithms.kept import KeptLedger, KeptStore, Location
from algorithms.keys import Purpose, generator, torch_seed
from algorithms.layout import Entry, Kind, Layout, Packed
from algorithms.local import Local
from algorithms.merge import Sum
from algorithms.phases import After, Calm, Rule, phases
from algorithms.place import Place, Placement
from algorithms.radfed import radfed, radfeda, radfedm, radfedp
from algorithms.resident import Resident
from algorithms.schedule import Rounds, Sample
from algorithms.server import Adagrad, Adam, Adaptive, Assign, Memory, Mix, Server, WeightedMix, Yogi
from algorithms.silobn import silobn
from algorithms.step import RoundReport, State, Traveller, begin, current, step
from algorithms.training import Trainer, Work, choose, lanes_of, trainer
from algorithms.visit import Start, Task, Visits
from algorithms.weigh import Equal, Hinge, Loss, Polynomial, Samples, Weigh

__all__ = [
    "Adagrad",
    "Adam",
    "Adaptive",
    "After",
    "Algorithm",
    "Arrivals",
    "Assign",
    "Bench",
    "Block",
    "Calm",
    "Census",
    "ClientData",
    "Compute",
    "Concurrent",
    "Devices",
    "Drawn",
    "Entry",
    "Equal",
    "Fleet",
    "Function",
    "Hinge",
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
    "Server",
    "Start",
    "State",
    "Sum",
    "Switch",
    "Task",
    "Trainer",
    "Traveller",
    "Visits",
    "Weigh",
    "WeightedMix",
    "Work",
    "Yogi",
    "begin",
    "choose",
    "current",
    "fedadagrad",
    "fedadam",
    "fedasync",
    "fedavg",
    "fedbn",
    "fedbs",
    "fedprox",
    "fedyogi",
    "fixbn",
    "generator",
    "lanes_of",
    "matching",
    "parallelism",
    "phases",
    "radfed",
    "radfeda",
    "radfedm",
    "radfedp",
    "silobn",
    "singleset",
    "step",
    "torch_seed",
    "trainer",
]
