"""Table of results in the terminal."""

from rich.console import Console

from raysim.cli.tables import results_table
from raysim.cluster.fetched import FetchedResult


def shown(*results: FetchedResult) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(results_table(results))
    return captured.get()


def test_epsilon_has_a_column_under_privacy_alone() -> None:
    plain = FetchedResult("fedavg", {"test_accuracy": 0.9}, 3, 1.0, 10, 20)
    private = FetchedResult("fedavg-2", {"test_accuracy": 0.8}, 3, 1.0, 10, 20, 7.99863)
    assert "epsilon" not in shown(plain)
    text = shown(plain, private)
    assert "epsilon" in text and "7.999" in text and "none" in text
