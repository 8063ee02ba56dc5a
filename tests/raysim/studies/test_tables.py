"""The tables: what stands where, what is bold and starred, and that no name breaks them."""

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from partitioning.common.text import latex
from raysim.common.errors import InputError
from raysim.common.units import human_seconds
from raysim.config.reference import is_bound
from raysim.studies.concluding import conclude
from raysim.studies.course import StudyProgress
from raysim.studies.folder import TRIALS
from raysim.studies.read import read_findings
from raysim.studies.search import Search, SearchedPoint, edge_notes, search_chart
from raysim.studies.statistics import rows_of, tallies_of
from raysim.studies.tables import contests, details, differences, markdown_table, progress_table
from raysim.studies.words import MetricColumn, caption, caption_of_means, notes, percent
from tests.kit.studies import SCHEMA, point, trial, trials, write_study

BASE, AHEAD = [0.5, 0.6, 0.7, 0.8, 0.7, 0.6], [0.51, 0.62, 0.73, 0.84, 0.75, 0.66]


def shown(folder: Path) -> list[list[str]]:
    """The table of differences as Markdown has it, cell by cell, without its head."""
    study = read_findings(folder)
    lines = markdown_table(differences(study, rows_of(study))).splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_baseline_is_absolute_and_the_others_are_relative(tmp_path: Path) -> None:
    behind = [value - 0.05 for value in AHEAD]
    found = [*trials("fedprox", behind), *trials("radfed", AHEAD), *trials("fedavg", BASE)]
    study = read_findings(write_study(tmp_path, found))
    assert study.algorithms == ["fedavg", "fedprox", "radfed"]
    assert shown(tmp_path) == [["digits", "(65.00)", "-2.31", "**+5.38**"]]
    assert "n = 5 to 6 differing pairs" in caption(study, rows_of(study))


def test_bold_is_the_best_of_the_differences_shown_not_of_unpaired_means(tmp_path: Path) -> None:
    lost = trial("fedprox", 5, 0, status="diverged")
    write_study(tmp_path, [*trials("fedavg", [0.9, 0.9, 0.9, 0.9, 0.5]), *trials("fedprox", [0.89] * 4), lost])
    assert shown(tmp_path) == [["digits", "**(82.00)**", "-1.11"]]


def test_without_a_baseline_nothing_is_bold_and_no_caption_speaks_of_p(tmp_path: Path) -> None:
    lost = [row | {"status": "diverged"} for row in trials("fedavg", [None] * 6)]
    found = read_findings(write_study(tmp_path, [*lost, *trials("fedprox", BASE), *trials("radfed", AHEAD)]))
    assert shown(tmp_path) == [["digits", "–", "–", "–"]]
    rows = rows_of(found)
    assert "p <" not in caption(found, rows) + caption_of_means(found, rows)
    assert "fedavg, the baseline, has no results" in caption(found, rows)


@pytest.mark.parametrize(
    ("values", "chosen", "note"),
    [
        ([0.01, 0.1, 1.0], 1.0, "The chosen local.lr = 1 of fedavg on digits is the largest value of its grid"),
        ([0.01, 0.1, 1.0], 0.01, "local.lr = 0.01 of fedavg on digits is the smallest value .*; add smaller values"),
        ([0.01, 0.1, 1.0], 0.1, ""),
        ([0.0, 0.1], 0.0, "local.lr = 0 of fedavg on digits is the smallest"),
        (["constant", "cosine"], "cosine", ""),
    ],
)
def test_a_winner_at_the_edge_of_its_grid_is_told(tmp_path: Path, values: list[Any], chosen: Any, note: str) -> None:
    keys = [point(**{"local.lr": value}) for value in values]
    picked = point(**{"local.lr": chosen})
    found = [each | {"point": key, "chosen": key == picked} for key in keys for each in trials("fedavg", BASE)]
    folder = write_study(tmp_path, found)
    notes_on_edges = edge_notes(read_findings(folder))
    assert len(notes_on_edges) == bool(note) and all(re.search(note, each) for each in notes_on_edges)
    conclude(folder)
    for each in notes_on_edges:
        assert each in (folder / "report.html").read_text() and "local.lr" in (folder / "table.md").read_text()


def test_values_that_differ_in_late_digits_are_points_of_their_own() -> None:
    values = (0.9999999, 0.99999999, 0.999)
    search = Search("digits", "fedavg", tuple(SearchedPoint(point(beta=each), (each,), False) for each in values))
    (panel,) = search_chart("search", search, MetricColumn.of("validation_accuracy")).values["panels"]
    assert panel["ticks"] == ["0.999", "0.9999999", "0.99999999"]


