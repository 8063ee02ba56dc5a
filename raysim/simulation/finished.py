"""A run's output in Python: tables as frames, curves, trained models, and its appearance in a notebook."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import load_file
from torch import Tensor

from algorithms import Layout, Sizes
from algorithms.core.clients import SamplePart
from algorithms.core.entries import SECOND_MODEL
from algorithms.core.layout import of_client
from partitioning import Population
from partitioning.common.paths import read_parquet, regular
from raysim.common.errors import InputError, unknown
from raysim.common.files import text_sha256
from raysim.common.names import CLIENTS, CLUSTERS, METRICS, MODEL, PERSONAL, POPULATION, REPORT, UPDATES
from raysim.common.surface import call
from raysim.config.experiment import Experiment
from raysim.data.shards import Shards
from raysim.simulation.plan import model_plan
from raysim.simulation.population import opened
from raysim.simulation.samples import prepare_samples
from raysim.store.journal import batches, joined
from raysim.store.result import AlgorithmResult
from raysim.store.resume import read_result, run_of, stored_experiment
from raysim.store.tables import REPORTED

if TYPE_CHECKING:  # pandas is an extra, and matplotlib takes a second to import.
    from matplotlib.figure import Figure
    from pandas import DataFrame
    from torch.nn import Module


@dataclass(frozen=True)
class Run:
    """A finished run, or one so far; a notebook shows its table and curves.

    Args:
        folder: folder of the run; for a run at a URI the local copy.
        report: report page.
        results: result of each finished algorithm.
        uri: URI of the run; None for a local run.
    """

    folder: Path
    report: Path
    results: tuple[AlgorithmResult, ...]
    uri: str | None = None

    def metrics(self) -> DataFrame:
        """Return one row per round of each algorithm: its metrics, seconds and bytes.

        Raises:
            InputError: pandas is not installed, or no round was run.
        """
        return self._frame(METRICS)

    def updates(self) -> DataFrame:
        """Return one row per client update of each algorithm.

        A number that your own client update returned, such as `mu`, is the column `reported.mu`.

        Raises:
            InputError: as for `metrics`.
        """
        frame = self._frame(UPDATES)
        if REPORTED.name not in frame:
            return frame
        # A null is no list: an algorithm without an update of the user's own reports nothing.
        reports = [dict(each) if isinstance(each, list) else {} for each in frame.pop(REPORTED.name)]
        for name in dict.fromkeys(name for report in reports for name in report):
            frame[f"{REPORTED.name}.{name}"] = [report.get(name, np.nan) for report in reports]
        return frame

    def clients(self, algorithm: str | None = None) -> DataFrame:
        """Return one row per client of each algorithm: its metrics and its part in the run; see `clients.parquet`.

        Args:
            algorithm: its folder's name; None for all.

        Raises:
            InputError: pandas is not installed, no algorithm has ended, or `evaluate.clients` is false.
        """
        return self._frame(CLIENTS, None if algorithm is None else self._name(algorithm))

    def plot(self, *columns: str) -> Figure:
        """Draw columns of the metrics by round, one curve per algorithm.

        Args:
            columns: names such as "held_out_accuracy"; by default the first metric.

        Raises:
            InputError: no algorithm has the column.
        """
        from raysim.report.notebook import plot  # late, because matplotlib takes a second to import

        return plot(self.folder, columns)

    def model(self, algorithm: str | None = None, client: int | None = None) -> Module:
        """Return a trained model of an algorithm, in evaluation mode.

        A client that has not trained, and every client of an algorithm without personal entries, has the global model.

        Args:
            algorithm: its folder's name; None if the run has only one.
            client: client whose own model is returned; None for the global model, with a warning if clients have
                models of their own. Personal entries of the global model are the average of the last cohort's. Under
                models of many sizes it is the whole model, with a warning.

        Raises:
            InputError: there is no such algorithm or client, or the algorithm has not ended.
        """
        (experiment, population), name = self._experiment(client), self._name(algorithm)
        samples, table = prepare_samples(population, experiment.data), experiment.table(name)
        composed = table.compose()
        labels = samples.labels.under(composed.local.loss)
        plan = model_plan(table.model or experiment.model, experiment.seed, samples, labels)
        weights = load_file(regular(self.folder / name / MODEL))
        module = plan.build()
        if (path := self.folder / name / PERSONAL).is_file():
            weights |= _own_entries(path, name, client, weights, Layout.of(module))
        if (path := self.folder / name / CLUSTERS).is_file():
            weights = self._cluster_of(client, path, name)
        if client is not None and composed.option(Sizes) is not None:
            text = f"the whole model of {name}, of which client {client} trains the first channels, as its level says"
            warnings.warn(text, stacklevel=2)
        floats = [each.dtype for each in weights.values() if each.is_floating_point()]
        module = module.to(floats[0])
        # A tied entry, such as a language model's output, is stored once, under its first name.
        stored = {entry.name for entry in Layout.of(module).entries}
        missing, unexpected = module.load_state_dict(weights, strict=False)
        if wrong := [*(name for name in missing if name in stored), *unexpected]:
            raise InputError(
                f"{self.folder / name / MODEL}: must have the model's entries, and {wrong[0]!r} is missing or unknown; "
                "restore the file"
            )
        return module.eval()

    def data(self, client: int, part: SamplePart = "test") -> tuple[Tensor, Tensor]:
        """Return a client's samples as its models take them: encoded and standardised, not augmented.

        Args:
            client: id of the client.
            part: "test" for the samples that `clients.parquet` scores as `test_METRIC`: the own test part of a training
                client, and all samples of a client that never trains; "train" for its training part, or "all".

        Returns:
            inputs, float32 [n, *shape], or int64 for tokens; and labels, int64 [n] for classes.

        Raises:
            InputError: there is no such client or part, or the samples cannot be read.
        """
        experiment, population = self._experiment(client)
        if part not in get_args(SamplePart):
            raise unknown(f"part = {part!r}", str(part), get_args(SamplePart))
        samples = prepare_samples(population, experiment.data)
        never_trains = client not in population.train_clients
        shards = Shards(samples.path, standardise=samples.standardise)
        return shards.samples(client, "all" if part == "test" and never_trains else part)

    def _experiment(self, client: int | None) -> tuple[Experiment, Population]:
        """Return the experiment and its population; raise InputError if this has no such client."""
        experiment = stored_experiment(self.folder)
        try:
            # The run may be under way, and only the process that runs it makes or repairs a population.
            population = opened(experiment, self.folder / POPULATION)
        except InputError as error:
            raise InputError(
                f"{self.folder}: its population cannot be opened ({error}); if no process runs it, continue it with "
                f"{call('resume', self.folder)}"
            ) from None
        if client is not None and not (isinstance(client, Integral) and 0 <= client < len(population)):
            raise InputError(f"client = {client!r}: must be an id from 0 to {len(population) - 1}; see `clients()`")
        return experiment, population

    def _cluster_of(self, client: int | None, path: Path, name: str) -> dict[str, Tensor]:
        """Return the entries of the global model that a client has chosen; without a client those of the first."""
        models = load_file(regular(path))
        number, count = 0, len(next(iter(models.values())))
        if client is None:
            text = f"the first of the {count} global models of {name}; take model({name!r}, client=0) for a client's"
            warnings.warn(text, stacklevel=3)
        elif not (clients := path.with_name(CLIENTS)).is_file():
            raise InputError(
                f"client = {client}: must be left out, because evaluate.clients is false, and so nothing says which of "
                f"the {count} models of {name} it has; run again with evaluate.clients = true"
            )
        else:
            number = max(0, read_parquet(clients).column("cluster")[client].as_py())
        return {entry: values[number] for entry, values in models.items()}

    def _name(self, algorithm: str | None) -> str:
        """Return the folder's name of a finished algorithm; raise InputError if there is none, or no single one."""
        ended, names = [each.name for each in self.results], stored_experiment(self.folder).names
        choices = ended or names
        if algorithm is None and len(choices) != 1:
            raise InputError(f"algorithm is missing: must be one of {', '.join(choices)}; name it")
        name = algorithm or choices[0]
        if name not in names:
            raise unknown(f"algorithm = {name!r}", name, names)
        if name not in ended:
            raise InputError(
                f"{self.folder}: {name} must have ended; if no process runs it, continue it with "
                f"{call('resume', self.folder)}"
            )
        return name

    def _frame(self, file: str, only: str | None = None) -> DataFrame:
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise InputError(
                "pandas is not installed: frames need it; install it with `uv sync --extra notebook`"
            ) from None
        tables = [
            table.add_column(0, "algorithm", pa.array([name] * len(table)))
            for name, table in self._tables(file)
            if only in (None, name)
        ]
        if not tables:
            lack = "has scored its clients: it has not ended, or evaluate.clients is false" if file == CLIENTS else ""
            raise InputError(f"{self.folder}: no algorithm {lack or 'has run a round'}; run it first")
        frame: DataFrame = pa.concat_tables(tables, promote_options="permissive").to_pandas()
        return frame

    def _tables(self, file: str) -> Iterator[tuple[str, pa.Table]]:
        """Yield each algorithm's rows; those of an unfinished one are in its journal."""
        for name in stored_experiment(self.folder).names:
            path = self.folder / name / file
            if path.is_file():
                yield name, read_parquet(path)
            elif rows := list(batches(path.with_suffix(".journal"))):
                yield name, joined(rows, rows[0].schema)

    def __str__(self) -> str:
        """Return the metrics of each algorithm, a line each."""
        lines = [
            f"  {each.name}, {each.rounds} rounds: " + ", ".join(f"{n} {v:.4g}" for n, v in each.metrics.items())
            for each in self.results
        ]
        return "\n".join([f"Run in {self.uri or self.folder}", *lines])

    def _repr_html_(self) -> str:
        from raysim.report.notebook import as_html

        return as_html(self.folder, Path(os.path.relpath(self.report)), f"run-{text_sha256(str(self.folder))[:8]}")


