"""Figures of a reproduction's file: what is read of them, and what is refused."""

from typing import Any

import pytest

from raysim.common.errors import InputError
from raysim.reproduction.figure import Figure, Place

CURVES: dict[str, Any] = {"title": "Figure 1", "form": "curves", "column": "test_accuracy", "panels": {"A": "mnist"}}
POINTS: dict[str, Any] = {**CURVES, "form": "points", "panels": {"A": {"1": "e1", "4": "e4"}}}


def figure(raw: dict[str, Any], **keys: Any) -> Figure:
    return Figure.of({**raw, **keys}, ["mnist", "e1", "e4"], ["fedavg", "fedbn"])


def at(dataset: str, algorithm: str = "fedavg", column: str = "test_accuracy") -> Place:
    return dataset, algorithm, column


@pytest.mark.parametrize(
    ("raw", "panel", "series"),
    [
        (CURVES, "mnist", {"fedavg": {"": at("mnist")}, "fedbn": {"": at("mnist", "fedbn")}}),
        (
            CURVES,
            {
                "DC": {"dataset": "e1", "algorithm": "fedbn", "column": "dc"},
                "A": {"dataset": "e4", "algorithm": "fedavg"},
            },
            {"DC": {"": at("e1", "fedbn", "dc")}, "A": {"": at("e4")}},
        ),
        (
            POINTS,
            {"1": "e1", "4": "e4"},
            {"fedavg": {"1": at("e1"), "4": at("e4")}, "fedbn": {"1": at("e1", "fedbn"), "4": at("e4", "fedbn")}},
        ),
        (
            POINTS,
            {"own": {"dataset": "e1", "algorithm": "fedbn"}, "loss": {"dataset": "e4", "column": "test_loss"}},
            {
                "fedavg": {"loss": at("e4", "fedavg", "test_loss")},
                "fedbn": {"own": at("e1", "fedbn"), "loss": at("e4", "fedbn", "test_loss")},
            },
        ),
    ],
)
def test_panels(raw: dict[str, Any], panel: Any, series: dict[str, dict[str, Place]]) -> None:
    assert figure(raw, panels={"A": panel}).panels == {"A": series}


def test_a_label_of_one_algorithm_is_a_line_by_itself() -> None:
    """So it is where the figure has only one, and in a panel of series with ticks of their own."""
    lines = {"IID": "e1", "Non-IID": "e4"}
    assert figure(CURVES, algorithms=["fedbn"], panels={"A": lines}).panels == {
        "A": {"IID": {"": at("e1", "fedbn")}, "Non-IID": {"": at("e4", "fedbn")}}
    }
    ticks = {"BN": {"1": "e1", "4": "e4"}, "GN": {"4": {"dataset": "mnist", "algorithm": "fedavg"}}}
    assert figure(POINTS, algorithms=["fedbn"], panels={"A": ticks}).panels == {
        "A": {"BN": {"1": at("e1", "fedbn"), "4": at("e4", "fedbn")}, "GN": {"4": at("mnist")}}
    }


@pytest.mark.parametrize(
    ("raw", "keys", "what"),
    [
        (CURVES, {"form": "pie"}, "figure.form = 'pie'.*'curves'"),
        (CURVES, {"colour": "red"}, "unknown key 'figure.colour'"),
        (CURVES, {"panels": {}}, "has no panel"),
        (CURVES, {"panels": {"A": 3}}, "'A' = 3"),
        (CURVES, {"panels": {"A": "mnis"}}, "data set 'mnis'.*mnist"),
        (CURVES, {"panels": {"A": {"x": 3}}}, "'x' = 3"),
        (CURVES, {"panels": {"A": {"x": "e1"}}}, "'x' is a line by itself: must have one algorithm"),
        (CURVES, {"panels": {"A": {"x": {"dataset": "e1", "algorithm": "fedbm"}}}}, "algorithm 'fedbm'.*fedbn"),
        (CURVES, {"panels": {"A": {"x": {"algorithm": "fedbn"}}}}, "dataset is missing"),
        (CURVES, {"algorithms": ["fedbm"]}, "algorithm 'fedbm'.*fedbn"),
        (CURVES, {"smooth": 0}, "figure.smooth = 0"),
        (CURVES, {"take": "last"}, "take must not stand with form = 'curves'"),
        (POINTS, {"smooth": 3}, "smooth must not stand with form = 'points'"),
        (POINTS, {"along": "progress"}, "along must not stand with form = 'points'"),
        (CURVES, {"along": "time"}, "figure.along = 'time'"),
        (POINTS, {"take": "reached"}, "figure.take = 'reached'"),
        (POINTS, {"panels": {"A": {"BN": {"1": "e1"}}}}, "'BN' is a line by itself: must have one algorithm"),
        (POINTS, {"panels": {"A": {"BN": {"1": "e1"}, "4": "e4"}}}, "series and ticks"),
    ],
)
def test_figures_that_cannot_be_drawn_are_refused(raw: dict[str, Any], keys: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what) as refused:
        figure(raw, **keys)
    assert "\n" not in str(refused.value)
