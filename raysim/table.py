"""Tables for the terminal."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence

from rich.filesize import decimal
from rich.table import Table

from algorithms.named import ALGORITHMS
from raysim.config.own import FORM, MODEL_FORM
from raysim.config.read import recipes
from raysim.data import DATASETS, FORMS
from raysim.models import MODELS
from raysim.result import Result

HEADINGS = {
    "test_accuracy": "test accuracy",
    "held_out_accuracy": "test accuracy, held-out clients",
    "validation_accuracy": "validation accuracy",
    "local_accuracy": "test accuracy, clients' own",
    "domains_accuracy": "test accuracy, mean of domains",
}


def results_table(results: Sequence[Result]) -> Table:
    """One row an algorithm: its accuracy on what was evaluated, rounds, seconds, protocol bytes."""
    metrics = results[0].metrics if results else {}
    names = [name for name in HEADINGS if name in metrics]
    table = Table()
    table.add_column("algorithm")
    for name in names:
        table.add_column(HEADINGS[name], justify="right")
    for name in ("rounds", "seconds", "bytes up", "bytes down"):
        table.add_column(name, justify="right")
    for result in results:
        table.add_row(
            result.name,
            *(f"{result.metrics[name]:.4f}" for name in names),
            str(result.rounds),
            f"{result.seconds:.1f}",
            decimal(result.bytes_up),
            decimal(result.bytes_down),
        )
    return table


def listing(kind: str) -> Iterator[tuple[str, str]]:
    """Names and one line of each, of `algorithms`, `models`, `datasets` or `recipes`."""
    if kind == "algorithms":
        yield from (
            (name, (inspect.getdoc(function) or "").partition("\n")[0]) for name, function in ALGORITHMS.items()
        )
        yield "module:function", f"your own, from beside the file or from here: {FORM}"
    elif kind == "models":
        yield from ((name, model.description) for name, model in MODELS.items())
        yield "module:Class", f"your own, from beside the file or from here: {MODEL_FORM}"
    elif kind == "datasets":
        yield from ((name, data.description) for name, data in DATASETS.items())
        yield from FORMS.items()
    else:
        for name, path in recipes().items():
            yield name, path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
