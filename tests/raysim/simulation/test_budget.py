"""An `epochs` budget in rounds, in numbers that are counted by hand or by the batches themselves."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raysim
from algorithms import Census, Local, Participation, centralized, fedavg, fedmmb, pfedme
from raysim.common.errors import InputError
from raysim.config.experiment import Experiment
from raysim.config.read import changed
from raysim.fleet.inline import InlineWorkplace
from raysim.simulation.budget import check_updates, rounds_of, samples_per_update
from raysim.simulation.options import RunOptions

SIZES = np.array([0, 1, 4, 5, 6, 10, 23], np.int64)


@pytest.mark.parametrize(
    "local",
    [
        Local(epochs=3, batch_size=5),
        Local(steps=1, batch_size=5),
        Local(steps=2, batch_size=5),
        Local(steps=7, batch_size=5),
        Local(steps=4, batch_size="full"),
        Local(epochs=2, batch_size="full"),
    ],
)
def test_a_update_goes_through_what_its_batches_hold(local: Local) -> None:
    rng = np.random.default_rng(0)
    counted = [sum(len(batch) for batch in local.passes(int(n), rng)) for n in SIZES]
    assert samples_per_update(local, SIZES).tolist() == counted


def test_rounds_by_hand() -> None:
    census = Census(np.arange(4), np.array([2, 4, 6, 8], np.int64))
    # A round of two clients goes through 10 of the 20 samples.
    assert rounds_of(3, fedavg(Participation(cohort=2), Local()), census) == 6
    # One step of batches of 5: 2, 4, 5 and 5 samples, 4 on average; with two clients 8 a round.
    one = fedavg(Participation(cohort=2), Local(steps=1, batch_size=5))
    assert rounds_of(2, one, census) == 5
    assert rounds_of(0.01, one, census) == 1
    # Four steps: four passes over 2 and over 4 samples, two passes over 6 and over 8.
    assert samples_per_update(Local(steps=4, batch_size=5), census.samples).tolist() == [8, 16, 12, 16]
    assert rounds_of(10, fedavg(Participation(), Local(steps=4, batch_size=5)), census) == round(200 / 52)
    with pytest.raises(InputError, match="no client has any"):
        rounds_of(1, one, Census(np.arange(2), np.zeros(2, np.int64)))


def test_a_run_of_some_epochs(tmp_path: Path) -> None:
    raw = {
        "epochs": 2.0,
        "data": {"dataset": "digits"},
        "partition": {"clients": 6, "test_clients": 2},
        "model": {"hidden": [4], "norm": "batch"},
        "evaluate": {"every": 0, "metrics": ["loss"], "clients": False},
        "algorithm": [{"name": "fedavg", "cohort": 2}, {"name": "fixbn", "local": {"steps": 10, "batch_size": 10}}],
    }
    run = raysim.run(raw, tmp_path / "run", inline=True)
    # 4 equal clients: half of the data a round; then 400 of some 1,200 samples.
    assert [result.rounds for result in run.results] == [4, 6]
    log = (run.folder / "run.log").read_text()
    assert "fixbn: phase 2 begins after round 3" in log
    assert "fedavg: 2 epochs are 4 rounds" in log and "fixbn: 2 epochs are 6 rounds" in log
    assert "of 2 epochs" in run.report.read_text()
    assert "epochs = 2.0" in (run.folder / "config.toml").read_text()
    assert json.loads((run.folder / "fixbn" / "summary.json").read_text())["rounds"] == 6


def test_epochs_stand_instead_of_rounds() -> None:
    raw = {"data": {"dataset": "digits"}, "algorithm": {"name": "fedavg"}}
    assert Experiment.of(raw).rounds == 10 and Experiment.of(raw).epochs is None
    by_epochs = Experiment.of({**raw, "epochs": 1.5})
    assert by_epochs.rounds is None and Experiment.of(by_epochs.to_toml()) == by_epochs
    assert changed({**raw, "epochs": 3}, ["rounds=2"]) == {**raw, "rounds": 2}
    assert changed({**raw, "rounds": 3}, ["epochs=2"]) == {**raw, "epochs": 2}
    assert changed({**raw, "epochs": 3}, ["local.epochs=2"])["epochs"] == 3
    with pytest.raises(InputError, match=r"rounds, epochs = \(3, 2\): must be only one of them"):
        Experiment.of({**raw, "rounds": 3, "epochs": 2})
    with pytest.raises(InputError, match="epochs = 0"):
        Experiment.of({**raw, "epochs": 0})


def test_rotating_batches_go_over_a_pass_in_so_many_updates() -> None:
    # Three batches of 5, 5 and 1 are two client updates of two; a client without samples has none.
    assert samples_per_update(Local(batches=2, batch_size=5), np.array([11, 5, 0])).tolist() == [5.5, 5, 0]
    census = Census(np.arange(2), np.array([11, 5]))
    assert rounds_of(4, fedmmb(Participation(), Local(batches=2, batch_size=5)), census) == round(4 * 16 / 10.5)


def test_as_many_steps_as_the_largest_repeat_samples() -> None:
    census = Census(np.arange(2), np.array([12, 4]))
    # Three steps each: 12 samples of the large client, and of the small one 4, three times.
    assert rounds_of(6, fedavg(Participation(), Local(steps="largest", batch_size=4)), census) == round(6 * 16 / 24)


def test_united_data_are_one_clients() -> None:
    census = Census(np.arange(3), np.array([2, 4, 6]))
    assert rounds_of(5, centralized(Participation(), Local()), census) == 5
    # Steps of batches of 10, though no client has as many; the next batch of a pass over 12 samples is 10 or 2.
    assert rounds_of(5, centralized(Participation(), Local(steps=1, batch_size=10)), census) == 6
    assert rounds_of(5, centralized(Participation(), Local(batches=1, batch_size=10)), census) == 10


@pytest.mark.parametrize("keys", [{"epochs": 10**9}, {"steps": 10**9}, {"steps": 10**8, "batch_size": "full"}])
def test_updates_whose_batches_fill_the_memory_are_refused(keys: dict[str, Any]) -> None:
    census = Census(np.arange(3), np.array([5, 40, 0]))
    with pytest.raises(InputError, match=r"local\.\w+ = 10+: the batches of 3 client updates .* GB: must be at most"):
        check_updates(fedavg(Participation(), Local(**keys)), census, 3)
    check_updates(fedavg(Participation(), Local(epochs=10_000)), census, 3)


def test_an_update_on_united_data_uses_all_samples() -> None:
    census, local = Census(np.arange(1000), np.full(1000, 40)), Local(epochs=10_000)
    check_updates(fedavg(Participation(), local), census, 1)
    with pytest.raises(InputError, match=r"1 client updates of 400,000,000 samples .* GB: must be at most"):
        check_updates(centralized(Participation(), local), census, 1)


def test_steps_on_the_same_batch_take_memory_too() -> None:
    census = Census(np.arange(3), np.array([5, 40, 0]))
    with pytest.raises(InputError, match=r"local\.epochs = 1 with 1000000 steps on each batch: .* must be at most"):
        check_updates(pfedme(Participation(), Local(), inner_steps=10**6), census, 3)
    check_updates(pfedme(Participation(), Local(), inner_steps=1000), census, 3)


def test_a_budget_of_too_many_rounds_is_refused() -> None:
    with pytest.raises(InputError, match=r"epochs = 1e\+12: are 1e\+12 rounds: must be at most"):
        rounds_of(1e12, fedavg(Participation(), Local()), Census(np.arange(3), np.array([5, 40, 5])))


def test_without_rounds_no_actors_start() -> None:
    raw = {"rounds": 0, "data": {"dataset": "digits"}}
    assert isinstance(RunOptions().workplace(Experiment.of(raw)), InlineWorkplace)
    assert not RunOptions().is_here(Experiment.of({**raw, "rounds": 1}))
