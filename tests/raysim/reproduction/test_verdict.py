"""Verdicts on tables of numbers that are written down here."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partitioning
from raysim.common.errors import InputError
from raysim.reproduction.claim import Claim
from raysim.reproduction.file import Reproduction, differences
from raysim.reproduction.verdict import JudgedClaim, StudyNumbers
from raysim.studies.folder import LOST
from raysim.studies.read import Findings, lost_in, trial_rows

ACCURACIES = {"fedavg": [0.80, 0.82, 0.84], "fedbn": [0.85, 0.90, 0.83], "fedavg-2": [0.5, 0.6, 0.7]}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study's folder of two algorithms and three seeds, with a search and a trial that diverged."""
    folder = tmp_path_factory.mktemp("study")
    rows = []
    for name, values in ACCURACIES.items():
        for seed, value in enumerate(values, start=1):
            rows.append(_row(name, seed, test_accuracy=value))
            _curve(folder / "trials" / f"{name}-{seed}" / name.removesuffix("-2"), [0.1 * seed, value, value - 0.05])
            rows.append(
                {**_row(name, seed, test_accuracy=value + (0.02 if name == "fedbn" else 0.0)), "dataset": "usps"}
            )
    rows.append(_row("fedbn", 1, test_accuracy=0.1, chosen=False))
    rows.append(_row("fedbn", 9, test_accuracy=None, status="diverged"))
    rows.append(_row("fedyogi", 1, test_accuracy=None, status="diverged"))
    lost = {LOST: json.dumps([["digits", "fedprox", "fedprox on digits: no winner"]])}
    pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata(lost), folder / "trials.parquet")
    return folder


def _row(name: str, seed: int, **more: Any) -> dict[str, Any]:
    where = {"dataset": "digits", "algorithm": name, "point": "{}", "seed": seed, "fold": None, "validation": None}
    return {**where, "stage": "final", "chosen": True, "status": "done", "trial": f"{name}-{seed}", **more}


def numbers_of(folder: Path) -> StudyNumbers:
    table = pq.read_table(folder / "trials.parquet")
    return StudyNumbers(Findings(folder, {}, "", tuple(trial_rows(table)), lost_in(table)))


def _curve(folder: Path, values: list[float]) -> None:
    folder.mkdir(parents=True)
    rows: list[dict[str, Any]] = [{"round": number, "test_accuracy": None} for number in (1, 3, 5)]
    rows += [{"round": 2 * number, "test_accuracy": value} for number, value in enumerate(values, start=1)]
    pq.write_table(pa.Table.from_pylist(sorted(rows, key=lambda row: row["round"])), folder / "metrics.parquet")


def claim(**keys: Any) -> Claim:
    made = Claim(**{"says": "it", "dataset": "digits", "algorithm": "fedavg", "column": "test_accuracy", **keys})
    made.check()
    return made


