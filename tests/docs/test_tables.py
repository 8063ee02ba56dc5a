"""The tables of the reference have every algorithm, model, data set, scheme and column."""

import re

import numpy as np
import pytest

import algorithms
from algorithms import Census, Option
from algorithms.names import ALGORITHMS
from partitioning import SCHEMES
from raysim.data.catalogue import DATASETS
from raysim.measures.columns import MEASURES, columns_of
from raysim.models.build import MODELS
from raysim.store.tables import OUTCOME, REPORTED, UPDATES, metrics_schema
from tests.kit.counts import COUNTS, PAPERS, RECIPE_PARAMETERS
from tests.kit.pages import DOCS, ROOT, text_of

exported = (getattr(algorithms, name) for name in algorithms.__all__)
OPTIONS = [each for each in exported if isinstance(each, type) and issubclass(each, Option)]
REFERENCE = DOCS / "reference"
MODEL_ROWS = re.findall(
    r"^\| `(\w+)`[^|]*\|[^|]*\|[^|]*\| ([\d,]+) \|[^|]+\| ([^|]*)\|[^|]+\|$",
    text_of(REFERENCE / "models.md"),
    re.MULTILINE,
)


def test_every_algorithm_has_its_line() -> None:
    lines = re.findall(r"^- \[`([a-z-]+)`\]\(algorithms/\1\.md\), ", text_of(REFERENCE / "algorithms.md"), re.MULTILINE)
    assert sorted(lines) == sorted(ALGORITHMS)


def test_every_model_has_its_row_and_its_keys() -> None:
    keys: dict[str, str] = {}
    for name, _, listed in MODEL_ROWS:
        keys[name] = keys.get(name, "") + listed
    assert list(keys) and set(keys) == set(MODELS)
    for name, listed in keys.items():
        norm = {"norm"} if "norm" in MODELS[name].signature else set()
        own = set(MODELS[name].parameters) | norm
        assert set(re.findall(r"`(\w+)", listed)) == own, name


def test_the_parameters_of_models_are_those_counted() -> None:
    counted = {(name, count) for name, *_, count in PAPERS} | {(name, count) for name, *_, count in COUNTS}
    # The tests count this model for 10 classes instead of 62: 52 outputs of 129 numbers fewer.
    counted.add(("cnn_dropout", 1_206_590))
    counted.add(("transformer", RECIPE_PARAMETERS))
    for name, parameters, _ in MODEL_ROWS:
        assert (name, int(parameters.replace(",", ""))) in counted, name


def test_every_data_set_has_its_row() -> None:
    rows = [line.split("`")[1] for line in text_of(REFERENCE / "datasets.md").splitlines() if line.startswith("| `")]
    assert rows[: len(DATASETS)] == list(DATASETS)


def test_every_scheme_has_its_row() -> None:
    page = text_of(REFERENCE / "schemes.md")
    assert [scheme for scheme in SCHEMES if f"| `{scheme}` |" not in page] == []


def test_every_column_is_described() -> None:
    pages = text_of(REFERENCE / "files.md") + text_of(REFERENCE / "metrics.md")
    columns = [*metrics_schema(columns_of(MEASURES)).names, *UPDATES.names, REPORTED.name, OUTCOME.name]
    for option in OPTIONS:
        given = option.columns if isinstance(option.columns, tuple) else option().columns
        columns += [re.sub(r"^level_[\d.]+", "level_P", column) for column in given]
        if option.client_columns is not Option.client_columns:
            columns += option().client_columns(Census(np.arange(2), np.ones(2, np.int64)), 0)
    assert {"epsilon", "attacker"} < set(columns)
    assert [column for column in columns if f"`{column}`" not in pages] == []


def normal(name: str) -> str:
    return re.sub("[^a-z]", "", name.lower()).replace("centralised", "centralized")


@pytest.mark.parametrize(
    ("page", "row", "others"),
    [
        ("README.md", r"^\| Algorithms \| ([^:]+):", {"radfedi", "radfedp", "radfedm", "radfeda"}),
        ("algorithms/README.md", r"^\| `\w+` \| (.+) \|$", {"fedavg", "radfedi", "radfedp", "centralized", "fedtan"}),
    ],
)
def test_every_method_is_in_the_lists_of_a_readme(page: str, row: str, others: set[str]) -> None:
    """The variants of RADFed count as one, and the second list is of methods that change a part of FedAvg."""
    rows = re.findall(row, text_of(ROOT / page), re.MULTILINE)
    named = {normal(name) for text in rows for name in re.split("[,;:]| and ", text)}
    assert rows and {normal(name) for name in ALGORITHMS} - named == {normal(name) for name in others}


def test_the_readme_counts_what_there_is() -> None:
    page = text_of(ROOT / "README.md")
    assert f"{len(DATASETS)} sets by name" in page and f"{len(SCHEMES)} schemes" in page
