"""What the page says about a population: who the clients are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partitioning import Population, plot, statistics
from raysim.report import charts

SPLITS = {"train": "Training", "validation": "Validation", "test": "Held out"}


@dataclass(frozen=True)
class Clients:
    """A population's numbers and pictures, and the runs that share it."""

    runs: Sequence[str]
    facts: Mapping[str, str]
    scheme: str
    heatmap: str
    sizes: str
    labels: str


def describe(population: Population, runs: Sequence[str], name: str) -> Clients:
    """The clients of `runs`, in charts whose ids start with `name`."""
    counts = population.class_counts
    sizes, labels = _by_split(population, population.sizes), _by_split(population, (counts > 0).sum(axis=1))
    return Clients(
        runs=runs,
        facts=_facts(population),
        scheme=_scheme(population),
        heatmap=_heatmap(population, f"{name}-heatmap"),
        sizes=charts.histogram(f"{name}-sizes", sizes, "Samples of a client"),
        labels=charts.histogram(f"{name}-labels", labels, "Labels of a client"),
    )


def _heatmap(population: Population, name: str) -> str:
    with charts.style(name):
        figure = plot.heatmap(
            population.class_counts,
            population.manifest.classes,
            title="Samples of each label on each client",
            width=charts.WIDE,
        )
    return charts.to_svg(figure, name)


def _by_split(population: Population, amounts: NDArray[np.int64]) -> list[tuple[str, NDArray[np.int64]]]:
    """One amount a client, grouped by the clients' split."""
    splits = population.splits
    return [(title, amounts[splits == split]) for split, title in SPLITS.items() if split in splits]


def _facts(population: Population) -> dict[str, str]:
    numbers = statistics.summarise(population.class_counts)
    labels = (population.class_counts > 0).sum(axis=1)
    return {
        "Clients": f"{numbers.clients:,}",
        **{title: f"{clients.size:,}" for title, clients in _by_split(population, population.sizes)},
        "Samples": f"{numbers.samples:,}",
        "Smallest": f"{numbers.min:,}",
        "Mean": f"{numbers.mean:,.1f} ± {numbers.std:,.1f}",
        "Largest": f"{numbers.max:,}",
        "Labels a client": f"{labels.mean():.1f} of {numbers.classes}",
        "C-score": f"{numbers.c_score:.2f}",
    }


def _scheme(population: Population) -> str:
    manifest = population.manifest
    parameters = ", ".join(f"{name} = {value}" for name, value in manifest.parameters.items())
    return f"{manifest.scheme} with {parameters}" if parameters else manifest.scheme
