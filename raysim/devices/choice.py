"""Devices of an experiment: drawn by a formula, with nights, or from a table."""

from pathlib import Path

from algorithms import Devices
from raysim.config.experiment import Experiment
from raysim.devices.night import night_devices
from raysim.devices.stored import open_stored, store, stored


def open_devices(experiment: Experiment, folder: Path, clients: int) -> tuple[Devices | None, str | None]:
    """Return the devices of an experiment, and the SHA-256 of their table; None for what there is not.

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
        return None, None
    if table.table is None:
        drawn = table.profile()
        nights = table.availability == "day-night"
        return night_devices(drawn, experiment.seed, clients, table.zones, table.hours) if nights else drawn, None
    if stored(folder) is None and (source := table.source) is not None:
        store(source, folder, clients, table.sha256)
    return open_stored(stored(folder) or folder, clients, experiment.seed)