@pytest.mark.parametrize(
    ("key", "value", "held"),
    [
        ("clusters", 2, True),
        ("clusters", 3, False),
        ("local.weight_decay", 0.0, True),
        ("local.lr", 1e-3, False),
        ("fraction", 1.0, True),
        ("local.lr", 10.0, False),
    ],
)
def test_a_bound_of_a_key_is_no_edge(key: str, value: float, held: bool) -> None:
    assert is_bound(key, value) == held


def test_a_significant_difference_has_a_star(tmp_path: Path) -> None:
    write_study(tmp_path, [*trials("fedavg", BASE), *trials("radfed", AHEAD)])
    assert shown(tmp_path) == [["digits", "(65.00)", "**+5.38\\***"]]
    columns = details(read_findings(tmp_path), rows_of(read_findings(tmp_path))).columns
    assert [each.cells[1] for each in columns] == ["68.50 ± 11.47", "6", "+5.38", "6", "0.031", "0.031", "–"]
    assert [place for place, each in enumerate(columns) if 1 in each.starred] == [2]


def test_virtual_times_to_a_target_are_means_of_the_trials_that_reached_it(tmp_path: Path) -> None:
    column = "virtual_seconds_to_held_out_accuracy"
    times: list[list[float | None]] = [[60.0, 120.0], [30.0, None], [None, None]]
    found = [
        row | {column: seconds}
        for name, own in zip(("fedavg", "radfed", "fedprox"), times, strict=True)
        for row, seconds in zip(trials(name, [0.5, 0.6]), own, strict=True)
    ]
    folder = write_study(tmp_path, [])
    pq.write_table(pa.Table.from_pylist(found, SCHEMA.append(pa.field(column, pa.float64()))), folder / TRIALS)
    with (folder / "study.toml").open("a", encoding="utf-8") as file:
        file.write("[evaluate.target]\nheld_out_accuracy = 0.7\n")
    study = read_findings(folder)
    columns = {each.title: each.cells for each in details(study, rows_of(study)).columns}
    cells = dict(zip(study.algorithms, columns["virtual time to held_out_accuracy 0.7"], strict=True))
    assert list(columns)[-1] == "hyper-parameters"  # The page leaves out the last column.
    assert cells == {"fedavg": human_seconds(90), "radfed": f"{human_seconds(30)} (1 of 2)", "fedprox": "–"}


def test_of_a_loss_the_smallest_is_best_and_values_are_as_they_are(tmp_path: Path) -> None:
    found = [
        row | {"held_out_loss": row["held_out_accuracy"]} for row in [*trials("fedavg", BASE), *trials("b", AHEAD)]
    ]
    study = read_findings(write_study(tmp_path, found, metric="held_out_loss"))
    assert shown(tmp_path) == [["digits", "**(0.6500)**", "+5.38\\*"]]
    assert "smaller is better" in caption(study, rows_of(study))
    assert str(tallies_of(study)["fedavg", "b"]) == "1 / 0 / 0"


def test_several_data_sets_have_a_row_of_means_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = [
        *trials("fedavg", [0.4, 0.4], dataset="b"),
        *trials("radfed", [0.5, 0.5], dataset="b"),
        *trials("fedavg", [0.6, 0.6], dataset="a"),
        *trials("radfed", [0.6, 0.6], dataset="a"),
        *trials("fedprox", [0.6, 0.6], dataset="a"),
    ]
    write_study(tmp_path, found, datasets={"a": {}, "b": {}})
    assert shown(tmp_path) == [
        ["a", "**(60.00)**", "**0.00**", "**0.00**"],
        ["b", "(40.00)", "**+25.00**", "–"],
        ["mean", "(50.00)", "**+10.00**", "–"],
    ]


def test_the_caption_counts_no_pairs_where_none_differs(tmp_path: Path) -> None:
    study = read_findings(write_study(tmp_path, [*trials("fedavg", BASE), *trials("radfed", BASE)]))
    assert "two-sided signed-rank test, corrected" in caption(study, rows_of(study))


