"""A user's own algorithm, from a module that nobody but the experiment knows."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest
import tomli_w
from ray import cloudpickle

import raysim
from raysim.common.errors import InputError, OwnCodeError
from raysim.config.experiment import Experiment
from raysim.config.own import source_folders
from raysim.config.read import changed
from raysim.watching.progress import Watcher
from tests.kit.runs import quick_run

MODULE = """
from dataclasses import dataclass, replace

from algorithms import Algorithm, Assign, Local, Rounds, Participation, Server, Sharing
from {helper} import flattened


@dataclass(frozen=True)
class Power:
    exponent: float

    def __call__(self, report):
        return flattened(report["samples"], self.exponent)


@dataclass(frozen=True)
class Whole:
    share: float = 1.0

    def __call__(self, model, mean, total, memory, layout):
        return mean, memory


class Bare:
    def __init__(self, share):
        self.share = share

    def __call__(self, model, mean, total, memory, layout):
        return mean, memory


def mine(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    exponent: float = 0.5,
    aggregate_every: int = 1,
) -> Algorithm:
    return Algorithm(Rounds(participation, aggregate_every), local, Sharing(), Power(exponent), server)


def ruled(participation: Participation, local: Local, server: Server = Whole()) -> Algorithm:
    return Algorithm(Rounds(participation), local, Sharing(), Power(1.0), server)


def other(participation, local, server=Assign()):
    return "no algorithm"


def bare(participation, local, server=Assign(), *, key): ...
def loose(participation, local, server=Assign(), key: int = 1): ...
def first(local, participation, server=Assign()): ...
def serverless(participation, local, *, key: int = 1): ...
def undefaulted(participation, local, server): ...
def taken(participation, local, server=Assign(), *, cohort: int = 1): ...
class Odd: ...
def odd(participation, local, server=Assign(), *, key: Odd = Odd()): ...
def torn(participation, local, server=Assign(), *, key: "Nowhere" = 1): ...


