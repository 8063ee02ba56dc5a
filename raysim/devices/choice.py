"""Devices of an experiment: drawn by a formula, with nights, or from a table."""

from __future__ import annotations

from pathlib import Path

from algorithms import Devices
from raysim.config.experiment import Experiment
from raysim.devices.night import night_devices
from raysim.devices.stored import open_stored, store, stored


def with_devices(experiment: Experiment, folder: Path, clients: int) -> tuple[Experiment, Devices | None]:
    """Return the experiment with the SHA-256 of its table of devices, and the devices.

    A new run copies the table into its folder. A run that continues reads only the copy.

    Args:
        experiment: experiment as its file has it.
        folder: folder of the run.
        clients: number of clients of the population.

    Raises:
        InputError: the table is wrong or damaged, or is not the one that the experiment names.
    """
    table = experiment.devices
    if table is None:
        return experiment, None
    if table.table is None:
        drawn = table.profile()
        nights = table.availability == "day-night"
        return experiment, night_devices(drawn, experiment.seed, clients, table.zones, table.hours) if nights else drawn
    if stored(folder) is None and (source := table.source) is not None:
        store(source, folder, clients, table.sha256)
    devices, digest = open_stored(stored(folder) or folder, clients, experiment.seed)
    return experiment.model_copy(update={"devices": table.model_copy(update={"sha256": digest})}), devices
