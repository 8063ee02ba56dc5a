"""Federated algorithms as values made of five parts, and the engine that runs them on any fleet."""

from algorithms.algorithm import Algorithm
from algorithms.compute import Compute
from algorithms.errors import InputError
from algorithms.fedavg import fedavg
from algorithms.fedbn import fedbn
from algorithms.fedprox import fedprox
from algorithms.fleet import Bench, Block, Census, ClientData, Fleet, Function, Outcome, Output
from algorithms.kept import KeptLedger, KeptStore, Location
from algorithms.keys import Purpose, generator, torch_seed
from algorithms.layout import Entry, Kind, Layout, Packed
from algorithms.local import Local
from algorithms.merge import Sum
from algorithms.place import Place, Placement
from algorithms.radfed import radfed
from algorithms.resident import Resident
from algorithms.schedule import Rounds, Sample
from algorithms.server import Assign, Mix, Server
from algorithms.step import RoundReport, State, Traveller, begin, current, step
from algorithms.training import Trainer, Work, choose, lanes_of, trainer
from algorithms.visit import Start, Task, Visits
from algorithms.weigh import Equal, Samples, Weigh

__all__ = [
    "Algorithm",
    "Assign",
    "Bench",
    "Block",
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
    "Sample",
    "Samples",
    "Server",
    "Start",
    "State",
    "Sum",
    "Task",
    "Trainer",
    "Traveller",
    "Visits",
    "Weigh",
    "Work",
    "begin",
    "choose",
    "current",
    "fedavg",
    "fedbn",
    "fedprox",
    "generator",
    "lanes_of",
    "radfed",
    "step",
    "torch_seed",
    "trainer",
]