def test_what_a_reader_has_to_know_is_said(tmp_path: Path) -> None:
    lost = trial("fedprox", 3, 0, status="diverged")
    found = [*trials("fedavg", [0.5, 0.5, 0.5]), *trials("fedprox", [0.5, 0.5]), lost, *trials("b", [0.6, 0.5, 0.7])]
    study = read_findings(write_study(tmp_path, found))
    said = notes(study, rows_of(study))
    assert said == [
        "1 of 3 trials diverged and is left out: fedprox on digits.",
        "The comparison leaves out trials without a partner (1): fedprox on digits.",
        "No p, because no pair differs: fedprox on digits.",
        "The test leaves out pairs without a difference (1 of 3): b on digits.",
        "P cannot be below 0.5 with 2 differing pairs: b on digits.",
    ]


@pytest.mark.parametrize("whole", ["fedavg", "fedprox", "radfed"])
def test_a_note_about_some_of_three_algorithms_names_them(tmp_path: Path, whole: str) -> None:
    names = ("fedavg", "fedprox", "radfed")
    found = [row for place, name in enumerate(names) for row in trials(name, [0.1 * place + each for each in BASE])]
    lost = [trial(name, 7, 0, status="diverged") for name in names if name != whole]
    study = read_findings(write_study(tmp_path, [*found, trial(whole, 7, 0, 0.5), *lost]))
    named = ", ".join(f"{name} on digits" for name in names if name != whole)
    assert f"1 of 7 trials diverged and is left out: {named}." in notes(study, rows_of(study))


def test_a_note_about_every_comparison_says_so_if_there_are_several(tmp_path: Path) -> None:
    few = [*trials("fedavg", BASE[:3]), *trials("fedprox", AHEAD[:3]), *trials("radfed", AHEAD[:3])]
    study = read_findings(write_study(tmp_path / "three", few))
    assert notes(study, rows_of(study)) == ["P cannot be below 0.25 with 3 differing pairs: in all comparisons."]
    datasets = [row for name in "ab" for row in trials("fedavg", BASE[:3], dataset=name)]
    one = read_findings(write_study(tmp_path / "one", [*datasets, *trials("fedprox", AHEAD[:3], dataset="a")]))
    assert "P cannot be below 0.25 with 3 differing pairs: fedprox on a." in notes(one, rows_of(one))


