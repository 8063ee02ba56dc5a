"""Names of data sets: an unknown name or prefix is refused, by every reader of a name."""

import pytest

from raysim.common.errors import InputError
from raysim.data.catalogue import check_dataset
from raysim.data.sources import load

WRONG = [
    ("mnst", "unknown data.dataset = 'mnst'", "did you mean 'mnist'"),
    ("fil:x.parquet", "unknown data.dataset = 'fil:x.parquet'", "did you mean 'file:PATH'"),
    ("shifted:Foldr:x", "unknown data.dataset = 'Foldr:x'", "did you mean 'folder:PATH'"),
    ("[x](javascript:alert(1))", "unknown data.dataset = '[x](javascript:alert(1))'", "must be one of"),
    ("digits:3", "unknown data.dataset = 'digits:3'", "did you mean 'digits'"),
    ("x" * 5000, "unknown data.dataset = 'xxx", "must be one of"),
    (
        "mine:load",
        "unknown data.dataset = 'mine:load'",
        "pass its result from Python, or write it to a file, file:PATH",
    ),
    (":", "unknown data.dataset = ':'", "must be one of"),
    ("", "unknown data.dataset = ''", "must be one of"),
    ("digits,file:x.parquet", "data.dataset has 'file:x.parquet' beside a name", "must hold names alone"),
    ("digits,shifted:file:x", "data.dataset has 'file:x' beside a name", "must hold names alone"),
    ("digits,shifted:shifted:digits", "unknown data.dataset = 'shifted:digits'", "must be one of"),
    ("tests/x.parquet", "data.dataset = 'tests/x.parquet' is a path", "write 'file:tests/x.parquet'"),
]


@pytest.mark.parametrize(("dataset", "problem", "remedy"), WRONG)
def test_an_unknown_name_is_refused(dataset: str, problem: str, remedy: str) -> None:
    for read in (check_dataset, load):
        with pytest.raises(InputError) as refused:
            read(dataset)
        assert str(refused.value).startswith(problem) and remedy in str(refused.value)


@pytest.mark.parametrize("dataset", ["digits", "digits, mnist", "shifted:digits", "mnist,shifted:digits", "hf:./x"])
def test_a_known_form_passes(dataset: str) -> None:
    check_dataset(dataset)
