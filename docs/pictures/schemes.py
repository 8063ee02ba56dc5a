"""Gallery of the partition schemes: samples of each class on each client, by every scheme, of the same data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from docs.pictures.svg import document, line, text
from partitioning import SCHEMES, partition

CLIENTS, CLASSES, WIDTH, HEIGHT = 10, 10, 300, 216
LEFT, TOP, CELL = 56, 12, (23, 16)

ARGUMENTS: dict[str, dict[str, Any]] = {
    "iid": {"clients": CLIENTS},
    "quantity": {"clients": CLIENTS, "size_alpha": 1.0},
    "dirichlet-qp": {"clients": CLIENTS, "size_alpha": 1.0, "label_alpha": 0.1},
    "dirichlet": {"clients": CLIENTS, "label_alpha": 0.1},
    "dirichlet-per-class": {"clients": CLIENTS, "label_alpha": 0.1},
    "shards": {"clients": CLIENTS, "shards_per_client": 2},
    "shards-unbalanced": {"clients": CLIENTS, "shards": 60, "least_shards": 1, "most_shards": 15},
    "labels-per-client": {"clients": CLIENTS, "classes_per_client": 2},
    "counts": {"table": [[30 if (digit - client) % 10 < 2 else 5 for digit in range(10)] for client in range(10)]},
    "natural": {},
    "domains": {"clients_per_domain": 2},
    "feature-noise": {"clients": CLIENTS, "strength": 0.5},
    "concept": {"clients": CLIENTS, "strength": 0.5},
}
"""Arguments of each scheme in the gallery; `natural` and `domains` also get a column."""


def schemes() -> dict[str, str]:
    """Return a picture for each scheme."""
    return {f"scheme-{name}.svg": picture(name) for name in SCHEMES}


def counts_of(name: str) -> NDArray[np.int64]:
    """Return the digits' samples of each class on each client, [clients, classes]."""
    _, labels = load_digits(return_X_y=True)
    writer = (np.arange(len(labels)) * 7 // 900) % CLIENTS  # blocks of some 130 rows, as one person wrote them
    arguments = dict(ARGUMENTS[name])
    if name == "natural":
        arguments["column"] = writer
    if name == "domains":
        arguments["domain"] = np.arange(len(labels)) * 5 // len(labels)
    parts = partition(labels, name, seed=0, **arguments)
    return np.array([np.bincount(labels[part], minlength=CLASSES) for part in parts])


def picture(name: str) -> str:
    """Return the picture of one scheme: the area of a disc is the number of samples."""
    table = counts_of(name)
    parts = [
        text(LEFT - 8, TOP + CELL[1] * (digit + 0.5) + 4, str(digit), "end", kind="small") for digit in range(CLASSES)
    ]
    parts.append(text(2, TOP + 5 * CELL[1], "class", "start", kind="small"))
    parts.append(text(LEFT + CELL[0] * CLIENTS / 2, HEIGHT - 10, "client", kind="small"))
    for client, counts in enumerate(table):
        x = LEFT + CELL[0] * (client + 0.5)
        parts.append(text(x, TOP + CELL[1] * CLASSES + 16, str(client), kind="small"))
        for digit, count in enumerate(counts):
            if count:
                y, radius = TOP + CELL[1] * (digit + 0.5), 0.72 * float(count) ** 0.5
                shown = f'<circle cx="{x:g}" cy="{y:g}" r="{min(radius, 11):.1f}" style="fill:{line(0)}"/>'
                parts.append(shown)
    return document(f"{name}: samples of each class on each client", WIDTH, HEIGHT, parts)
