"""The sums of a result over its rounds."""

from algorithms import fedavg
from algorithms.parts.schedule import Participation
from algorithms.training.local import Local
from raysim.store.result import SUMS, AlgorithmResult


def test_each_round_adds_to_the_sums() -> None:
    result = AlgorithmResult("fedavg", fedavg(Participation(), Local()))
    row = {**dict.fromkeys(SUMS, 2), "simulated_seconds": 1.5}
    after = result.after(row).after(row).after({**row, "simulated_seconds": 4.0})
    assert after.rounds == 3 and after.simulated_seconds == 7.0
    assert {name: getattr(after, name) for name in SUMS} == dict.fromkeys(SUMS, 6)
    assert result.after(dict.fromkeys(SUMS, 2)).simulated_seconds is None
