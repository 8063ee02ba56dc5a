"""Actors that stay: runs of other models and algorithms have the bytes of runs of their own."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import raysim
from raysim.config.tables import FleetTable
from raysim.fleet.client_actors import STILL_STARTING
from raysim.watching.progress import Watcher
from tests.kit.runs import quick_run

pytestmark = pytest.mark.usefixtures("own_ray")

CONFIG: dict[str, Any] = {
    "rounds": 2,
    "data": {"dataset": "digits", "sample": 0.2},
    "partition": {"scheme": "iid", "clients": 6},
    "model": {"name": "logistic"},
    "algorithm": [{"name": "fedavg"}],
}
OTHER: dict[str, Any] = {
    **CONFIG,
    "seed": 3,
    "model": {"name": "mlp", "hidden": [4], "norm": "batch"},
    "algorithm": [{"name": "radfed", "aggregate_every": 2}, {"name": "fedbn"}],
}


def test_runs_share_their_actors_and_nothing_else(tmp_path: Path) -> None:
    import ray

    with raysim.Actors(actors=1) as actors:
        kept = {}
        for name, config in (("first", CONFIG), ("second", OTHER), ("again", CONFIG)):
            kept[name] = quick_run(config, tmp_path / name, fleet=actors)
            actors.place(FleetTable()).pool.handles()  # a short run may end before Ray has started
            assert ray.is_initialized()
        with pytest.raises(raysim.InputError, match=r"fleet\.cpus_per_actor = 2: must be 1, as in the first run"):
            raysim.run({**CONFIG, "fleet": {"cpus_per_actor": 2}}, tmp_path / "refused", fleet=actors)
        with pytest.raises(raysim.InputError, match="fleet with inline, actors or address"):
            raysim.run(CONFIG, tmp_path / "refused", fleet=actors, inline=True)
    assert not ray.is_initialized() and not (tmp_path / "refused").exists()
    # The driver trains until the actor is there.
    assert -1 in pq.read_table(kept["first"].folder / "fedavg" / "updates.parquet")["machine_actor"].to_pylist()
    for name, config in (("first", CONFIG), ("second", OTHER)):
        own = quick_run(config, tmp_path / f"{name}-inline", inline=True)
        for result in own.results:
            file = Path(result.name) / "model.safetensors"
            assert (kept[name].folder / file).read_bytes() == (own.folder / file).read_bytes(), (name, result.name)
    file = "fedavg/model.safetensors"
    assert (kept["again"].folder / file).read_bytes() == (kept["first"].folder / file).read_bytes()


@pytest.mark.parametrize("number", [-1, 0, 2.5, True, "two"])
def test_a_number_of_actors_that_is_none_is_refused_at_once(number: Any, tmp_path: Path) -> None:
    refusal = f"actors = {number!r}: must be a whole number from 1 to 100000; use actors=1"
    with pytest.raises(raysim.InputError, match=f"^{refusal}$"):
        raysim.Actors(actors=number)
    with pytest.raises(raysim.InputError, match=f"^{refusal}$"):
        raysim.run(CONFIG, tmp_path / "run", actors=number)


class Texts(Watcher):
    """Watcher that keeps the texts of stages; "" is the end."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def stage(self, text: str) -> None:
        self.texts.append(text)

    def end(self) -> None:
        self.texts.append("")


def drawn() -> tuple[object, ...]:
    """Return the state of the generators that a user's code may draw from."""
    keys, place = np.random.get_state()[1:3]  # noqa: NPY002
    return random.getstate(), keys.tolist(), place


def test_closing_says_that_it_waits_while_ray_starts_which_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher, before = Texts(), drawn()
    monkeypatch.setattr("raysim.fleet.actors.default_watcher", lambda: watcher)
    actors = raysim.Actors(actors=1)
    with actors.place(FleetTable()) as place:
        assert place.pool.waits_for == "start"
        actors.close()
    assert watcher.texts == [STILL_STARTING, ""]
    assert drawn() == before


def test_a_watcher_that_fails_at_the_end_does_not_hide_the_error_of_the_run(tmp_path: Path) -> None:
    class Fails(Watcher):
        def stage(self, text: str) -> None:
            if text == STILL_STARTING:
                raise ValueError(text)

        def round(self, round_number: int, metrics: dict[str, float]) -> None:
            raise ValueError("a round has ended")

    with pytest.raises(ValueError, match="a round has ended"):
        quick_run(CONFIG, tmp_path / "run", actors=1, watcher=Fails())
