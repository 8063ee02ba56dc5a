"""Table of results in the terminal."""

from rich.console import Console

from raysim.cli.tables import results_table
from raysim.store.result import ShownResult


def shown(*results: ShownResult) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(results_table(results))
    return captured.get()


def test_epsilon_has_a_column_under_privacy_alone() -> None:
    plain = ShownResult("fedavg", {"test_accuracy": 0.9}, 3, 1.0, 10, 20)
    private = ShownResult("fedavg-2", {"test_accuracy": 0.8}, 3, 1.0, 10, 20, 7.99863)
    assert "epsilon" not in shown(plain)
    text = shown(plain, private)
    assert "epsilon" in text and "7.999" in text and "none" in text


def test_virtual_time_has_a_column_with_devices_alone() -> None:
    plain = ShownResult("fedavg", {"test_accuracy": 0.9}, 3, 1.0, 10, 20)
    timed = ShownResult("fedavg-2", {"test_accuracy": 0.8}, 3, 1.0, 10, 20, simulated_seconds=3723.0)
    assert "virtual time" not in shown(plain)
    assert "virtual time" in shown(plain, timed) and "1 h 02 min" in shown(plain, timed)