@pytest.mark.parametrize(
    ("keys", "numbers", "verdict"),
    [
        ({"above": 0.79}, [0.80, 0.82, 0.84], "holds"),
        ({"above": 0.81}, [0.80, 0.82, 0.84], "holds in direction"),
        ({"below": 0.81}, [0.80, 0.82, 0.84], "does not hold"),
        ({"paper": 0.83, "within": 0.03}, [0.80, 0.82, 0.84], "holds"),
        ({"paper": 0.83, "within": 0.02}, [0.80, 0.82, 0.84], "holds in direction"),
        ({"paper": 0.83, "within": 0.011, "by_mean": True}, [0.80, 0.82, 0.84], "holds"),
        ({"paper": 0.83, "within": 0.009, "by_mean": True}, [0.80, 0.82, 0.84], "does not hold"),
        ({"algorithm": "fedbn", "minus": "fedavg", "above": 0}, [0.05, 0.08, -0.01], "holds in direction"),
        # A trial that diverged leaves no mean of all.
        ({"algorithm": "fedbn", "above": 0, "by_mean": True}, [0.85, 0.90, 0.83], "holds in direction"),
        # One trial of fedbn diverged, so no more than the direction can hold.
        (
            {"algorithm": "fedbn", "minus": "fedavg", "relative": True, "above": -0.02},
            [0.0625, 0.09756, -0.0119],
            "holds in direction",
        ),
        ({"algorithm": "radfed", "above": 0}, [], "not tested here"),
        # All trials of fedyogi diverged, and fedprox has no winner.
        ({"algorithm": "fedyogi", "above": 0}, [], "does not hold"),
        ({"algorithm": "fedprox", "minus": "fedavg", "above": -1}, [], "does not hold"),
        ({"tuned_with": ("fedprox",), "take": "reached", "level": 0.3, "below": 5}, [4, 4, 2], "holds in direction"),
        ({"dataset": "mnist", "above": 0}, [], "not tested here"),
        ({"minus_dataset": "mnist", "above": 0}, [], "not tested here"),
        (
            {"algorithm": "fedbn", "minus": "fedavg", "than_dataset": "usps", "below": 0},
            [-0.02, -0.02, -0.02],
            "holds in direction",
        ),
        ({"algorithm": "fedbn", "minus": "fedavg", "than_dataset": "mnist", "below": 0}, [], "not tested here"),
        ({"take": "last", "above": 0.7}, [0.75, 0.77, 0.79], "holds"),
        ({"take": "best", "above": 0.7}, [0.80, 0.82, 0.84], "holds"),
        ({"algorithm": "fedavg-2", "take": "best", "above": 0.4}, [0.5, 0.6, 0.7], "holds"),
        ({"take": "least", "above": 0.25}, [0.1, 0.2, 0.3], "does not hold"),
        ({"take": "mean", "above": 0.5}, [0.55, 0.59667, 0.64333], "holds"),
        ({"take": "jitter", "above": 0.3}, [0.375, 0.335, 0.295], "holds in direction"),
        ({"take": "mean", "until": 4, "above": 0.5}, [0.45, 0.51, 0.57], "holds in direction"),
        ({"take": "mean", "since": 0.6, "above": 0.7}, [0.775, 0.795, 0.815], "holds"),
        (
            {"algorithm": "fedbn", "minus": "fedavg", "take": "reached", "level": 0.845, "below": 0},
            [-float("inf"), -float("inf"), float("nan")],
            "does not hold",
        ),
        ({"take": "growth", "period": 2, "above": 0.6}, [0.70, 0.62, 0.54], "holds in direction"),
        ({"take": "reached", "level": 0.3, "below": 5}, [4, 4, 2], "holds"),
        # The other algorithm is at 0.81 in rounds 4, 4 and 4, where fedavg never comes; one of its trials failed.
        ({"take": "reached", "level": 0.81, "tuned_with": ("fedbn",), "below": 5}, [4, 4, 4], "holds in direction"),
        ({"take": "reached", "level": 0.81, "below": 5}, [float("inf"), 4, 4], "does not hold"),
    ],
)
def test_verdicts(study: Path, keys: dict[str, Any], numbers: list[float], verdict: str) -> None:
    judged = numbers_of(study).judge(claim(**keys))
    assert judged.numbers == pytest.approx(numbers, abs=1e-4, nan_ok=True)
    assert judged.verdict == verdict


def test_a_client_s_own_number_is_in_the_table_of_clients(tmp_path: Path) -> None:
    for seed, value in ((1, 0.6), (2, 0.8)):
        folder = tmp_path / "trials" / f"fedavg-{seed}" / "fedavg"
        _curve(folder, [0.5])
        clients = {"name": ["cleveland", "va"], "test_accuracy": [0.1, value]}
        pq.write_table(pa.table(clients), folder / "clients.parquet")
    rows = [_row("fedavg", seed, test_accuracy=0.3) for seed in (1, 2)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "trials.parquet")
    measured = numbers_of(tmp_path)
    assert measured.judge(claim(client="va", above=0)).numbers == (0.6, 0.8)
    with pytest.raises(InputError, match=r"client 'vaa'.*va"):
        measured.judge(claim(client="vaa", above=0))
    with pytest.raises(InputError, match=r"column 'test_auc' of .*test_accuracy"):
        measured.judge(claim(client="va", column="test_auc", above=0))
    (tmp_path / "trials" / "fedavg-2" / "fedavg" / "clients.parquet").unlink()
    with pytest.raises(InputError, match=r"fedavg-2 has no clients.parquet: .*evaluate.clients = true"):
        measured.judge(claim(client="va", above=0))


def test_each_partition_has_its_own_number(tmp_path: Path) -> None:
    rows = [_row("fedavg", 1, test_accuracy=0.2 * drawn, partition_seed=drawn) for drawn in (1, 2)]
    rows += [_row("fedbn", 1, test_accuracy=0.3 * drawn, partition_seed=drawn) for drawn in (1, 2)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "trials.parquet")
    measured = numbers_of(tmp_path)
    assert measured.judge(claim(above=0)).numbers == (0.2, 0.4)
    leads = measured.judge(claim(algorithm="fedbn", minus="fedavg", above=0)).numbers
    assert leads == pytest.approx((0.1, 0.2))


