"""Pictures of a population; matplotlib's object-oriented interface, so no window and no global state."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from partitioning.checks import Integers
from partitioning.statistics import summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WRITTEN_OUT = 400  # cells: up to here each cell shows its number
_MOST_TICKS = 25


def heatmap(
    class_counts: Integers, classes: Sequence[object], *, title: str | None = None, width: float = 10.0
) -> "Figure":
    """Draw how many samples each client has of each class: a column a client, a row a class.

    Args:
        class_counts: samples a client and class [K, C].
        classes: the label of each class [C].
        title: the headline; by default the counts and the C-score.
        width: inches; the height follows from the number of classes.

    Colours grow with the square root of the count, so that small clients show beside large ones.
    """
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    clients, count = class_counts.shape
    figure = Figure(figsize=(width, float(np.clip(1.6 + 0.28 * count, 3.0, 9.0))), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(
        class_counts.T,
        aspect="auto",
        cmap="YlGnBu",
        norm=PowerNorm(0.5, vmin=0, vmax=max(int(class_counts.max()), 1)),
        interpolation="antialiased",
    )
    axes.set_title(title if title is not None else _headline(class_counts))
    axes.set_xlabel("client")
    axes.set_ylabel("class")
    axes.set_xticks(_ticks(clients))
    rows = _ticks(count)
    axes.set_yticks(rows, [str(classes[row]) for row in rows])
    if clients <= _MOST_TICKS and clients * count <= _WRITTEN_OUT:
        _write_counts(axes, class_counts)
    figure.colorbar(image, ax=axes, label="samples", pad=0.01)
    return figure


def _headline(class_counts: Integers) -> str:
    numbers = summarise(class_counts)
    return (
        f"{numbers.samples:,} samples on {numbers.clients:,} clients, {numbers.classes:,} classes, "
        f"C-score {numbers.c_score:.2f}"
    )


def _ticks(count: int) -> Integers:
    # Round steps of 1, 2 or 5 times a power of ten, so that the numbers read well.
    step = next(s for s in (m * 10**e for e in range(19) for m in (1, 2, 5)) if count <= s * _MOST_TICKS)
    return np.arange(0, count, step)


def _write_counts(axes: "Axes", class_counts: Integers) -> None:
    dark = class_counts > class_counts.max() / 3
    for (client, label), number in np.ndenumerate(class_counts):
        if number:
            axes.text(
                client,
                label,
                f"{number}",
                ha="center",
                va="center",
                fontsize=7,
                color="white" if dark[client, label] else "black",
            )
