"""Panels of a population's picture: rows of axes, one per population, with a common key."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from partitioning.common.checks import Floats, Integers
from partitioning.common.text import CAPTION, caption
from partitioning.measures.statistics import c_score, summarise
from partitioning.pictures.views import NAMED, Groups, View, column_edges, group_clients, mean_counts, mean_shares

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap, Normalize

_MOST_TICKS = 25
_MOST_NUMBERED = 400  # cells of a heatmap that shows the number in each cell
_DARK = 0.68  # place on the colour scale from which white numbers have more contrast than black ones
_LETTERS = 18  # longest class name, in characters
_BARS = 40  # most bars of a histogram
_LOGARITHMIC = 100  # ratio of the largest to the smallest size that makes the axis logarithmic
_MOST_SEPARATED = 60  # columns with a white line between them
_MOST_COLOURS = 20  # classes with distinct colours and a legend

Row = Sequence["Axes"]


Panel = tuple[float, Callable[[Row, "Axes"], None]]
"""Height of a row in inches, and the function that draws into its axes, one per view, and into the key's axes."""


def heatmaps(views: Sequence[View]) -> list[Panel]:
    """Return the panel of samples per client and class."""
    columns = [group_clients(view.class_counts) for view in views]
    tables = [mean_counts(groups, view.class_counts) for groups, view in zip(columns, views, strict=True)]
    norm = count_norm(max(float(table.max()) for table in tables))

    def draw(row: Row, key: "Axes") -> None:
        for axes, view, groups, table in zip(row, views, columns, tables, strict=True):
            _title(axes, f"samples of each class, C-score {c_score(view.class_counts):.2f}")
            image = paint(axes, table, groups, "YlGnBu", norm)
            if is_written_out(view.class_counts, len(views)):
                write_counts(axes, view.class_counts, norm, offset=0.5)
            _name_clients(axes, groups, "class")
            name_rows(axes, view.classes, _LETTERS)
        key.figure.colorbar(image, cax=key, label="samples per client")

    return [(_map_height(len(views[0].classes)), draw)]