def importing(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    return replace(mine(participation, local, server), own_round=importing_late)


def importing_late(state, algorithm, fleet, *, last):
    import own_late


def composing(participation, local, server=Assign()):
    return {{}}["gone"]


@dataclass(frozen=True)
class Dividing:
    def __call__(self, report):
        return 1 / (report["samples"] == 1)


def dividing(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    return Algorithm(Rounds(participation), local, Sharing(), Dividing(), server)


def plain(participation, local, server=Assign(), *, exponent=0.5, aggregate_every=1):
    return mine(participation, local, server, exponent=exponent, aggregate_every=aggregate_every)


def stepping(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    return replace(dividing(participation, local, server), own_round=steps, weighting=Power(1.0))


def far(
    participation: Participation, local: Local, server: Server = Assign(), *, aggregate_every: int = 1
) -> Algorithm:
    return Algorithm(Rounds(participation, aggregate_every), local, Sharing(), Dividing(), server)


def steps(state, algorithm, fleet, *, last):
    raise OSError("torn")


@dataclass(frozen=True)
class Halves:
    def __call__(self, model, mean, total, memory, layout):
        return mean / 2, memory


@dataclass(frozen=True)
class Sets:
    def __call__(self, model, mean, total, memory, layout):
        self.seen = 1


number = 3
"""

HELPER = """
def flattened(samples, exponent):
    return samples**exponent
"""

BASE: dict[str, Any] = {
    "seed": 5,
    "rounds": 2,
    "data": {"dataset": "digits"},
    "partition": {"scheme": "dirichlet-qp", "clients": 6, "test_clients": 1},
    "model": {"hidden": [8]},
    "fleet": {"block": 1},
}


class Listening(Watcher):
    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with `own_algorithm.py` and what it imports; both are forgotten at the end."""
    names = {"own_algorithm": MODULE.format(helper="own_helper"), "own_helper": HELPER}
    for name, text in names.items():
        (tmp_path / f"{name}.py").write_text(text)
    yield tmp_path
    for name in names:
        sys.modules.pop(name, None)


def test_it_runs_from_a_file_with_the_same_bytes_on_actors(folder: Path, two_actors: raysim.Actors) -> None:
    own = {"name": "own_algorithm:mine", "aggregate_every": 2, "cohort": 4}
    file = folder / "experiment.toml"
    file.write_text(tomli_w.dumps({**BASE, "algorithm": own}))
    path = list(sys.path)
    changes = ["algorithm.mine.exponent=0.0"]
    inline = quick_run(file, folder / "inline", inline=True, changes=changes)
    actors = quick_run(file, folder / "actors", fleet=two_actors, changes=changes)
    assert sys.path == path and not cloudpickle.list_registry_pickle_by_value()
    models = [(run.folder / "mine" / "model.safetensors").read_bytes() for run in (inline, actors)]
    assert models[0] == models[1]
    assert "Power(exponent=0.0)" in (actors.folder / "mine" / "summary.json").read_text()
    updates = pq.read_table(actors.folder / "mine" / "updates.parquet").to_pydict()
    assert set(updates["machine_actor"][:4]) <= {0, 1}
    assert updates["weight"] == [samples**0.0 for samples in updates["samples"]]


def test_with_exponent_one_it_is_fedavg_and_python_takes_the_function(folder: Path) -> None:
    file = folder / "experiment.toml"
    file.write_text(tomli_w.dumps({**BASE, "algorithm": {"name": "own_algorithm:mine", "exponent": 1.0}}))
    heard = Listening()
    quick_run(file, folder / "file", inline=True, watcher=heard)
    told = f"own_algorithm:mine is not part of raysim: the code of {folder}/own_algorithm.py runs here"
    assert heard.notices[0].startswith(told) and told in (folder / "file" / "run.log").read_text()
    own = sys.modules["own_algorithm"]
    tables = [{"name": own.mine, "exponent": 1.0}, {"name": "fedavg"}, {"name": own.mine}]
    quick_run({**BASE, "algorithm": tables}, folder / "python", inline=True)
    assert 'name = "own_algorithm:mine"' in (folder / "python" / "config.toml").read_text()
    first, *others = [
        (folder / each / "model.safetensors").read_bytes() for each in ("file/mine", "python/mine", "python/fedavg")
    ]
    assert others == [first, first]
    assert (folder / "python" / "mine-2" / "model.safetensors").read_bytes() != first


def test_its_own_server_rule_has_keys_as_well(folder: Path) -> None:
    raw = {**BASE, "algorithm": {"name": "own_algorithm:ruled", "server": {"share": 0.5}}}
    (table,) = Experiment.of(raw, [folder]).algorithm
    assert repr(table.compose().server) == "Whole(share=0.5)"
    assert table.server.rule == "own_algorithm:Whole"
    ours = {**BASE, "algorithm": {"name": "fedavg"}, "server": {"rule": "own_algorithm:Whole"}}
    assert repr(Experiment.of(ours, [folder]).algorithm[0].compose().server) == "Whole(share=1.0)"
    with pytest.raises(InputError, match=r"server.rule = 'own_algorithm:Bare': .* share has no annotation"):
        Experiment.of({**ours, "server": {"rule": "own_algorithm:Bare"}}, [folder])


def test_a_key_without_an_annotation_has_the_type_of_its_default(folder: Path) -> None:
    def table(**keys: Any) -> Any:
        return Experiment.of({**BASE, "algorithm": {"name": "own_algorithm:plain", **keys}}, [folder]).algorithm[0]

    assert "Power(exponent=2.0)" in repr(table(exponent=2, aggregate_every=2).compose())
    for key, value in ("exponent", "x"), ("aggregate_every", 0.5):
        with pytest.raises(InputError, match=rf"algorithm.{key} = {value!r}"):
            table(**{key: value})


def test_its_keys_are_checked_and_changed_by_the_function_s_name(folder: Path) -> None:
    raw = changed({**BASE, "algorithm": {"name": "own_algorithm:mine"}}, ["algorithm.mine.exponent=2.0"])
    assert Experiment.of(raw, [folder]).to_toml()["algorithm"][0]["exponent"] == 2.0
    for key, message in ({"exponnet": 1}, "did you mean 'exponent'"), ({"exponent": "x"}, "algorithm.exponent = 'x'"):
        with pytest.raises(InputError, match=message):
            Experiment.of({**BASE, "algorithm": {"name": "own_algorithm:mine", **key}}, [folder])
    both = changed(
        {**BASE, "algorithm": [{"name": n} for n in ("fedavg", "own_algorithm:mine")]}, ["algorithm.exponent=2.0"]
    )
    with pytest.raises(InputError, match=r"of algorithm fedavg: did you mean 'algorithm.mine.exponent'"):
        Experiment.of(both, [folder])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:mine", "algorithm.name = 'nowhere:mine': no module 'nowhere' in "),
        ("own_algorithm:mime", "unknown algorithm.name = 'own_algorithm:mime'.* did you mean 'own_algorithm:mine'"),
        ("own_algorithm:number", "must be callable, and is 3"),
        ("own_algorithm:other", "must return an Algorithm, and returned a str"),
        ("own_algorithm:bare", "of the shape .* and key has no annotation"),
        ("own_algorithm:loose", "key is not keyword-only"),
        (
            "own_algorithm:first",
            r"and it begins with \(local, participation, server\) \(own_algorithm.py, line \d+\); change the function",
        ),
        ("own_algorithm:serverless", r"and it has no server \(own_algorithm.py, line \d+\)"),
        ("own_algorithm:undefaulted", "and server has no default"),
        ("own_algorithm:taken", "cohort is a key of every algorithm"),
        ("own_algorithm:torn", r"its parameters cannot be read \(name 'Nowhere' is not defined"),
        (
            "own_algorithm:composing",
            r"must be composed, and raised KeyError: 'gone' \(.*own_algorithm.py, line \d+, in c",
        ),
        ("own_algorithm:odd", "its parameters cannot be read .*Odd"),
        ("own_algorithm:Rounds", "and it has no local"),
        ("own algorithm:mine", "must be module:function"),
        ("needy:mine", "needy must be importable, and needs nothing_of_the_kind"),
        ("broken:mine", "broken must be importable .SyntaxError"),
        ("json:mine", "another module 'json' is loaded already"),
        ("mine", "unknown algorithm.name = 'mine': must be one of .*, fedavg, .* module:NAME"),
        (lambda: None, "must be defined at the top of a module"),
    ],
)
def test_wrong_names_are_refused_in_one_line(folder: Path, name: Any, message: str) -> None:
    (folder / "needy.py").write_text("import nothing_of_the_kind\n")
    (folder / "broken.py").write_text("def (:\n")
    (folder / "json.py").write_text("")
    with pytest.raises(InputError, match=message) as error:
        Experiment.of({**BASE, "algorithm": {"name": name}}, [folder])
    assert "\n" not in str(error.value)


def test_a_key_may_have_the_name_of_a_step_of_the_check(folder: Path) -> None:
    (folder / "keyed.py").write_text(
        "from algorithms import Algorithm, Assign, fedavg\n"
        "def mine(participation, local, server=Assign(), *, check: bool = True, value: float = 1.0) -> Algorithm:\n"
        "    return fedavg(participation, local, server)\n"
        "class Rule:\n"
        "    def __init__(self, value: float = 1.0): ...\n"
        "    def __call__(self, model, mean, total, memory, layout): return mean, memory\n"
    )
    tables = {"algorithm": {"name": "keyed:mine", "check": False}, "server": {"rule": "keyed:Rule", "value": 2.0}}
    (table,) = Experiment.of({**BASE, **tables}, [folder]).algorithm
    assert table.to_toml()["check"] is False and table.to_toml()["server"]["value"] == 2.0


def test_a_key_of_one_of_several_algorithms_is_named_by_the_function(folder: Path) -> None:
    (folder / "algorithm.py").write_text((folder / "own_algorithm.py").read_text())
    for key, value in (("cohort", 0), ("exponent", "x")):
        tables = [{"name": "algorithm:mine", key: value}, {"name": "fedprox"}]
        with pytest.raises(InputError, match=rf"^algorithm\.mine\.{key} = {value!r}: "):
            Experiment.of({**BASE, "algorithm": tables}, [folder])
    for name in ("bare", "composing"):
        tables = [{"name": f"algorithm:{name}"}, {"name": "fedprox"}]
        with pytest.raises(InputError, match=rf"^algorithm\.name = 'algorithm:{name}': .*algorithm\.py, line "):
            Experiment.of({**BASE, "algorithm": tables}, [folder])


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"algorithm": {"name": "own_algorithm:dividing"}}, "ZeroDivisionError: .*, in __call__"),
        ({"algorithm": {"name": "own_algorithm:stepping"}}, "OSError: torn .*, in steps"),
        ({"server": {"rule": "own_algorithm:Halves"}}, "TypeError: .*, in __call__"),
        (
            {"server": {"rule": "own_algorithm:Sets"}},
            r"to field 'seen' .*, in __call__\); keep values in the memory, or",
        ),
        (
            {"algorithm": {"name": "own_algorithm:importing"}},
            r"No module named 'own_late' .*, in importing_late\); import own_late at the top of own_algorithm.py: ",
        ),
    ],
)
def test_what_its_parts_raise_is_one_line_that_says_where(folder: Path, tables: Any, message: str) -> None:
    file = folder / "experiment.toml"
    file.write_text(tomli_w.dumps({**BASE, **tables}))
    (folder / "own_late.py").write_text("")
    watcher = Listening()
    with pytest.raises(OwnCodeError, match=message) as error:
        raysim.run(file, folder / "run", inline=True, watcher=watcher)
    assert "if nothing in your code is wrong, continue with" in watcher.notices[-1]
    assert watcher.notices[-1].endswith("; corrected code needs a new run")
    assert f"({folder / 'own_algorithm.py'}, line " in str(error.value) and "\n" not in str(error.value)
    assert "Traceback" in (folder / "run" / "run.log").read_text()


@pytest.mark.slow
def test_what_a_part_raises_on_an_actor_says_where(folder: Path, two_actors: raysim.Actors) -> None:
    file = folder / "experiment.toml"
    own = {"name": "own_algorithm:far", "aggregate_every": 2}
    file.write_text(tomli_w.dumps({**BASE, "algorithm": own}))
    with pytest.raises(OwnCodeError, match=r"ZeroDivisionError: .*own_algorithm.py, line \d+, in __call__"):
        raysim.run(file, folder / "run", fleet=two_actors)
    assert "Traceback" in (folder / "run" / "run.log").read_text()


def test_a_link_to_own_code_is_followed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tmp_path / "code"
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "linked_code.py").write_text("")
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / version)
        module = ModuleType("linked_code")
        module.__file__ = str(link / "linked_code.py")
        monkeypatch.setitem(sys.modules, "linked_code", module)
        assert source_folders(["linked_code:update"]) == [str((tmp_path / version).resolve())]
