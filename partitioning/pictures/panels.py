"""The panels of a population's picture: each is a row of axes, one a population, with one key for all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from partitioning.common.checks import Floats, Integers
from partitioning.measures.statistics import c_score, summarise
from partitioning.pictures.views import Columns, View, arrange

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap, Normalize

_MOST_TICKS = 25
_WRITTEN_OUT = 400  # cells: up to here each cell shows its number
_LETTERS = 18  # of a class's name
_BARS = 40  # of a histogram
_LOGARITHMIC = 100  # from this ratio of the largest to the smallest size on
_APART = 60  # up to so many columns a white line parts them
_ONE_BY_ONE = 20  # up to so many classes have colours that are told apart at sight, and a legend

Row = Sequence["Axes"]


@dataclass(frozen=True)
class Panel:
    """A row of a picture.

    Args:
        height: inches.
        draw: fills the axes, one a view, and those of the key to their right.
    """

    height: float
    draw: Callable[[Row, "Axes"], None]


def heatmaps(views: Sequence[View]) -> list[Panel]:
    """How many samples clients have of each class."""
    columns = [arrange(view.class_counts) for view in views]
    tables = [each.means(view.class_counts) for each, view in zip(columns, views, strict=True)]
    norm = count_norm(max(float(table.max()) for table in tables))

    def draw(row: Row, key: "Axes") -> None:
        for axes, view, each, table in zip(row, views, columns, tables, strict=True):
            _title(axes, f"samples of each class, C-score {c_score(view.class_counts):.2f}")
            image = paint(axes, table, each, "YlGnBu", norm)
            if each.are_named and table.size <= _WRITTEN_OUT / len(views):
                write_counts(axes, view.class_counts, offset=0.5)
            _name_clients(axes, each, "class")
            name_rows(axes, [shorten(str(label)) for label in view.classes])
        _colour_bar(key, image, "samples a client")

    return [Panel(_map_height(len(views[0].classes)), draw)]


def bars(views: Sequence[View]) -> list[Panel]:
    """The class mix of each client, as stacked shares."""
    colours = class_colours(len(views[0].classes))

    def draw(row: Row, key: "Axes") -> None:
        for axes, view in zip(row, views, strict=True):
            columns = arrange(view.class_counts)
            _stack(axes, columns.shares(view.class_counts), columns.edges, colours)
            _title(axes, "class shares")
            axes.set_ylim(0, 1)
            axes.set_ylabel("share")
            _name_clients(axes, columns, "class")
        _class_key(key, views[0].classes, colours)

    return [Panel(2.6 if len(views[0].classes) <= _ONE_BY_ONE // 2 else 3.4, draw)]


def sizes(views: Sequence[View]) -> list[Panel]:
    """How many clients are of which size."""
    filled = np.concatenate([view.sizes[view.sizes > 0] for view in views])
    low, high = (int(filled.min()), int(filled.max())) if filled.size else (1, 1)
    is_logarithmic = high >= _LOGARITHMIC * low
    edges = _size_edges(low, high, is_logarithmic)

    def draw(row: Row, key: "Axes") -> None:
        for axes, view in zip(row, views, strict=True):
            axes.hist(
                view.sizes[view.sizes > 0], bins=edges.tolist(), color="#5b7083", edgecolor="white", linewidth=0.4
            )
            _title(axes, _sizes_in_words(view))
            axes.set_xlabel("samples of a client")
            axes.set_ylabel("clients")
            if is_logarithmic:
                axes.set_xscale("log")
            _number(axes)
        _share_heights(row)
        key.set_axis_off()

    return [Panel(2.2, draw)]


def features(views: Sequence[View]) -> list[Panel]:
    """The shares of each feature's categories on each client, a panel a feature."""
    names = dict.fromkeys(name for view in views for name in view.features)
    return [_feature(views, name) for name in names]


PANELS: Mapping[str, Callable[[Sequence[View]], list[Panel]]] = MappingProxyType(
    {"heatmap": heatmaps, "bars": bars, "sizes": sizes, "features": features}
)
"""Every panel by its name on the command line, in the order from top to bottom."""


def _feature(views: Sequence[View], name: str) -> Panel:
    from matplotlib.colors import Normalize

    categories = max(view.features[name].shape[1] for view in views if name in view.features)
    titles = next((view.categories[name] for view in views if len(view.categories.get(name, ())) == categories), None)

    def draw(row: Row, key: "Axes") -> None:
        for axes, view in zip(row, views, strict=True):
            if name not in view.features:
                axes.set_axis_off()
                continue
            counts = view.features[name]
            columns = arrange(counts)
            image = paint(axes, columns.shares(counts), columns, "PuRd", Normalize(0, 1))
            _title(axes, f"{name}: category shares, C-score {c_score(counts):.2f}")
            axes.set_ylim(categories - 0.5, -0.5)
            _name_clients(axes, columns, "category")
            name_rows(axes, titles or range(categories))
        _colour_bar(key, image, "share")

    return Panel(_map_height(categories), draw)


def paint(axes: "Axes", table: Floats, columns: Columns, cmap: str, norm: "Normalize") -> Any:
    """Draw a table [B, C] as an image: a column of the picture a row of the table."""
    edges, rows = columns.edges, table.shape[1]
    return axes.imshow(
        table.T,
        aspect="auto",
        cmap=cmap,
        norm=norm,
        interpolation="nearest",
        extent=(0, float(edges[-1]), rows - 0.5, -0.5),
    )


