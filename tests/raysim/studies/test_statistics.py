"""Means, pairs and tests of significance, against examples that were worked by hand."""

import time
from itertools import compress, product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from raysim.studies.read import read_findings
from raysim.studies.statistics import ResultRow, averages, holm, rows_of, signed_rank
from tests.kit.studies import trial, trials, write_study

# Darwin's fifteen pairs of maize, crossed less self-fertilised, in eighths of an inch: rank sums of 96 and 24.
MAIZE = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]


def rows(folder: Path) -> dict[str, ResultRow]:
    return {row.algorithm: row for row in rows_of(read_findings(folder))}


def test_the_signed_rank_test_gives_the_textbook_example() -> None:
    pairs, p, method, direction = signed_rank(MAIZE)
    uneven = sum(sum(rank for rank, sign in enumerate(signs, 1) if sign) <= 24 for signs in product([0, 1], repeat=15))
    assert p == pytest.approx(2 * uneven / 2**15) == pytest.approx(0.041259765625)
    assert (pairs, method, direction) == (15, "exact", 1)


def test_equal_differences_share_ranks_and_p_stays_exact() -> None:
    # Ranks 2, 2, 2, 4.5, 4.5, of which one 2 is negative: four of the 32 signs give a negative sum of 2 or less.
    _, p, method, _ = signed_rank([1, 1, -1, 2, 2])
    assert p == pytest.approx(2 * 4 / 32)
    assert method == "exact with ties"


def p_over_signs(differences: list[int]) -> float:
    """Return the two-sided p of the sum of positive ranks, with every pattern of signs written out."""
    sizes = sorted(map(abs, differences))
    ranks = [sizes.index(abs(each)) + (sizes.count(abs(each)) + 1) / 2 for each in differences]
    above = sum(rank for rank, each in zip(ranks, differences, strict=True) if each > 0)
    sums = [sum(compress(ranks, signs)) for signs in product([0, 1], repeat=len(ranks))]
    return min(1.0, 2 * min(sum(each <= above for each in sums), sum(each >= above for each in sums)) / len(sums))


@pytest.mark.parametrize("seed", range(12))
def test_with_ties_p_is_that_of_all_signs(seed: int) -> None:
    draw = np.random.default_rng(seed)
    differences = [*draw.choice([-3, -2, -1, 1, 2, 3, 4], size=draw.integers(3, 10)).tolist(), 1, 1]
    _, p, method, _ = signed_rank(differences)
    assert method == "exact with ties" and p == p_over_signs(differences)
    if len(differences) < 8:
        assert p == stats.wilcoxon(differences, method=stats.PermutationMethod(n_resamples=2**10)).pvalue


def test_sixteen_tied_pairs_do_not_write_out_all_signs() -> None:
    differences = [0.01 * each for each in (1, 1, *range(2, 11), -1, -2, -3, 11, 12)]
    began = time.process_time()
    assert signed_rank(differences) == (16, 0.00274658203125, "exact with ties", 1)
    assert time.process_time() - began < 3  # 15 s with all signs one by one


def test_zeros_are_left_out_also_where_only_floating_point_makes_them_none() -> None:
    pairs, p, method, _ = signed_rank([0, 0.1 + 0.2 - 0.3, 1, 2, 3, 4, 5, 6])
    assert (pairs, p, method) == (6, 2 / 2**6, "exact")
    assert signed_rank([0.3 - 0.2, 0.2 - 0.1, -0.3]).method == "exact with ties"


def test_many_tied_pairs_take_the_normal_approximation() -> None:
    differences = [1] * 10 + [2] * 6 + [-1] * 4
    # Ranks 7.5 of fourteen ones, 17.5 of six twos; mean n (n + 1) / 4, variance less (t^3 - t) / 48 for each t equal.
    negative, mean = 4 * 7.5, 20 * 21 / 4
    variance = 20 * 21 * 41 / 24 - (14**3 - 14 + 6**3 - 6) / 48
    z = (mean - negative - 0.5) / np.sqrt(variance)
    _, p, method, _ = signed_rank(differences)
    assert method == "normal approximation"
    assert z == pytest.approx(2.9082, abs=1e-4)
    assert p == pytest.approx(0.0036, abs=1e-4)


def test_few_pairs_have_a_least_p_and_none_have_no_p() -> None:
    few, none = signed_rank([1, 2, 3, 4]), signed_rank([0, 0])
    assert few.p == few.p_least == 0.125
    assert none == signed_rank([]) == (0, None, "none", 0)
    assert none.p_least is None


def test_the_direction_is_that_of_the_rank_sums() -> None:
    assert [signed_rank(each).direction for each in ([1, 2, -4, 3], [-1, 2, -3], [1, -1], [1, 2, -3])] == [1, -1, 0, 0]


def test_holm_by_hand() -> None:
    # 4 x 0.005, 3 x 0.01, 2 x 0.03, and 1 x 0.04, which may not be below the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, None, 0.6]) == [1.0, None, 1.0]
    assert holm([]) == []


def test_validation_folds_are_averaged_before_anything_else(tmp_path: Path) -> None:
    first = [trial("fedavg", 1, 0, value, validation=fold) for fold, value in ((1, 0.2), (2, 0.4), (3, 0.6))]
    row = rows(write_study(tmp_path, [*first, trial("fedavg", 1, 1, 0.8, validation=2)]))["fedavg"]
    assert row.n == 2
    assert row.mean == pytest.approx((0.4 + 0.8) / 2)
    assert row.std == pytest.approx(np.sqrt(2) * 0.2)


