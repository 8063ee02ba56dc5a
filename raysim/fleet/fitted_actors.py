"""Client actors of which as many share a GPU as its memory holds: `gpus_per_actor = "auto"`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import ray

from raysim.common.errors import InputError, of_algorithm
from raysim.fleet.client_actors import ClientActors
from raysim.fleet.fractions import arranged, capacity, fraction, sharers
from raysim.fleet.lost import AbsentError, take
from raysim.fleet.patience import START_SECONDS, Patience
from raysim.fleet.placing import living
from raysim.fleet.worker_plan import WorkerPlan

LOG = logging.getLogger("raysim")


class FittedActors(ClientActors):
    """A running Ray on which client actors start when it is known how many of them a GPU holds.

    Ray starts in the background, as ever. The actors wait for `fit`, which has a probe measure what the plans take.

    Args:
        actors: how many; None for as many as GPUs and CPUs hold.
        cpus_per_actor: CPUs of each.
        address: of a running cluster; None starts Ray on this machine.
        labels: that the nodes have on which they may be.
        group: blocks that are joined on one of several nodes before anything leaves it, or "auto".

    Raises:
        InputError: there is no GPU, or the GPUs do not hold so many actors (from `fit`).
    """

    def __init__(
        self,
        actors: int | None = None,
        cpus_per_actor: int = 1,
        address: str | None = None,
        labels: Mapping[str, str] | None = None,
        group: int | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(actors, cpus_per_actor, 1, address, Patience(), labels, group)

    def fit(self, plans: Mapping[str, WorkerPlan]) -> None:
        """Measure what each algorithm's plan takes of a GPU, and start the actors.

        Raises:
            InputError: see the class.
            OutOfMemoryError: a plan does not fit a whole GPU.
        """
        self._wait()
        peak, total = self._measured(plans)
        held, hosts = sharers(peak, total), [host for host in living() if self._each.held(host)]
        gpus = int(capacity(1, [host.resources["GPU"] for host in hosts]))
        places = replace(self._each, gpus=0).room(hosts)
        self._wanted, shared = arranged(held, gpus, places, self._wanted)
        self._each = replace(self._each, gpus=fraction(shared))
        LOG.info(
            'fleet.gpus_per_actor = "auto": a block takes %d of %d MiB, so a GPU holds %d actors; %d of %g GPU each',
            *(peak >> 20, total >> 20, held, self._wanted, self._each.gpus),
        )
        self._create()

    def _begin(self) -> None:
        if not self._each.room(living()):
            raise InputError(
                'fleet.gpus_per_actor = "auto": must be a number where Ray has no GPU; set fleet.gpus_per_actor = 0'
            )

    def _measure(self, probe: Any, plan: WorkerPlan) -> tuple[int, int]:
        """What one plan takes; its population is copied to the probe's node first, where that does not see it."""
        try:
            taken: tuple[int, int] = take(probe.measure.remote(plan))
        except AbsentError as error:
            taken = take(probe.measure.remote(plan, self.copies.on(error.node, plan)))
        return taken

    def _measured(self, plans: Mapping[str, WorkerPlan]) -> tuple[int, int]:
        """The most bytes that a plan takes of a GPU, and those that it has: an actor with a whole one tries it."""
        probe = self._actor(0, self._each)
        try:
            take([probe.fingerprint.remote()], START_SECONDS)
            measured: list[tuple[int, int]] = []
            for name, plan in plans.items():
                with of_algorithm(name):
                    measured.append(self._measure(probe, plan))
            return max(measured)
        finally:
            ray.kill(probe)
