"""Federated algorithms as values made of five parts, and the engine that runs them on any fleet."""

from algorithms.algorithm import Algorithm, Switch
from algorithms.centralized import centralized
from algorithms.compute import Compute
from algorithms.errors import InputError
from algorithms.fedavg import fedavg
from algorithms.fedbn import fedbn, singleset
from algorithms.fedbs import fedbs
from algorithms.fedopt import fedadagrad, fedadam, fedyogi
from algorithms.fedprox import fedprox
from algorithms.fedtan import fedtan
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
from algorithms.server import Adagrad, Adam, Adaptive, Assign, Memory, Mix, Server, Yogi
from algorithms.silobn import silobn
from algorithms.staticbn import static_bn
from algorithms.step import RoundReport, State, Traveller, begin, current, merged, step
from algorithms.training import Trainer, Work, choose, lanes_of, trainer
from algorithms.visit import Start, Task, Visits
from algorithms.weigh import Equal, Loss, Samples, Weigh

__all__ = [
    "Adagrad",
    "Adam",
    "Adaptive",
    "After",
    "Algorithm",
    "Assign",
    "Bench",
    "Block",
    "Calm",
    "Census",
    "ClientData",
    "Compute",
    "Entry",
    "Equal",
    "Fleet",
    "Function",
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
    "Work",
    "Yogi",
    "begin",
    "centralized",
    "choose",
    "current",
    "fedadagrad",
    "fedadam",
    "fedavg",
    "fedbn",
    "fedbs",
    "fedprox",
    "fedtan",
    "fedyogi",
    "fixbn",
    "generator",
    "lanes_of",
    "merged",
    "phases",
    "radfed",
    "radfeda",
    "radfedm",
    "radfedp",
    "silobn",
    "singleset",
    "static_bn",
    "step",
    "torch_seed",
    "trainer",
]
