"""Table of results in the terminal."""

from typing import Any

import pytest
from rich.console import Console

from raysim.cli.tables import ACCURACIES, results_table
from raysim.measures.metrics import USUAL
from raysim.report.words import in_words
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


def test_accuracies_of_smaller_models_are_shown_where_an_algorithm_has_them() -> None:
    plain = ShownResult("fedavg", {"test_accuracy": 0.9}, 3, 1.0, 10, 20)
    views = {"test_accuracy": 0.8, "test_loss": 1.0, "level_0.5_test_accuracy": 0.6, "level_0.5_test_loss": 2.0}
    text = shown(plain, ShownResult("heterofl", views, 3, 1.0, 10, 20))
    assert "accuracy, global test set, level 0.5" in text and "0.6000" in text and "–" in text
    assert "2.0000" not in text and "level" not in shown(plain)


def folded(results: list[ShownResult], width: int, **options: Any) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(results_table(results, **options, width=width))
    text = captured.get()
    assert "…" not in text and all(len(line) <= width for line in text.splitlines())
    return text


@pytest.mark.parametrize("count", [1, 2, 12])
def test_no_digit_and_no_word_is_cut_at_80_columns(count: int) -> None:
    metrics = dict.fromkeys(ACCURACIES, 0.123456)
    results = [ShownResult(f"fedavg-{n}", metrics, 1000, 1.0, 123_456_789_000, 20, 7.99) for n in range(count)]
    walls = {result.name: 12345.6 for result in results}
    text = folded(results, 80, walls=walls)
    for word in (*map(in_words, ACCURACIES), "seconds in all", "bytes down", "123.5 GB", "12345.6"):
        assert word in text, word
    assert text.count("0.1235") == len(ACCURACIES) * count and all(result.name in text for result in results)
    assert "seconds of rounds" not in text and "seconds of rounds" in folded(results, 80)


ORDER = [f"{metric}, {part}" for metric in ("macro f1", "loss") for part in ("held-out clients", "global test set")]


def test_metrics_stand_in_the_order_of_the_file() -> None:
    values = {f"{target}_{name}": 0.5 for target in ("held_out", "test") for name in ("accuracy", "loss", "macro_f1")}
    results = [ShownResult("fedavg", values, 3, 1.0, 10, 20)]
    text = folded(results, 80, metrics=("macro_f1", "loss"))
    places = [text.index(name) for name in ORDER]
    assert places == sorted(places) and "accuracy" not in text
    assert "loss" not in folded(results, 80, metrics=USUAL["class"])
