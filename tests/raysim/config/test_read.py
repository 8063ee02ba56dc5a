"""Reading experiment files and recipes, and changes by `--set`."""

from pathlib import Path
from typing import Any

import pytest

from raysim.common.errors import InputError
from raysim.config.read import changed, length_notices, read

BASE: dict[str, Any] = {"data": {"dataset": "digits"}}


def test_changes_apply_to_every_algorithm(tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text('[[algorithm]]\nname = "fedavg"\n[[algorithm]]\nname = "radfed"\n')
    raw = read(file, ["algorithm.cohort=3", "local.lr = 0.5", "data.dataset=digits", "model.hidden=[8, 8]"])
    assert [table["cohort"] for table in raw["algorithm"]] == [3, 3]
    assert changed({"algorithm": [{}]}, ["algorithm.fedavg.cohort=3"])["algorithm"] == [{"cohort": 3}]
    one = read(file, ["algorithm.radfed.aggregate_every=4", "algorithm.radfed.local.lr=0.5"])
    assert one["algorithm"] == [{"name": "fedavg"}, {"name": "radfed", "aggregate_every": 4, "local": {"lr": 0.5}}]
    assert raw["local"]["lr"] == 0.5 and raw["data"]["dataset"] == "digits" and raw["model"]["hidden"] == [8, 8]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("algorithm.cohort=5", "algorithm.fraction=0.5"),
        ("local.epochs=3", "local.steps=5"),
        ("local={lr=0.2, epochs=3}", "local.batches=5"),
        ("rounds=3", "epochs=2.0"),
        ("seed=1", "seed=2"),
        ("local.lr=0.5", "local={epochs=2}"),
        ("algorithm.radfed.cohort=2", "algorithm.cohort=3"),
        ("algorithm.radfed.cohort=2", "algorithm.fraction=0.5"),
        ("evaluate.target=[0.5]", "evaluate.target=[0.6, 0.7]"),
        ("local.epochs=3", "algorithm.local.steps=5"),
        ("algorithm.local.steps=5", "local.epochs=3"),
        ("local={epochs=3}", "algorithm.local={steps=5}"),
        ("local.lr=0.1", "algorithm.local.lr=0.2"),
    ],
)
def test_a_change_does_not_undo_another(first: str, second: str) -> None:
    raw = {**BASE, "algorithm": [{"name": "fedavg"}, {"name": "radfed"}]}
    with pytest.raises(InputError) as caught:
        changed(raw, [first, second])
    assert str(caught.value) == f"changes {first!r}, changes {second!r}: must be only one of them; remove the other"


def test_a_change_of_one_algorithm_beside_one_of_all() -> None:
    raw = {**BASE, "algorithm": [{"name": "fedavg"}, {"name": "radfed", "label": "r"}]}
    changes = ["local.epochs=3", "algorithm.r.local.steps=5", "algorithm.local.lr=0.1"]
    assert changed(raw, changes)["algorithm"][1]["local"] == {"steps": 5, "lr": 0.1}
    with pytest.raises(InputError, match=r"changes 'local.epochs=3', changes 'algorithm.fedavg.local.batches=5': must"):
        changed(raw, [*changes, "algorithm.fedavg.local.batches=5"])


def test_a_change_replaces_keys_of_the_file_and_one_of_all_algorithms_in_one() -> None:
    raw = {**BASE, "algorithm": [{"name": "fedavg", "cohort": 2}, {"name": "radfed"}], "local": {"epochs": 2}}
    changes = ["algorithm.fraction=0.5", "algorithm.radfed.cohort=3", "local.steps=4", "local.lr=nan", "local.lr=0.1"]
    one = changed(raw, [*changes[:3], "algorithm.local={lr=0.5}", "algorithm.fedavg.local.lr=0.2"])
    assert one["local"] == {"steps": 4}
    assert one["algorithm"] == [
        {"name": "fedavg", "fraction": 0.5, "local": {"lr": 0.2}},
        {"name": "radfed", "cohort": 3, "local": {"lr": 0.5}},
    ]
    with pytest.raises(InputError, match="only one"):
        changed(raw, changes)


def test_a_change_of_the_length_says_that_it_replaces_the_other_key() -> None:
    assert length_notices({"rounds": 2}, ["epochs=3", "seed=1"]) == [
        "changes 'epochs=3' replaces rounds = 2: the run lasts this many passes over the training data; for those of a "
        "client update use local.epochs"
    ]
    assert length_notices({"epochs": 2.5}, ["rounds=3"]) == ["changes 'rounds=3' replaces epochs = 2.5"]
    assert not length_notices({"rounds": 2}, ["rounds=3", "local.epochs=3"]) + length_notices({}, ["epochs=3"])


@pytest.mark.parametrize(
    ("source", "changes", "message"),
    [
        ("nosuch.toml", [], "must be a file that exists"),
        ("quikstart", [], "did you mean 'quickstart'"),
        ("quickstart", ["rounds"], "must be key.path=value"),
        ("quickstart", [".lr=3"], "must be key.path=value"),
        ("quickstart", ["seed.x=3"], "seed must be a table"),
    ],
)
def test_wrong_sources_and_changes(source: str, changes: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(source, changes)


def test_a_file_whose_name_lacks_its_ending_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, file in (("mine", "mine"), ("mien", "mine"), ("quikstart", "quickstart")):
        Path("mine.toml").touch()
        with pytest.raises(InputError, match=rf"^unknown recipe '{name}': did you mean '{file}"):
            read(name)


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    wrong = {b"rounds = = 3": "must be TOML", b"\xff\xfe\x00": "line 1, has byte 0xff: must be text in UTF-8"}
    for content, message in wrong.items():
        (tmp_path / "x.toml").write_bytes(content)
        with pytest.raises(InputError, match=message):
            read(tmp_path / "x.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(InputError, match=r"must be a file that exists; check the path$"):
        read(tmp_path / "folder.toml")
    with pytest.raises(InputError, match=r"must be a file that exists; did you mean 'x\.toml'\?$"):
        read(tmp_path / "xx.toml")
    with pytest.raises(
        InputError, match=r"^experiment file '.*x': must be a file that exists; did you mean 'x\.toml'\?$"
    ):
        read(tmp_path / "x")