def test_names_break_no_table(tmp_path: Path) -> None:
    odd = "a_b & 50% #1 {x} ~ ^ \\ $ | *"
    found = [*trials("fedavg", BASE, dataset=odd), *trials("my_own", AHEAD, dataset=odd, point=point(key_x="a|b&c_d"))]
    conclude(write_study(tmp_path / "my_study", found))
    for line in (tmp_path / "my_study" / "table.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) in (4, 5, 10)
    text = (tmp_path / "my_study" / "table.tex").read_text(encoding="utf-8")
    assert r"a\_b \& 50\% \#1 \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{} \$ $|$ *" in text
    check_latex(text)


def check_latex(text: str) -> None:
    """What is needed to compile: braces and environments that match, rows as wide as the table, no active sign."""
    text = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    plain = re.sub(r"\\[\\&%$#_{}]", "", text)
    assert plain.count("{") == plain.count("}")
    assert re.findall(r"\\begin{(\w+)}", text) == ["table", "tabular"] * 4
    assert re.findall(r"\\end{(\w+)}", text) == ["tabular", "table"] * 4
    assert text.isascii()
    assert plain.count("$") % 2 == 0
    assert not re.search(r"(?<!\\)[_#%~^](?!\*\$)", text)
    for columns, body in re.findall(r"\\begin{tabular}{(\w+)}(.*?)\\end{tabular}", text, re.DOTALL):
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert rows
        assert {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows} == {len(columns)}


def test_what_has_to_be_said_stands_above_the_latex_table(tmp_path: Path) -> None:
    conclude(write_study(tmp_path, [*trials("fedavg", [0.5, 0.6]), *trials("radfed", [0.6, None], status="diverged")]))
    text = (tmp_path / "table.tex").read_text(encoding="utf-8")
    assert text.startswith(
        "% Needs \\usepackage{booktabs}.\n% 2 of 2 trials diverged and are left out: radfed on digits."
    )


def test_minus_is_a_minus_in_latex(tmp_path: Path) -> None:
    conclude(write_study(tmp_path, [*trials("fedavg", AHEAD), *trials("radfed", BASE)]))
    assert r"digits & \textbf{(68.50)} & $-$5.11$^*$ \\" in (tmp_path / "table.tex").read_text(encoding="utf-8")
    assert latex("±") == r"$\pm$"


@pytest.mark.parametrize(("value", "text"), [(2.744, "+2.74"), (-1.45, "-1.45"), (-0.001, "0.00"), (None, "–")])
def test_relative_differences_have_a_sign_but_zero(value: float | None, text: str) -> None:
    assert percent(value) == text


def test_metrics_in_words() -> None:
    assert MetricColumn.of("held_out_mean_macro_f1").title == "Macro F1 × 100"
    assert MetricColumn.of("domain_sketch_accuracy").target == "domain sketch"
    assert MetricColumn.of("test_loss").text(0.5) == "0.5000"
    for name in ("speed", "domain_sketch_speed"):
        with pytest.raises(InputError, match=rf"unknown metric '{name}': .*must be one of test_accuracy"):
            MetricColumn.of(name)


def test_a_metric_of_one_s_own_has_its_name_and_its_values(tmp_path: Path) -> None:
    column = MetricColumn.of("held_out_mean_balanced_accuracy")
    assert (column.target, column.title) == ("Held-out clients, mean", "balanced_accuracy")
    found = [row | {"held_out_gain": 20 * row["held_out_accuracy"]} for row in trials("fedavg", [0.5, 0.6])]
    folder = write_study(tmp_path, found, metric="held_out_gain")
    pq.write_table(pa.Table.from_pylist(found, SCHEMA.append(pa.field("held_out_gain", pa.float64()))), folder / TRIALS)
    conclude(folder)
    text = (folder / "table.md").read_text(encoding="utf-8")
    assert "11.0000 ± 1.4142" in text and "gain (held-out clients, pooled; larger is better)" in text


def test_values_of_the_clients_that_chose_the_points_are_told(tmp_path: Path) -> None:
    tried = [trial("fedavg", 1, 0, 0.4, point=point(rate=2), **searching())]
    for rows, metric, is_told in (
        ([*trials("fedavg", BASE), *tried], "validation_accuracy", True),
        ([*trials("fedavg", BASE), *tried], "held_out_accuracy", False),
        (trials("fedavg", BASE), "validation_accuracy", False),
    ):
        study = read_findings(write_study(tmp_path, rows, metric=metric))
        assert any("too favourable" in text for text in notes(study, rows_of(study))) == is_told


def test_test_folds_whose_clients_chose_the_points_are_told(tmp_path: Path) -> None:
    final = [trial("fedavg", 1, fold, 0.5, validation=(fold + 1) % 3) for fold in range(3)]
    for folds, metric, note in (
        ((0, 1, 2), "held_out_accuracy", "of 3 of 3 test folds .* favourable; name fewer folds in study.tune.folds"),
        ((0,), "held_out_accuracy", "of 1 of 3 test folds .* favourable\\."),
        ((), "held_out_accuracy", ""),
        ((0,), "held_out_loss", "of 1 of 3"),
        ((0,), "test_accuracy", ""),
    ):
        tried = [
            trial("fedavg", 1, fold, 0.4, point=point(rate=2), validation=(fold + 1) % 3, **searching())
            for fold in folds
        ]
        study = read_findings(write_study(tmp_path, [*final, *tried]))
        study = replace(study, config={"study": {**study.config["study"], "metric": metric}})
        said = [text for text in notes(study, rows_of(study)) if "test folds" in text]
        assert len(said) == bool(note) and all(re.search(note, text) for text in said)


def screen(found: list[dict[str, object]], planned: dict[tuple[str, str], int]) -> str:
    columns = ("validation_accuracy", "held_out_accuracy")
    progress = StudyProgress(Path(), pa.Table.from_pylist(found, SCHEMA), planned, {}, *columns)
    console = Console(width=200, file=io.StringIO())
    with console.capture() as captured:
        console.print(progress_table(progress))
    return captured.get()


def searching(**other: object) -> dict[str, object]:
    return {"stage": "search", "chosen": False, **other}


def test_the_progress_shows_the_search_and_hides_the_test_until_it_is_over() -> None:
    found = [
        trial("radfed", 1, 0, 0.7, **searching(point=point(aggregate_every=2), held_out_accuracy=0.9)),
        trial("radfed", 1, 1, 0.5, **searching(point=point(aggregate_every=2), held_out_accuracy=0.9)),
        trial("radfed", 1, 0, 0.65, **searching(point=point(aggregate_every=3), held_out_accuracy=0.1)),
        trial("radfed", 1, 0, None, **searching(point=point(aggregate_every=4), status="diverged")),
    ]
    planned = {("digits", "radfed"): 6, ("digits", "fedavg"): 2}
    lines = screen(found, planned).splitlines()
    (radfed,) = (line for line in lines if "radfed" in line)
    assert "4/6, 1 diverged" in radfed and "aggregate_every = 3" in radfed and "0.6500" in radfed
    assert "0.9000" not in radfed and "0.1000" not in radfed
    (fedavg,) = (line for line in lines if "fedavg" in line)
    assert "0/2" in fedavg
    found[2] |= {"chosen": True, "stage": "final"}
    (radfed,) = (line for line in screen(found, planned).splitlines() if "radfed" in line)
    assert "0.6500" in radfed and "0.1000" in radfed


def test_means_and_deviations_lead_both_files(tmp_path: Path) -> None:
    conclude(write_study(tmp_path, [*trials("fedavg", BASE), *trials("radfed", AHEAD)]))
    first = (tmp_path / "table.md").read_text(encoding="utf-8").split("\n\n")[1].splitlines()
    assert first[0] == "| data set | fedavg | radfed |"
    assert first[2] == "| digits | 65.00 ± 10.49 | **68.50 ± 11.47\\*** |"
    text = (tmp_path / "table.tex").read_text(encoding="utf-8")
    labels = re.findall(r"\\label{tab:(\w+)", text)
    assert labels == ["means", "differences", "contests", "details"]
    assert r"digits & 65.00 $\pm$ 10.49 & \textbf{68.50 $\pm$ 11.47$^*$} \\" in text


def test_wins_ties_and_losses_are_by_the_corrected_test(tmp_path: Path) -> None:
    """On data set a radfed is ahead in six pairs of six, on b in three, which no test can tell from chance."""
    found = [*trials("fedavg", BASE, dataset="a"), *trials("radfed", AHEAD, dataset="a")]
    found += [*trials("fedavg", BASE[:3], dataset="b"), *trials("radfed", AHEAD[:3], dataset="b")]
    study = read_findings(write_study(tmp_path, found, datasets={"a": {}, "b": {}}))
    assert {pair: str(each) for pair, each in tallies_of(study).items()} == {
        ("fedavg", "radfed"): "0 / 1 / 1",
        ("radfed", "fedavg"): "1 / 1 / 0",
    }
    assert [[cell for cell, *_ in row] for row in contests(study).rows] == [
        ["fedavg", "–", "0 / 1 / 1", "0 / 1 / 1"],
        ["radfed", "1 / 1 / 0", "–", "1 / 1 / 0"],
    ]


@pytest.mark.parametrize("metric", ["held_out_accuracy", "held_out_loss"])
def test_where_the_test_and_the_mean_contradict_each_other_there_is_neither_star_nor_win(
    tmp_path: Path, metric: str
) -> None:
    """Ahead in 19 pairs of 20 by about 0.01, and in one behind by more than in all others together."""
    ahead = [0.7 + 0.01 + 0.0001 * number for number in range(19)] + [0.7 - 0.6]
    found = [row | {metric: row["held_out_accuracy"]} for row in [*trials("fedavg", [0.7] * 20), *trials("b", ahead)]]
    study = read_findings(write_study(tmp_path, found, metric=metric))
    (row,) = (row for row in rows_of(study) if row.difference)
    assert row.difference and row.difference.p_holm and row.difference.p_holm < 0.05 and not row.difference.significant
    assert [str(each) for each in tallies_of(study).values()] == ["0 / 1 / 0", "0 / 1 / 0"]
    assert "*" not in "".join(shown(tmp_path)[0]).replace("**", "")
    said = "The mean does not point in the test's direction, so the difference has no star and counts as a tie"
    assert f"{said}: b on digits." in notes(study, rows_of(study))


def test_a_difference_to_a_mean_of_0_has_no_star(tmp_path: Path) -> None:
    study = read_findings(write_study(tmp_path, [*trials("fedavg", [0.0] * 6), *trials("b", BASE)]))
    (row,) = (row for row in rows_of(study) if row.difference)
    assert row.difference and row.difference.significant
    assert [cell for row in differences(study, rows_of(study)).rows for cell in row][-1] == ("–", False, False)


def test_a_third_algorithm_makes_the_correction_stricter(tmp_path: Path) -> None:
    found = [*trials("fedavg", BASE), *trials("radfed", AHEAD), *trials("fedprox", BASE)]
    study = read_findings(write_study(tmp_path, found))
    assert str(tallies_of(study)["radfed", "fedavg"]) == "0 / 1 / 0"