def count_norm(most: float) -> "Normalize":
    """Return colours that grow with the square root of a count, so that small clients show beside large ones."""
    from matplotlib.colors import PowerNorm

    return PowerNorm(0.5, vmin=0, vmax=max(most, 1))


def write_counts(axes: "Axes", class_counts: Integers, *, offset: float = 0.0) -> None:
    """Write its number into each cell; `offset` is that of a column's centre from the client's id."""
    dark = class_counts > class_counts.max() / 3
    for (client, label), number in np.ndenumerate(class_counts):
        if number:
            axes.text(
                client + offset,
                label,
                f"{number}",
                ha="center",
                va="center",
                fontsize=7,
                color="white" if dark[client, label] else "black",
            )


def is_written_out(clients: int, classes: int) -> bool:
    """Say whether a heatmap's cells have room for their numbers."""
    return clients <= _MOST_TICKS and clients * classes <= _WRITTEN_OUT


def ticks(count: int) -> Integers:
    """Return at most 25 ticks from 0, in steps of 1, 2 or 5 times a power of ten, which read well."""
    step = next(s for s in (m * 10**e for e in range(19) for m in (1, 2, 5)) if count <= s * _MOST_TICKS)
    return np.arange(0, count, step)


def name_rows(axes: "Axes", names: Sequence[object]) -> None:
    """Name the rows of a heatmap, as many as fit."""
    rows = ticks(len(names))
    axes.set_yticks(rows, [str(names[row]) for row in rows])


def shorten(name: str) -> str:
    """Return the name, or the beginning and the end of a long one: names often differ in their ends."""
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 7]}…{name[-6:]}"


def class_colours(classes: int) -> "ListedColormap":
    """Return a colour a class: up to twenty that are told apart at sight, beyond that a sampled rainbow."""
    import matplotlib as mpl
    from matplotlib.colors import ListedColormap

    if classes > _ONE_BY_ONE:
        return ListedColormap(mpl.colormaps["turbo"](np.linspace(0.02, 0.98, classes)))
    # tab20 has each colour of tab10 and a light one of its hue side by side: here the light ones come last.
    return ListedColormap(mpl.colormaps["tab20"](np.r_[0:20:2, 1:20:2][:classes]))


def _stack(axes: "Axes", shares: Floats, edges: Integers, colours: "ListedColormap") -> None:
    # From the whole stack down, each class over the one before: no seams show between neighbours.
    tops = np.cumsum(shares, axis=1)
    for label in reversed(range(shares.shape[1])):
        axes.stairs(tops[:, label], edges, fill=True, color=colours(label), linewidth=0)
    if len(shares) <= _APART:
        axes.vlines(edges[1:-1], 0, 1, color="white", linewidth=min(4.0, 60 / len(shares)))
    axes.set_xlim(0, edges[-1])


def _class_key(key: "Axes", classes: Sequence[object], colours: "ListedColormap") -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm
    from matplotlib.patches import Patch

    count = len(classes)
    if count <= _ONE_BY_ONE:
        patches = [Patch(color=colours(label), label=shorten(str(classes[label]))) for label in range(count)]
        key.set_axis_off()
        key.legend(
            handles=patches[::-1],  # in the order of the stack
            loc="center left",
            frameon=False,
            borderaxespad=0,
            fontsize=8,
            labelspacing=0.25,
            handlelength=1,
            handleheight=1,
        )
        return
    bounds = np.arange(count + 1) - 0.5
    bar = key.figure.colorbar(ScalarMappable(BoundaryNorm(bounds.tolist(), count), colours), cax=key, label="class")
    rows = ticks(count)
    bar.set_ticks(rows.tolist(), labels=[shorten(str(classes[row])) for row in rows])
    bar.ax.tick_params(labelsize=8)
    bar.ax.minorticks_off()


def _title(axes: "Axes", text: str) -> None:
    axes.set_title(text, loc="left", fontsize=10)


def _colour_bar(key: "Axes", image: Any, label: str) -> None:
    key.figure.colorbar(image, cax=key, label=label)


def _name_clients(axes: "Axes", columns: Columns, largest: str) -> None:
    clients = int(columns.edges[-1])
    if columns.are_named:
        axes.set_xticks(np.arange(clients) + 0.5, [str(client) for client in range(clients)])
        axes.set_xlabel("client")
        return
    binned = len(columns.groups) < clients
    a_column = f", about {clients / len(columns.groups):,.0f} a column" if binned else ""
    axes.set_xlabel(f"clients, by their largest {largest}{a_column}")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _size_edges(low: int, high: int, is_logarithmic: bool) -> Floats:
    # Between whole numbers; on a logarithmic axis the small ones have a bar each.
    if is_logarithmic:
        starts = np.unique(np.floor(np.geomspace(low, high + 1, _BARS + 1)))
    else:
        width = -(-(high - low + 1) // _BARS)
        starts = np.arange(low, high + width + 1, width, dtype=np.float64)
    edges: Floats = starts - 0.5
    return edges


def _sizes_in_words(view: View) -> str:
    numbers = summarise(view.class_counts)
    empty = int((view.sizes == 0).sum())
    without = f"; {empty:,} without samples not shown" if empty else ""
    return f"{numbers.min:,} to {numbers.max:,} a client, mean {numbers.mean:,.1f}, std {numbers.std:,.1f}{without}"


def _number(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    if axes.get_xscale() == "linear":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _share_heights(row: Row) -> None:
    top = max(axes.get_ylim()[1] for axes in row)
    for axes in row:
        axes.set_ylim(0, top)


def _map_height(rows: int) -> float:
    return float(np.clip(0.9 + 0.22 * rows, 1.5, 4.5))