def test_the_spread_is_over_the_splits(study: Path) -> None:
    judged = numbers_of(study).judge(claim(above=0))
    assert judged.mean == pytest.approx(0.82) and judged.spread == pytest.approx(0.02)
    assert JudgedClaim(claim(above=0), (0.5,)).spread is None


def test_who_never_is_at_a_level_is_infinitely_late(study: Path) -> None:
    late = {"minus": "fedavg", "take": "reached", "level": 0.845, "relative": True, "below": 0}
    judged = numbers_of(study).judge(claim(algorithm="fedbn", **late))
    assert judged.numbers[:2] == (-1, -1) and judged.verdict == "does not hold"
    assert np.isnan(JudgedClaim(claim(below=5), (float("inf"), 4.0)).spread or 0)


def test_what_is_no_number_bears_nothing_out(tmp_path: Path) -> None:
    """Parts of nothing, and what is no number, in the first round or the last."""
    for place, values in enumerate(([np.nan, 0.5], [0.5, np.nan]), start=1):
        _curve(tmp_path / "trials" / f"fedavg-{place}" / "fedavg", values)
    rows = [_row("fedavg", seed, test_accuracy=0.0) for seed in (1, 2)] + [_row("fedbn", 1, test_accuracy=None)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "trials.parquet")
    measured = numbers_of(tmp_path)
    for keys in ({"take": "best"}, {"take": "least"}, {"minus": "fedavg", "relative": True}):
        judged = measured.judge(claim(**keys, above=-1))
        assert np.isnan(judged.numbers).tolist() == [True, True] and judged.verdict == "does not hold"
    assert JudgedClaim(claim(above=0), (float("inf"), -float("inf"))).verdict == "does not hold"
    with pytest.raises(InputError, match="fedbn-1 has no test_accuracy"):
        measured.judge(claim(algorithm="fedbn", above=0))


def test_the_second_of_a_name_is_the_first_of_its_run(tmp_path: Path) -> None:
    _curve(tmp_path / "trials" / "fedavg-2-1" / "fedavg", [0.5, 0.7])
    pq.write_table(pa.Table.from_pylist([_row("fedavg-2", 1, test_accuracy=0.6)]), tmp_path / "trials.parquet")
    assert numbers_of(tmp_path).judge(claim(algorithm="fedavg-2", take="last", above=0)).numbers == (0.7,)


def test_time_and_rounds_of_a_trial_are_columns(tmp_path: Path) -> None:
    rows = [_row("fedavg", 1, test_accuracy=0.6, seconds=2.5, rounds=7)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "trials.parquet")
    for column, value in (("seconds", 2.5), ("rounds", 7.0)):
        assert numbers_of(tmp_path).judge(claim(column=column, above=0)).numbers == (value,)


def test_a_column_that_nobody_measured_is_refused(study: Path) -> None:
    with pytest.raises(InputError, match=r"claim 'it': .*test_acuracy.*test_accuracy"):
        numbers_of(study).judge(claim(column="test_acuracy", above=0))


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({}, "no condition"),
        ({"above": 0, "below": 1}, "above and below"),
        ({"within": 1}, "no paper"),
        ({"take": "reached", "above": 1}, "level"),
        ({"level": 3, "above": 1}, "level"),
        ({"client": "va", "take": "best", "above": 1}, "client"),
        ({"tuned_with": ("fedbn",), "above": 1}, "tuned_with"),
        ({"untested": "hours", "above": 1}, "hours"),
        ({"untested": "data", "hours": 3, "above": 1}, "hours"),
        ({"take": "growth", "above": 1}, "period"),
        ({"period": 3, "above": 1}, "period"),
        ({"than_dataset": "mnist", "above": 1}, "than_dataset"),
        ({"since": 0.5, "above": 1}, "since or until"),
        ({"take": "mean", "since": 0.5, "until": 0.4, "above": 1}, "must not begin after its end"),
    ],
)
def test_claims_that_cannot_be_judged_are_refused(keys: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what):
        claim(**keys)


STUDY: dict[str, Any] = {
    "rounds": 100,
    "algorithm": [{"name": "fedavg"}, {"name": "fedbn"}],
    "study": {"seeds": [1, 2, 3], "datasets": {"mnist": {"rounds": 50}, "digits": {}}},
    "reproduction": {"paper": "A", "place": "Table 1"},
    "claim": [{"says": "it", "dataset": "digits", "algorithm": "fedavg", "column": "loss", "below": 1}],
}


