"""The rest of a run, as far as its driver can tell: Ray starts only if it is long enough."""

from __future__ import annotations

import time

from raysim.fleet.machine import LOADED_SECONDS

WORTH_SECONDS = 10 * LOADED_SECONDS
"""Seconds that the driver may take for the rest of a run without actors.

Ray and each actor import what the driver has imported, on the cores on which it trains meanwhile. On two cores a
run of eleven times that time took as long with them as without.
"""

FIRST_SECONDS = 1.0
"""Seconds of training before the rest of a run is estimated."""

UNSEEN_SECONDS = 5.0
"""Seconds after which a run is long if not even two blocks have ended."""

LONG_SECONDS = max(30.0, WORTH_SECONDS)
"""Seconds after which a run is long whatever its estimate says: evaluations and later algorithms may take longer."""


class Outlook:
    """Estimate of the time that the driver takes alone for the rest of a run.

        rest = seconds since the first client updates x updates left / updates since then

    One thread may ask while another one records.

    Args:
        updates: client updates of the run.
    """

    def __init__(self, updates: int) -> None:
        self._updates, self._begun = updates, time.monotonic()
        self._first = self._begun, 0
        """Time after the first block, and its client updates."""
        self._done = 0

    def add(self, updates: int) -> None:
        """Record client updates of the driver. The first ones are slow, and only begin the measurement."""
        if not self._first[1]:
            self._first = time.monotonic(), self._done + updates
        self._done += updates

    def skip(self, updates: int) -> None:
        """Leave out client updates that an earlier command ran."""
        self._updates -= updates

    @property
    def is_long(self) -> bool:
        """Whether actors would save time: the rest is long, a block is, or the run has taken long already."""
        (since, before), done = self._first, self._done
        if time.monotonic() - self._begun > (UNSEEN_SECONDS if done <= before else LONG_SECONDS):
            return True
        if done <= before:
            return False
        seconds = time.monotonic() - since
        return seconds > FIRST_SECONDS and seconds * (self._updates - done) > WORTH_SECONDS * (done - before)
