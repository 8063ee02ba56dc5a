"""Units and descriptions: small functions with exact answers."""

import pytest

from raysim.common.units import human_bytes, human_seconds
from raysim.report.read import algorithms_of
from raysim.report.tables import indented
from raysim.report.words import in_words


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_250_000, "1.25 MB"), (999_999_999, "1 GB"), (5e13, "50 TB")],
)
def test_bytes(count, text):
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0000853, "85 µs"),
        (0.004212, "4.21 ms"),
        (0.09949, "99.5 ms"),
        (0.4212, "0.421 s"),
        (12.34, "12.3 s"),
        (185, "3 min 05 s"),
        (3599.6, "1 h 00 min"),
        (7800, "2 h 10 min"),
    ],
)
def test_seconds(seconds, text):
    assert human_seconds(seconds) == text


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("test_macro_f1", "macro f1, global test set"),
        ("level_0.25_local_mean_accuracy", "accuracy, own test parts, mean, level 0.25"),
        ("held_out_mean_accuracy", "accuracy, held-out clients, mean"),
        ("local_accuracy", "accuracy, own test parts"),
        ("local_validation_mean_auc", "auc, own validation parts, mean"),
        ("validation_finetuned_loss", "loss, validation clients, fine-tuned"),
        ("domain_mnist_loss", "domain mnist loss"),
    ],
)
def test_each_part_of_the_data_has_one_name(column, text):
    assert in_words(column) == text


def test_a_description_is_broken_at_its_parts_only():
    assert indented("Algorithm(local=Local(lr=0.1, epochs=1), server=Assign())") == (
        "Algorithm(\n    local=Local(lr=0.1, epochs=1),\n    server=Assign(),\n)"
    )
    assert indented("fedavg") == "fedavg"
    assert indented("Algorithm()") == "Algorithm()"


def test_folders_follow_the_tables():
    tables = [{"name": name} for name in ("fedavg", "radfed", "fedavg", "fedavg")]
    assert list(algorithms_of({"algorithm": tables})) == ["fedavg", "radfed", "fedavg-2", "fedavg-3"]
    assert list(algorithms_of({"algorithm": {"name": "radfed"}})) == ["radfed"]
    assert algorithms_of({}) == {}