def test_the_reduced_setting_is_the_papers_with_less() -> None:
    reduced = {"datasets": ["digits"], "algorithms": ["fedbn"], "set": {"rounds": 5, "study.seeds": [1]}}
    made = Reproduction.of({**STUDY, "reduced": reduced}, "a")
    assert made.study(full=True) == {key: STUDY[key] for key in ("rounds", "algorithm", "study")}
    less = made.study(full=False, changes=["rounds=7"])
    assert less["rounds"] == 7 and less["study"] == {"seeds": [1], "datasets": {"digits": {}}}
    assert less["algorithm"] == [{"name": "fedbn"}]


def test_reduced_passes_stand_for_the_papers_rounds() -> None:
    raw = {**STUDY, "reduced": {"without": ["rounds"], "set": {"epochs": 3}}}
    made = Reproduction.of(raw, "small")
    assert made.study(full=True)["rounds"] == STUDY["rounds"] and "epochs" not in made.study(full=True)
    assert made.study(full=False)["epochs"] == 3 and "rounds" not in made.study(full=False)


@pytest.mark.parametrize("key", ["datasets", "algorithms"])
def test_what_is_not_in_the_study_cannot_be_left_of_it(key: str) -> None:
    with pytest.raises(InputError, match="digit"):
        Reproduction.of({**STUDY, "reduced": {key: ["digit"]}}, "a").study(full=False)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"claim": [3]}, r"\[\[claim\]\]"),
        ({"claim": [{**STUDY["claim"][0], "dataset": "mnst"}]}, "data set 'mnst': .*mnist"),
        ({"claim": [{**STUDY["claim"][0], "minus": "fedabn"}]}, "algorithm 'fedabn': .*fedbn"),
        ({"claim": [{**STUDY["claim"][0], "relative": True}]}, "relative"),
        ({"algorithm": [3]}, "algorithm = "),
    ],
)
def test_a_file_that_is_wrong_is_refused_before_it_is_run(change: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what):
        Reproduction.of({**STUDY, **change}, "small")


def test_keys_of_the_paper_are_left_out() -> None:
    made = Reproduction.of({**STUDY, "reduced": {"without": ["study.datasets.mnist.rounds"]}}, "a")
    assert made.study(full=False)["study"]["datasets"] == {"mnist": {}, "digits": {}}
    assert list(differences(made)) == [("study.datasets.mnist.rounds", 50, None)]
    with pytest.raises(InputError, match=r"study\.rounds"):
        Reproduction.of({**STUDY, "reduced": {"without": ["study.rounds"]}}, "a").study(full=False)


def test_the_second_of_a_name_is_kept_with_the_first() -> None:
    study = {**STUDY, "algorithm": [{"name": "fedavg"}, {"name": "fedavg", "fraction": 0.5}, {"name": "fedbn"}]}
    made = Reproduction.of({**study, "reduced": {"algorithms": ["fedavg", "fedavg-2"]}}, "a").study(full=False)
    assert made["algorithm"] == study["algorithm"][:2]
    with pytest.raises(InputError, match="name the first algorithm"):
        Reproduction.of({**study, "reduced": {"algorithms": ["fedavg-2"]}}, "a").study(full=False)


def test_a_population_is_measured(study: Path, tmp_path: Path) -> None:
    """Two clients of 3 and 1 samples: as RADFed's Table I has them. All seeds have the same clients."""
    table = pa.table({"x": [0.0, 1.0, 2.0, 3.0], "who": ["a", "a", "a", "b"], "label": [0, 0, 1, 1]})
    partitioning.make(table, tmp_path / "population", scheme="natural", column="who", features=())
    config = f'[data]\npopulation = "{tmp_path / "population"}"\n'
    for seed in (1, 2, 3):
        (tmp_path / "trials" / f"fedavg-{seed}").mkdir(parents=True)
        (tmp_path / "trials" / f"fedavg-{seed}" / "config.toml").write_text(config, encoding="utf-8")
    pq.write_table(pq.read_table(study / "trials.parquet"), tmp_path / "trials.parquet")
    measured = numbers_of(tmp_path)
    for column, number in (("min", 1), ("max", 3), ("mean", 2), ("std", 1), ("c_score", 2 / 3)):
        judged = measured.judge(claim(column=column, take="population", paper=number, within=1e-9))
        assert judged.verdict == "holds" and len(judged.numbers) == 1
    with pytest.raises(InputError, match="'size' of a population"):
        measured.judge(claim(column="size", take="population", above=0))