def _own_entries(
    path: Path, name: str, client: int | None, weights: Mapping[str, Tensor], layout: Layout
) -> dict[str, Tensor]:
    """Return the entries in which a client's own model differs from the global one; warn of them without a client."""
    personal = load_file(regular(path))
    clients = personal.pop("clients").tolist()
    kept = {key: values.numpy() for key, values in personal.items()}
    own = [entry for entry in layout.entries if {entry.name, f"{SECOND_MODEL}/{entry.name}"} & kept.keys()]
    if client is None and own:
        text = f"the global model of {name}, and {len(clients)} clients have models of their own"
        warnings.warn(f"{text}; take model({name!r}, client={clients[0]}) for one of theirs", stacklevel=3)
    if client not in clients:
        return {}
    mine = {key: values[clients.index(client)] for key, values in kept.items()}
    return {each.name: torch.from_numpy(np.array(of_client(each, weights[each.name].numpy(), mine))) for each in own}


def load(folder: str | Path) -> Run:
    """Return the run in a folder: finished, stopped, or under way.

    Args:
        folder: folder of the run.

    Raises:
        InputError: the folder holds no run, or a damaged file.
    """
    path, _ = run_of(Path(folder))
    experiment = stored_experiment(path)
    results = [read_result(path / name, experiment) for name in experiment.names]
    return Run(path, path / REPORT, tuple(each for each in results if each is not None))
