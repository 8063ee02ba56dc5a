"""Names of algorithms become folders of a run: none of them is a file or folder of the run's own."""

import random
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import raysim
from algorithms import fedavg
from raysim.common.errors import InputError
from raysim.common.names import ALGORITHM_FILES, RUN_NAMES, check_names
from raysim.config.experiment import Experiment
from raysim.watching.progress import Watcher
from tests.kit.runs import quick_resume

DIGITS: dict[str, Any] = {
    "rounds": 1,
    "data": {"dataset": "digits", "test": 0.8},
    "partition": {"scheme": "iid", "clients": 4},
    "model": {"hidden": [4], "norm": "batch"},
}

HOSTILE = (
    *("", ".", "..", "a/b", "../a", "/", "a\\b", "a b", "a\n", "\0", ".hidden", ".population.0123abcd.draft", "end."),
    *("x" * 101, "ß" * 60, "a:b", "*", "a?", "~", "-a", "\ud800"),
)


def drawn(seed: int) -> list[str]:
    """A name that is like an entry of the run's folder, or leaves the folder, or is like another algorithm's."""
    draw = random.Random(seed)
    name = draw.choice([*RUN_NAMES, "fedavg"])
    changed = "".join(draw.choice((each.lower(), each.upper())) for each in name)
    wide = "".join(chr(ord(each) + 0xFEE0) if each.isalpha() and draw.random() < 0.2 else each for each in changed)
    return ["fedavg", draw.choice([name if name != "fedavg" else "FEDAVG", changed.upper(), wide.upper(), *HOSTILE])]


@pytest.mark.parametrize("seed", range(300))
def test_a_drawn_name_that_is_no_folder_of_its_own_is_refused(seed: int) -> None:
    with pytest.raises(InputError, match=r"^algorithm.name = .*; rename the function$") as error:
        check_names(drawn(seed))
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


def test_good_names_are_allowed() -> None:
    check_names(["fedavg", "fedavg-2", "static-bn", "mine", "Mine2", "modèle", "populations", "outer.inner", "x" * 100])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a b", None], "must consist of letters, digits and _ -, at most 100 bytes"),
        (["", None], "must consist of letters"),
        (["a/b", None], "must consist of letters"),
        (["few-0.3", None], "must have no dot"),
        (["Watch", None], "must differ from the run's own watch"),
        (["mean", "MEAN"], "must differ from the algorithm mean"),
        (["FedProx", None], "must differ from the algorithm fedprox"),
        (["mean", "mean"], "must differ from the algorithm mean"),
        (["fedprox", None], "must differ from the other algorithms' names"),
        ([None, "fedavg"], "must differ from the other algorithms' names"),
        (["joins", None], "must differ from .* the tables of \\[algorithm\\]"),
        (["local", None], "must differ from .* the tables of \\[algorithm\\]"),
    ],
)
def test_a_label_that_is_no_folder_of_its_own_or_means_something_else_is_refused(
    labels: list[str | None], message: str
) -> None:
    tables = [{"name": "fedavg"}, {"name": "fedprox", "proximal": 0.1}]
    labelled = [
        table | ({} if label is None else {"label": label}) for table, label in zip(tables, labels, strict=True)
    ]
    with pytest.raises(InputError, match=rf"^algorithm.label = .*: {message}.*; choose another label$"):
        Experiment.of({**DIGITS, "algorithm": labelled})


@pytest.mark.parametrize("name", ["population", "Watch", "config"])
def test_an_algorithm_of_one_s_own_cannot_take_a_name_of_the_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("hostile_names")
    module.config = types.SimpleNamespace(toml=fedavg)  # type: ignore[attr-defined]
    vars(module)[name] = fedavg if name != "config" else module.config
    monkeypatch.setitem(sys.modules, "hostile_names", module)
    path = "config.toml" if name == "config" else name
    with pytest.raises(InputError, match=rf"algorithm.name = '{path}': must differ from the run's own"):
        Experiment.of({**DIGITS, "algorithm": {"name": f"hostile_names:{path}"}})


@pytest.mark.parametrize("seed", range(2))
def test_stray_files_survive(seed: int, tmp_path: Path) -> None:
    """In a run's folder, in an algorithm's and in its subfolders, through a new start and through the end."""
    draw, run = random.Random(seed), tmp_path / "run"

    class Interrupts(Watcher):
        def round(self, number: int, metrics: dict[str, float]) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        raysim.run({**DIGITS, "algorithm": {"name": "fedbn"}}, run, inline=True, watcher=Interrupts())
    places = [
        run,
        run / "notes",
        run / "population",
        run / "fedbn",
        run / "fedbn" / "checkpoint",
        run / "fedbn" / "personal",
    ]
    strays = [place / f"{draw.choice(['notes', 'model', 'x'])}.{draw.choice(['txt', 'py'])}" for place in places]
    for path in strays:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    for path in run.glob("fedbn/checkpoint/*.safetensors"):
        path.write_bytes(b"")  # so that it begins anew
    quick_resume(run, inline=True)
    assert [path.read_text() for path in strays] == ["mine"] * len(strays)
    made = {path for pattern in ALGORITHM_FILES for path in (run / "fedbn").glob(pattern)}
    assert {path.name for path in made} >= {"model.safetensors", "summary.json", "checkpoint", "personal"}
