"""Client actors that are each of one site, whose clients' data may be nowhere else: `fleet.pinned`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from raysim.common.errors import InputError
from raysim.fleet.client_actors import ClientActors
from raysim.fleet.placing import ActorResources, Host, places
from raysim.fleet.worker_plan import WorkerPlan


class PinnedActors(ClientActors):
    """A running Ray on which client actors start when it is known which sites there are.

    A node of site NAME has the label site=NAME. Models travel; the blocks of a site's clients go to its actors alone.
    Its arguments are those of `ClientActors`, but that `actors` is how many each site has.

    Raises:
        InputError: the population has no sites, or a client without one, or no living node is of one of them (from
            `fit`).
    """

    pinned = True

    _names: tuple[str, ...] = ()

    def plan_of(self, number: int, plan: WorkerPlan) -> WorkerPlan:
        """The plan with the samples of the actor's site alone."""
        site = self.site(number)
        return plan if site is None else replace(plan, here=(self._names[site],))

    def fit(self, plans: Mapping[str, WorkerPlan]) -> None:
        """Start the actors of each of the population's sites.

        Raises:
            InputError: see the class.
        """
        sites = next(iter(plans.values())).sites
        if sites is None:
            raise InputError(
                "fleet.pinned = true: must stand with a population that has sites, and this one has none; set "
                "fleet.pinned = false, or make it with a column of sites"
            )
        if (nowhere := (sites.numbers == len(sites.names)).sum()) > 0:
            raise InputError(
                f"fleet.pinned = true: every client must have a site, and {nowhere} have none; set fleet.pinned = "
                "false, or make the population with a site for each"
            )
        self._names = sites.names
        self._wait()
        self._create()

    def _begin(self) -> None:
        """Which sites there are is not known yet."""

    def _places(self, hosts: Sequence[Host]) -> list[int | None]:
        return [
            number
            for number, name in enumerate(self._names)
            for _ in range(places(self._kind(number), hosts, self._wanted, f" of site {name!r}"))
        ]

    def _kind(self, site: int | None) -> ActorResources:
        return self._each if site is None else self._each.at(self._names[site])
