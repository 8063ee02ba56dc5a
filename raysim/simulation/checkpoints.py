"""Checkpoints of a run: the state to go back to if models are lost, and the decision when to write it."""

from __future__ import annotations

from raysim.store.algorithm_folder import AlgorithmFolder
from raysim.store.result import Snapshot


class Recovery:
    """The run after its last written aggregation.

    Args:
        files: folder of the algorithm, which writes the checkpoints.
        snapshot: the run before its first round, or as the checkpoint has it.
        every: aggregations from one checkpoint to the next, at least.
    """

    def __init__(self, files: AlgorithmFolder, snapshot: Snapshot, every: int) -> None:
        self.snapshot = snapshot
        self._files = files
        self._every = every
        self._aggregations = 0

    def keep(self, snapshot: Snapshot) -> None:
        """Go back to this aggregation from now on, and write a checkpoint of it if one is due."""
        self.snapshot, self._aggregations = snapshot, self._aggregations + 1
        self._files.mark()
        if self._aggregations >= self._every and self._files.due:
            self.save()
            self._aggregations = 0
        saving = self._files.saving
        snapshot.state.personal.forget(snapshot.rounds | (saving.rounds if saving else set()))

    def save(self) -> None:
        """Write a checkpoint."""
        self._files.save(self.snapshot)
