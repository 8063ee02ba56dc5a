"""The reproductions that come with raysim: they are what they say, reduced and full."""

import json
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from raysim.cli.listing import LISTS
from raysim.common.errors import InputError, StoppedError
from raysim.data.sets.tabular import COVERTYPE
from raysim.reproduction.file import read_reproduction, reproductions
from raysim.reproduction.page import CHANGED
from raysim.reproduction.reproducing import reproduce
from raysim.reproduction.verdict import JudgedClaim
from raysim.studies.file import Study
from raysim.studies.showing import Board
from raysim.studies.studying import study

SOME = list(reproductions())


@pytest.mark.parametrize("name", SOME)
def test_claims_are_of_what_is_run(name: str) -> None:
    reproduction = read_reproduction(name)
    full, reduced = (checked(reproduction.study(full=is_full)) for is_full in (True, False))
    datasets, algorithms = {each.name for each in full.datasets}, set(full.names)
    for claim in reproduction.claims:
        named = {claim.dataset, claim.minus_dataset, claim.than_dataset} - {None}
        assert named <= datasets, claim.says
        assert {claim.algorithm, claim.minus or claim.algorithm} <= algorithms, claim.says
    assert {each.name for each in reduced.datasets} <= datasets and set(reduced.names) <= algorithms
    says = [claim.says for claim in reproduction.claims]
    assert len(set(says)) == len(says)


def checked(raw: Mapping[str, Any]) -> Study:
    """Check every data set at the first point of each grid, and every point on the first data set."""
    asked = raw["study"]
    if "grid" in asked:
        Study.of({**raw, "study": {**asked, "datasets": dict(list(asked["datasets"].items())[:1])}})
        asked = {**asked, "grid": first_point(asked["grid"])}
    return Study.of({**raw, "study": asked})


def first_point(grid: Mapping[str, Any]) -> dict[str, Any]:
    return {key: first_point(each) if isinstance(each, Mapping) else each[:1] for key, each in grid.items()}


Reproduced = tuple[Path, tuple[JudgedClaim, ...]]
CHANGES = ["model.hidden=[16]"]


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Reproduced:
    """The folder of a reduced reproduction, and its claims."""
    folder = tmp_path_factory.mktemp("reproduced")
    return reproduce(_small(folder), folder / "run", changes=CHANGES, inline=True)


def test_a_reproduction_leaves_its_claims(reproduced: Reproduced) -> None:
    """Reduced to two rounds of one data set of two: only what is written is looked at."""
    folder, claims = reproduced
    assert [each.verdict for each in claims] == ["holds", "not tested here", "not tested here"]
    page = (folder / "claims.md").read_text()
    assert (
        "raysim reproduce small --set 'model.hidden=[16]'" in page
        and "| ✓ holds |" in page
        and "**✓ holds: 1.**" in page
    )
    assert "`rounds` 2 (paper: 100)" in page
    assert CHANGED in page and CHANGED in (folder / "report.html").read_text().replace("&#39;", "'")


def test_other_settings_in_the_same_folder_are_told(tmp_path: Path) -> None:
    told: list[list[str]] = []
    for changes in ([], ["checkpoint.every=7"], CHANGES):
        heard = Hearing()
        reproduce(_small(tmp_path), tmp_path / "run", changes=changes, inline=True, watcher=heard)
        told.append(heard.notices)
    assert told[0] == told[1] == []
    assert told[2][0].startswith(f"the tables and the report in {tmp_path / 'run'} are of other settings, and those of")
    assert "(model.hidden: [16], before the default)" in told[2][0] and told[2][1:] == [CHANGED]


class Hearing(Board):
    """Keeps the notices."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)


class Interrupting(Board):
    """Ctrl-C after the first trial."""

    def ended(self, text: str) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize(("changes", "same"), [(CHANGES, True), ([*CHANGES, "rounds=1"], False)])
def test_what_was_interrupted_goes_on_and_comes_to_the_same_digest(
    changes: list[str], same: bool, reproduced: Reproduced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest of the record is that of a run in another folder; other rounds have another one."""
    # The study writes no report of its own before the one with the claims.
    monkeypatch.delattr("raysim.studies.studying.conclude")
    given = [word for change in changes for word in ("--set", change)]
    again = shlex.join(["raysim", "reproduce", _small(tmp_path), *given, "--out", str(tmp_path / "run"), "--inline"])
    with pytest.raises(StoppedError) as stopped:
        reproduce(_small(tmp_path), tmp_path / "run", changes=changes, inline=True, watcher=Interrupting())
    assert str(stopped.value) == f"stopped; continue with: {again}"
    assert not (tmp_path / "run" / "claims.json").exists()
    reproduce(_small(tmp_path), tmp_path / "run", changes=changes, inline=True)
    records = ((folder / "claims.json").read_text() for folder in (reproduced[0], tmp_path / "run"))
    one, other = (json.loads(record)["sha256"] for record in records)
    assert (one == other) == same