def test_differences_are_paired_and_in_per_cent_of_the_baseline(tmp_path: Path) -> None:
    base, ours = [0.5, 0.6, 0.7, 0.8, 0.7, 0.6], [0.51, 0.62, 0.73, 0.84, 0.75, 0.66]
    found = rows(write_study(tmp_path, [*trials("fedavg", base), *trials("radfed", ours)]))
    assert found["fedavg"].difference is None
    difference = found["radfed"].difference
    assert difference is not None
    assert difference.mean == pytest.approx(0.035)
    assert difference.relative == pytest.approx(100 * 0.035 / 0.65)
    assert difference.test.p == difference.p_holm == 2 / 2**6
    assert difference.significant


def test_p_is_corrected_for_the_algorithms_of_a_data_set_alone(tmp_path: Path) -> None:
    names, base = ("radfed", "fedprox"), [0.5] * 6
    ahead = [0.51, 0.52, 0.53, 0.54, 0.55, 0.56]
    both = [row for name in names for row in trials(name, ahead)]
    alone = trials("radfed", ahead, dataset="mnist")
    study = write_study(tmp_path, [*trials("fedavg", base), *both, *trials("fedavg", base, dataset="mnist"), *alone])
    found = {(row.dataset, row.algorithm): row.difference for row in rows_of(read_findings(study))}
    assert {of: each.p_holm for of, each in found.items() if each and each.pairs} == {
        ("digits", "radfed"): 0.0625,
        ("digits", "fedprox"): 0.0625,
        ("mnist", "radfed"): 0.03125,
    }
    assert not found["digits", "radfed"].significant and found["mnist", "radfed"].significant


def test_trials_without_a_partner_are_left_out_and_counted(tmp_path: Path) -> None:
    base = trials("fedavg", [0.5, 0.6, None, 0.8])
    base[2]["status"] = "diverged"
    ours = [*trials("radfed", [0.6, None, 0.9, 0.9]), trial("radfed", 5, 0, 1.0)]
    ours[1]["status"] = "failed"
    row = rows(write_study(tmp_path, [*base, *ours]))["radfed"]
    assert row.difference is not None
    assert (row.difference.pairs, row.difference.unpaired) == (2, 3)
    assert row.difference.mean == pytest.approx(0.1)
    assert row.statuses == {"done": 4, "failed": 1}
    assert row.n == 4


def test_a_validation_fold_that_one_side_lost_counts_on_neither(tmp_path: Path) -> None:
    base = [trial("fedavg", 1, 0, value, validation=fold) for fold, value in ((1, 0.5), (2, 0.1))]
    ours = [trial("radfed", 1, 0, 0.6, validation=1), trial("radfed", 1, 0, validation=2, status="diverged")]
    difference = rows(write_study(tmp_path, [*base, *ours]))["radfed"].difference
    assert difference is not None
    assert (difference.pairs, difference.unpaired) == (1, 1)
    assert (difference.mean, difference.baseline) == (pytest.approx(0.1), 0.5)


def test_only_final_trials_of_the_chosen_point_count(tmp_path: Path) -> None:
    lost = trial("fedavg", 1, 0, 0.1, stage="search", chosen=False, point='{"a": 1}')
    tuned = trial("fedavg", 9, 0, 0.1, stage="search", point='{"a": 2}')
    row = rows(write_study(tmp_path, [lost, tuned, trial("fedavg", 2, 0, 0.7, point='{"a": 2}')]))["fedavg"]
    assert (row.n, row.mean, row.point) == (1, 0.7, '{"a": 2}')


# RADFed, Table III: fedavg's score, and what the others are ahead of it in per cent; its last line is the average.
TABLE = """
82.88 0.84 2.11 0.39 2.74 3.03 2.20 3.00 2.28
51.71 0.33 0.75 0.54 4.04 4.51 3.04 3.83 3.96
87.61 0.37 0.34 -1.45 3.23 2.59 2.49 3.37 1.96
78.79 1.29 0.93 -1.50 5.01 4.28 3.96 4.78 5.29
93.87 0.03 -0.20 -0.26 0.16 0.23 0.26 0.26 0.33
90.62 0.38 0.06 -0.23 2.27 0.09 2.24 2.16 2.32
97.29 0.13 -0.05 0.11 0.16 0.23 0.23 0.41 0.47
96.95 0.15 -0.17 0.10 0.24 0.29 0.36 0.20 0.42
92.21 0.00 0.11 0.05 0.11 0.08 0.13 0.11 0.11
"""
AVERAGE = [85.77, 0.37, 0.38, -0.26, 1.79, 1.47, 1.51, 1.82, 1.71]


def test_averages_over_data_sets_are_those_of_the_paper(tmp_path: Path) -> None:
    lines = [[float(number) for number in line.split()] for line in TABLE.split("\n") if line]
    names = ["fedavg", *(f"other{number}" for number in range(8))]
    found = [
        trial(name, 1, 0, line[0] / 100 * (1 + (ahead / 100 if name != "fedavg" else 0)), dataset=f"set{number}")
        for number, line in enumerate(lines)
        for name, ahead in zip(names, line, strict=True)
    ]
    average = averages(rows_of(read_findings(write_study(tmp_path, found))))
    assert 100 * average.pop("fedavg") == pytest.approx(AVERAGE[0], abs=0.01)
    assert [average[name] for name in names[1:]] == pytest.approx(AVERAGE[1:], abs=0.02)
