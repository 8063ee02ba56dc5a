"""Curves of the recipes that come with raysim and need no download."""

from __future__ import annotations

import tempfile
from pathlib import Path

import raysim
from docs.pictures.curves import draw, points_of

RECIPES = ("quickstart", "dpsgd-ring", "edges-small", "compression-small")
"""Recipes of the gallery; each takes a minute or two at most."""

TITLES = {
    "domains_accuracy": "Mean accuracy of the domains",
    "test_accuracy": "Accuracy on the global test set",
    "held_out_accuracy": "Accuracy on held-out clients",
    "local_accuracy": "Accuracy on own test parts",
}
"""Columns of the metrics, the preferred one first."""


def recipes() -> dict[str, str]:
    """Run the recipes and return a picture of each, minutes in all."""
    return {f"recipe-{name}.svg": recipe(name) for name in RECIPES}


def recipe(name: str) -> str:
    """Run a recipe in this process and return its curves."""
    with tempfile.TemporaryDirectory() as folder:
        run = raysim.run(name, Path(folder, "run"), inline=True)
        measured = run.metrics().dropna(axis="columns", how="all")
        column = next(column for column in TITLES if column in measured)
        return draw(points_of(run, column), TITLES[column])