def test_after_a_failed_trial_the_command_that_judges_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raysim.studies.runners.attempt", lambda *given: ("failed", "of a fault"))
    again = shlex.join(["raysim", "reproduce", _small(tmp_path), "--out", str(tmp_path / "run"), "--inline"])
    with pytest.raises(RuntimeError, match=f"1 trials failed, .* run them again with: {again}$"):
        reproduce(_small(tmp_path), tmp_path / "run", inline=True)


def test_a_study_in_its_folder_keeps_the_claims_until_the_trials_change(reproduced: Reproduced, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(reproduced[0], tmp_path / "run"))
    written = (folder / "report.html").read_bytes()
    study(folder, inline=True)
    assert (folder / "report.html").read_bytes() == written and b"holds" in written
    study(folder, changes=["rounds=1"], inline=True)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "The trials have changed since the claims were judged" in page and "\u2713 holds" not in page
    assert "--set &#39;model.hidden=[16]&#39;" in page


def test_a_wrong_column_of_a_claim_leaves_the_report_of_the_study(tmp_path: Path) -> None:
    file = Path(_small(tmp_path))
    file.write_text(file.read_text().replace('column = "concordance"', 'column = "concordence"'))
    with pytest.raises(InputError, match=r"^claim 'concordant': unknown column 'concordence' .*metrics.parquet"):
        reproduce(str(file), tmp_path / "run", inline=True)
    for name in ("table.md", "table.tex", "summary.parquet", "report.html"):
        assert (tmp_path / "run" / name).is_file()
    assert not (tmp_path / "run" / "claims.json").exists()


def test_one_that_reduces_nothing_is_not_begun_by_chance(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'fixbn-table-2' has no reduced setting: .*--full"):
        reproduce("fixbn-table-2", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match=r"'gossip-quick' is a quick check alone: .*leave --full out"):
        reproduce("gossip-quick", tmp_path / "run", full=True)
    assert not (tmp_path / "run").exists()
    assert "[--full alone]" in dict(LISTS["reproductions"]())["fixbn-table-2"]
    for name in ("fixbn-quick", "fedbn-figure-9", "fixbn-table-1"):
        assert not read_reproduction(name).is_full_alone


@pytest.mark.parametrize("name", [name for name in SOME if name.startswith("radfed-table-3")])
def test_radfed_s_scores_are_means_over_clients(name: str) -> None:
    """Its authors take the mean of the held-out clients' scores, and select the model by the validation clients'."""
    reproduction, score = read_reproduction(name), {"covertype": "weighted_f1", "eicu": "auc"}
    metric = score.get(name.rpartition("-")[2], "accuracy")
    study = reproduction.study(full=True)
    assert study["study"]["metric"] == f"held_out_mean_{metric}"
    assert study["study"]["select_by"] == study["evaluate"]["select_by"] == f"validation_mean_{metric}"
    columns = {claim.column for claim in reproduction.claims if claim.take != "population"}
    assert columns <= {f"held_out_mean_{metric}", f"validation_mean_{metric}"}


def test_covfeat_samples_every_categorical_column() -> None:
    every = [column for column in COVERTYPE if column.startswith(("Wilderness_Area", "Soil_Type"))]
    assert len(every) == 44
    table, figure = (read_reproduction(f"radfed-{name}").study(full=True) for name in ("table-3-covertype", "figure-6"))
    assert table["partition"]["features"] == every
    assert figure["study"]["datasets"]["covfeat-l"]["partition"]["features"] == every
    sampled = {name for name, each in table["study"]["datasets"].items() if each.get("partition")}
    assert sampled == {"covfeat-g", "covfeat-l"}


def _small(folder: Path) -> str:
    """The path of a reproduction that takes a second."""
    path = folder / "small.toml"
    path.write_text(
        """
        rounds = 100
        data = { dataset = "digits", test = 0.2 }
        partition = { scheme = "labels-per-client", clients = 10, classes_per_client = 1 }
        local = { batch_size = 50 }
        algorithm = [{ name = "fedsmb" }]
        evaluate = { every = 1, metrics = ["loss"], measures = ["concordance"] }

        [study]
        metric = "test_loss"
        datasets = { non-iid = {}, iid = { "partition.classes_per_client" = 10 } }

        [reproduction]
        paper = "a paper"
        place = "a table"

        [reduced]
        datasets = ["non-iid"]
        set = { rounds = 2 }

        [[claim]]
        says = "concordant"
        dataset = "non-iid"
        algorithm = "fedsmb"
        column = "concordance"
        take = "last"
        below = 0.01

        [[claim]]
        says = "trained"
        dataset = "non-iid"
        algorithm = "fedsmb"
        column = "test_loss"
        below = 0.5
        full = true

        [[claim]]
        says = "concordant, IID"
        dataset = "iid"
        algorithm = "fedsmb"
        column = "concordance"
        take = "last"
        below = 0.01
        """
    )
    return str(path)


def test_findings_are_of_the_default_setting_as_it_comes() -> None:
    assert read_reproduction("flamby-heart").words(full=True)["found"]  # it has no reduced setting
    reproduction = read_reproduction("fedbn-table-11")
    assert reproduction.words(full=False)["found"]
    assert not reproduction.words(full=True)["found"]
    assert not reproduction.words(full=False, as_it_comes=False)["found"]
