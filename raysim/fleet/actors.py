"""Client actors that stay for several runs."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any

from raysim.common.errors import InputError
from raysim.common.surface import assigned, given
from raysim.config.tables import MOST_ACTORS, FleetTable
from raysim.fleet.address import check_address
from raysim.watching.progress import Watcher, default_watcher

if TYPE_CHECKING:  # It imports Ray.
    from raysim.fleet.client_actors import ClientActors
    from raysim.fleet.pool import ActorPool


def check_number(actors: Any) -> None:
    """Raise InputError if a number of client actors is none."""
    is_whole = isinstance(actors, Integral) and not isinstance(actors, bool)
    if not is_whole or not 1 <= actors <= MOST_ACTORS:
        raise InputError(
            f"{assigned('actors', actors)}: must be a whole number from 1 to {MOST_ACTORS}; use {given('actors', 1)}"
        )


class Actors:
    """Client actors that stay for several runs, so that only the first one waits for Ray; a context that ends them.

    The runs may differ in everything but the keys of `[fleet]` that describe an actor. Actors never change a result.

        with raysim.Actors() as actors:
            first = raysim.run("first.toml", fleet=actors)
            second = raysim.run("second.toml", fleet=actors)

    Args:
        actors: number of client actors; None for that of the first run.
        address: address of a running Ray cluster; None starts Ray on this machine.

    Raises:
        InputError: the number or the address is wrong.
    """

    def __init__(self, actors: int | None = None, address: str | None = None) -> None:
        if actors is not None:
            check_number(actors)
        if address is not None:
            check_address(address)
        self._actors, self._address = actors, address
        self._pool: ActorPool | None = None
        self._first: FleetTable | None = None

    def __enter__(self) -> Actors:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the actors, and Ray if this object started it; the next run starts them again."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        from raysim.fleet.client_actors import STILL_STARTING

        watcher = default_watcher() if pool.waits_for == "start" else Watcher()
        watcher.stage(STILL_STARTING)
        try:
            pool.end()
        finally:
            watcher.end()

    def place(self, table: FleetTable) -> ClientActors:
        """Return the client actors for a run with this `[fleet]` table.

        Raises:
            InputError: the run needs other actors than the first one had.
        """
        if table.pinned or table.gpus_per_actor == "auto":
            key = "pinned = true" if table.pinned else 'gpus_per_actor = "auto"'
            raise InputError(
                f"fleet.{key} with raysim.Actors: must be left out, because such actors serve one run; leave fleet= out"
            )
        from raysim.fleet.client_actors import ClientActors

        if self._pool is None or self._first is None:
            shape = self._actors or table.actors, table.cpus_per_actor, table.gpus_per_actor, self._address
            self._first, self._pool = table, ClientActors(*shape, labels=table.labels).pool
        for key in ("cpus_per_actor", "gpus_per_actor", "labels"):  # all runs on the same actors have them in common
            before, now = getattr(self._first, key), getattr(table, key)
            if now != before:
                raise InputError(
                    f"fleet.{key} = {now!r}: must be {before!r}, as in the first run of these actors; change it, or "
                    "use other raysim.Actors"
                )
        return ClientActors(None, group=table.group, pool=self._pool)
