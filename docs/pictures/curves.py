"""Curves of an experiment that a page shows: accuracy by round."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import raysim
from docs.pictures.svg import document, line, text
from raysim.plots.style import COLOURS

DOCS = Path(__file__).parents[1]
WIDTH, HEIGHT = 460, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 124, 30, 36
Points = Sequence[tuple[float, float]]


def experiment_of(page: Path, title: str) -> str:
    """Return the file that a page shows under a title."""
    found = re.search(rf"^```toml title=\"{title}\"\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    if not found:
        raise ValueError(f"{page}: shows no {title}")
    return found[1]


def curves_of(experiment: str, column: str) -> dict[str, Points]:
    """Run an experiment and return a column of each algorithm by round."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "experiment.toml")
        path.write_text(experiment, encoding="utf-8")
        return points_of(raysim.run(path, Path(folder, "run"), inline=True), column)


def points_of(run: raysim.Run, column: str) -> dict[str, Points]:
    """Return a column of each algorithm of a run by round."""
    metrics = run.metrics().dropna(subset=[column])
    return {
        str(name): list(zip(rows["round"].tolist(), rows[column].tolist(), strict=True))
        for name, rows in metrics.groupby("algorithm", sort=False)
    }


def draw(curves: Mapping[str, Points], title: str) -> str:
    """Return the curves as a picture, each with its name at its end."""
    last = max(x for points in curves.values() for x, _ in points)
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        return LEFT + wide * x / last, TOP + high * (1 - y)

    parts = [text(LEFT - 40, 16, title, "start")]
    for share in (0, 0.25, 0.5, 0.75, 1):
        x, y = at(0, share)
        parts.append(f'<path class="rule" d="M{x:g} {y:g}H{WIDTH - RIGHT}"/>')
        parts.append(text(x - 8, y + 4, f"{100 * share:g} %", "end", kind="small"))
    for share in (0.0, 0.5, 1.0):
        parts.append(text(at(share * last, 0)[0], HEIGHT - BOTTOM + 18, f"{share * last:g}", kind="small"))
    parts.append(text(LEFT + wide / 4, HEIGHT - BOTTOM + 18, "round", kind="small"))
    heights = apart({name: at(*points[-1])[1] for name, points in curves.items()}, 15)
    for number, (name, points) in enumerate(curves.items()):
        colour = line(number % len(COLOURS))
        dashes = ";stroke-dasharray:6 3" if number >= len(COLOURS) else ""
        places = "L".join("{:.1f} {:.1f}".format(*at(*point)) for point in points)
        parts.append(f'<path d="M{places}" style="fill:none;stroke:{colour};stroke-width:2.5{dashes}"/>')
        parts.append(text(WIDTH - RIGHT + 8, heights[name] + 5, name, "start", colour=colour))
    return document(f"{title}: {', '.join(curves)}", WIDTH, HEIGHT, parts)


def apart(heights: Mapping[str, float], least: float) -> dict[str, float]:
    """Return heights of labels near the given ones, at least `least` apart and none below the axis."""
    names, places, lowest = sorted(heights, key=lambda name: heights[name]), [], float(HEIGHT - BOTTOM)
    for name in names:
        places.append(max(heights[name], places[-1] + least) if places else heights[name])
    for index in reversed(range(len(places))):
        places[index] = min(places[index], lowest)
        lowest = places[index] - least
    return dict(zip(names, places, strict=True))


def first() -> dict[str, str]:
    """Return the curve of the front page's experiment."""
    curves = curves_of(experiment_of(DOCS / "index.md", "first.toml"), "held_out_accuracy")
    return {"first.svg": draw(curves, "Accuracy on held-out clients")}