def bars(views: Sequence[View]) -> list[Panel]:
    """Return the panel of class mixes as stacked shares."""
    colours = class_colours(len(views[0].classes))

    def draw(row: Row, key: "Axes") -> None:
        for axes, view in zip(row, views, strict=True):
            groups = group_clients(view.class_counts)
            _stack(axes, mean_shares(groups, view.class_counts), column_edges(groups), colours)
            _title(axes, "class shares")
            axes.set_ylim(0, 1)
            axes.set_ylabel("share")
            _name_clients(axes, groups, "class")
        _class_key(key, views[0].classes, colours)

    return [(2.6 if len(views[0].classes) <= _MOST_COLOURS // 2 else 3.4, draw)]


def sizes(views: Sequence[View]) -> list[Panel]:
    """Return the panel of client sizes as a histogram."""
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

    return [(2.2, draw)]


def features(views: Sequence[View]) -> list[Panel]:
    """Return one panel per feature with the category shares of each client."""
    names = dict.fromkeys(name for view in views for name in view.features)
    return [_feature(views, name) for name in names]


PANELS: Mapping[str, Callable[[Sequence[View]], list[Panel]]] = MappingProxyType(
    {"heatmap": heatmaps, "bars": bars, "sizes": sizes, "features": features}
)
"""Panels by name on the command line, from top to bottom."""


def _feature(views: Sequence[View], name: str) -> Panel:
    from matplotlib.colors import Normalize

    categories = max(view.features[name].shape[1] for view in views if name in view.features)

    def draw(row: Row, key: "Axes") -> None:
        for axes, view in zip(row, views, strict=True):
            if name not in view.features:
                axes.set_axis_off()
                continue
            counts = view.features[name]
            groups = group_clients(counts)
            image = paint(axes, mean_shares(groups, counts), groups, "PuRd", Normalize(0, 1))
            _title(axes, f"{caption(name)}: category shares, C-score {c_score(counts):.2f}")
            axes.set_ylim(categories - 0.5, -0.5)
            _name_clients(axes, groups, "category")
            # Populations of other data have other edges of the buckets, or other categories.
            name_rows(axes, view.categories.get(name, range(counts.shape[1])))
        key.figure.colorbar(image, cax=key, label="share")

    return _map_height(categories), draw


def paint(axes: "Axes", table: Floats, groups: Groups, cmap: str, norm: "Normalize") -> Any:
    """Draw a table [B, C] as an image; each row of the table is a column of the picture."""
    edges, rows = column_edges(groups), table.shape[1]
    return axes.imshow(
        table.T,
        aspect="auto",
        cmap=cmap,
        norm=norm,
        interpolation="nearest",
        extent=(0, float(edges[-1]), rows - 0.5, -0.5),
    )


def count_norm(most: float) -> "Normalize":
    """Return a colour scale by the square root of a count, so that small clients show beside large ones."""
    from matplotlib.colors import PowerNorm

    return PowerNorm(0.5, vmin=0, vmax=max(most, 1))


def write_counts(axes: "Axes", class_counts: Integers, norm: "Normalize", *, offset: float = 0.0) -> None:
    """Write each cell's number, in white on dark cells; a column's centre is `offset` right of the client's id."""
    dark = np.asarray(norm(class_counts)) > _DARK
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
                in_layout=False,  # it lies inside the axes
            )


def is_written_out(class_counts: Integers, beside: int = 1) -> bool:
    """Return whether the cells of a heatmap have room for their numbers; `beside` pictures share its width."""
    return len(class_counts) <= NAMED and class_counts.size <= _MOST_NUMBERED / beside


def ticks(count: int) -> Integers:
    """Return at most 25 ticks from 0, in steps of 1, 2 or 5 times a power of ten."""
    step = next(s for s in (m * 10**e for e in range(19) for m in (1, 2, 5)) if count <= s * _MOST_TICKS)
    return np.arange(0, count, step)


def name_rows(axes: "Axes", names: Sequence[object], letters: int = CAPTION) -> None:
    """Name the rows of a heatmap, at most 25, each with at most `letters` characters."""
    rows = ticks(len(names))
    axes.set_yticks(rows, [caption(names[row], letters) for row in rows])


def class_colours(classes: int) -> "ListedColormap":
    """Return one colour per class: up to 20 distinct ones, for more classes a sampled rainbow."""
    import matplotlib as mpl
    from matplotlib.colors import ListedColormap

    if classes > _MOST_COLOURS:
        return ListedColormap(mpl.colormaps["turbo"](np.linspace(0.02, 0.98, classes)))
    # tab20 alternates the colours of tab10 and lighter ones; take the lighter ones last.
    return ListedColormap(mpl.colormaps["tab20"](np.r_[0:20:2, 1:20:2][:classes]))


def _stack(axes: "Axes", shares: Floats, edges: Integers, colours: "ListedColormap") -> None:
    from matplotlib.patches import StepPatch

    # Draw from the whole stack down, each class over the previous one, so that no seams show. `axes.stairs` would look
    # for the limits, which are known, at every corner.
    tops = np.cumsum(shares, axis=1)
    for label in reversed(range(shares.shape[1])):
        axes.add_artist(StepPatch(tops[:, label], edges, fill=True, facecolor=colours(label), linewidth=0))
    if len(shares) <= _MOST_SEPARATED:
        axes.vlines(edges[1:-1], 0, 1, color="white", linewidth=min(4.0, 60 / len(shares)))
    axes.set_xlim(0, edges[-1])


def _class_key(key: "Axes", classes: Sequence[object], colours: "ListedColormap") -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm
    from matplotlib.patches import Patch

    count = len(classes)
    if count <= _MOST_COLOURS:
        patches = [Patch(color=colours(label), label=caption(classes[label], _LETTERS)) for label in range(count)]
        key.set_axis_off()
        key.legend(
            handles=patches[::-1],  # in the stack's order
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
    bar.set_ticks(rows.tolist(), labels=[caption(classes[row], _LETTERS) for row in rows])
    bar.ax.tick_params(labelsize=8)
    bar.ax.minorticks_off()


def _title(axes: "Axes", text: str) -> None:
    axes.set_title(text, loc="left", fontsize=10)


def _name_clients(axes: "Axes", groups: Groups, largest: str) -> None:
    clients = sum(map(len, groups))
    if clients <= NAMED:
        axes.set_xticks(np.arange(clients) + 0.5, [str(client) for client in range(clients)])
        axes.set_xlabel("client")
        return
    binned = f", about {clients / len(groups):,.0f} per column" if len(groups) < clients else ""
    axes.set_xlabel(f"clients, by their largest {largest}{binned}")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _size_edges(low: int, high: int, is_logarithmic: bool) -> Floats:
    # Edges lie between whole numbers; on a logarithmic axis each small size has its own bar.
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
    return f"{numbers.min:,} to {numbers.max:,} per client, mean {numbers.mean:,.1f}, std {numbers.std:,.1f}{without}"


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
