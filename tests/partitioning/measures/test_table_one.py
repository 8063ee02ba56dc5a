import csv
import io
import json

import numpy as np
import pytest

from partitioning.measures.statistics import Statistics, summarise
from partitioning.measures.table_one import format_row, table_row, to_csv, to_json, to_latex, to_markdown

CIFAR = table_row("Cifar10", Statistics(100, 60_000, 10, 2, 2850, 600.0, 604.7, 1.289))
SMALL = table_row("a_b|c", summarise(np.array([[4, 0], [0, 4], [1, 1]])))


def test_a_row_reads_as_in_the_paper():
    assert list(CIFAR) == ["Dataset", "Min", "Max", "Mean", "Stdev", "C-score"]
    assert format_row(CIFAR) == ["Cifar10", "2", "2,850", "600", "605", "1.29"]
    assert format_row(SMALL) == ["a_b|c", "2", "4", "3.3", "0.9", "0.67"]


def test_programs_get_every_digit():
    assert json.loads(to_json([CIFAR, SMALL])) == [CIFAR, SMALL]
    read = list(csv.DictReader(io.StringIO(to_csv([CIFAR, SMALL]))))
    assert [float(row["C-score"]) for row in read] == [CIFAR["C-score"], SMALL["C-score"]]
    assert read[1]["Dataset"] == "a_b|c"


@pytest.mark.parametrize("name", ["=1+1", "@SUM(1)", "+1", "-1", " =1"])
def test_a_spreadsheet_calculates_no_name(name):
    (row,) = csv.DictReader(io.StringIO(to_csv([{**SMALL, "Dataset": name}]), newline=""))
    assert row["Dataset"] == f"'{name}" and row["Min"] == "2"


@pytest.mark.parametrize("name", ["\t=1", "a\r=1", "a\n=1,2", "\x1b[31m"])
def test_a_name_ends_no_row_of_csv(name):
    (row,) = csv.DictReader(io.StringIO(to_csv([{**SMALL, "Dataset": name}]), newline=""))
    assert row["Dataset"] == repr(name)[1:-1] and row["Min"] == "2"


def test_markdown():
    assert to_markdown([CIFAR, SMALL]).splitlines() == [
        "| Dataset | Min | Max | Mean | Stdev | C-score |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| Cifar10 | 2 | 2,850 | 600 | 605 | 1.29 |",
        r"| a\_b\|c | 2 | 4 | 3.3 | 0.9 | 0.67 |",
    ]


def test_latex_escapes_what_it_would_read_as_commands():
    lines = to_latex([CIFAR, SMALL, {**SMALL, "Dataset": r"50% of \x"}]).splitlines()
    assert lines[0] == r"\begin{tabular}{lrrrrr}"
    assert r"Cifar10 & 2 & 2,850 & 600 & 605 & 1.29 \\" in lines
    assert r"a\_b$|$c & 2 & 4 & 3.3 & 0.9 & 0.67 \\" in lines
    assert any(line.startswith(r"50\% of \textbackslash{}x &") for line in lines)
    assert lines[-1] == r"\end{tabular}"
