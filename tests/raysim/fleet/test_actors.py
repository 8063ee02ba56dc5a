"""Actors that stay: runs of other models and algorithms have the bytes of runs of their own."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import raysim
from raysim.config.tables import FleetTable
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
