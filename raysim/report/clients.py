"""A population on the page: its counts, and charts of its clients."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partitioning import Population, plot, statistics
from raysim.plots.charts import WIDE, Chart, histogram
from raysim.plots.margins import Margins
from raysim.plots.style import style, themed, to_svg

SPLITS = {"train": "Training", "validation": "Validation", "test": "Held out"}


def describe(population: Population, runs: Sequence[str], name: str) -> Mapping[str, Any]:
    """Return the counts and charts of a population for the template.

    Args:
        population: clients of the runs.
        runs: names of the runs that share it.
        name: prefix of the charts' ids.
    """
    labels = (population.class_counts > 0).sum(axis=1)
    sizes = _by_split(population, population.sizes)
    return {
        "runs": runs,
        "facts": _facts(population),
        "scheme": _scheme(population),
        "charts": [
            Chart("Samples of each label on each client", [_heatmap(population, f"{name}-heatmap")], {}, True),
            histogram(f"{name}-sizes", sizes, "Samples of a client"),
            histogram(f"{name}-labels", _by_split(population, labels), "Labels of a client"),
        ],
    }


def _heatmap(population: Population, name: str) -> str:
    with style(name):
        figure = plot.heatmap(
            population.class_counts,
            population.manifest.classes,
            title="Samples of each label on each client",
            width=WIDE,
        )
        figure.set_layout_engine(Margins())
    return themed(to_svg(figure, name))


def _by_split(population: Population, amounts: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    splits = population.splits
    return {title: amounts[splits == split] for split, title in SPLITS.items() if split in splits}


def _facts(population: Population) -> dict[str, str]:
    numbers = statistics.summarise(population.class_counts)
    labels = (population.class_counts > 0).sum(axis=1)
    return {
        "Clients": f"{numbers.clients:,}",
        **{title: f"{clients.size:,}" for title, clients in _by_split(population, population.sizes).items()},
        "Samples": f"{numbers.samples:,}",
        "Smallest": f"{numbers.min:,}",
        "Mean": f"{numbers.mean:,.1f} ± {numbers.std:,.1f}",
        "Largest": f"{numbers.max:,}",
        "Labels a client": f"{labels.mean():.1f} of {numbers.classes}",
        "C-score": f"{numbers.c_score:.2f}",
    }


def _scheme(population: Population) -> str:
    manifest = population.manifest
    parameters = ", ".join(f"{name} = {value}" for name, value in manifest.parameters.items() if value is not None)
    return f"{manifest.scheme} with {parameters}" if parameters else manifest.scheme
