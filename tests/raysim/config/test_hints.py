"""The nearest right key or name, here and in other tables; all mistakes of a file at once."""

from ast import literal_eval
from pathlib import Path

import pytest

from algorithms import Algorithm, Assign, Local, Participation, Server, fedavg
from raysim.cli.files import KINDS
from raysim.common.errors import LISTED, InputError, each_error
from raysim.config.experiment import Experiment, _tables
from raysim.config.hints import SYNONYMS, _known
from raysim.config.read import changed, read

BOTH = {"algorithm": [{"name": "fedavg"}, {"name": "fedprox"}]}
FEDAVG = {"algorithm": {"name": "fedavg"}}


def refusals(changes: list[str], raw: dict[str, object] | None = None) -> list[str]:
    tables = read("quickstart") | (raw or FEDAVG)
    with pytest.raises(InputError) as error:
        Experiment.of(changed(tables, changes))
    return [str(each) for each in each_error(error.value)]


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ("lr=0.1", "'local.lr'?"),
        ("num_rounds=3", "'rounds'?"),
        ("local.learning_rate=0.1", "'local.lr'?"),
        ("local.rounds=3", "'rounds'?"),
        ("data.clients=3", "'partition.clients'?"),
        ("algorithm.momentum=0.9", "'local.momentum'?"),
        ("algorithm.fedprox.mu=0.1", "'proximal'?"),
        ("algorithm.proximal=0.1", "'algorithm.fedprox.proximal'?"),
        ("algorithm.fedavg.mu=0.1", "'algorithm.fedprox.proximal'?"),
        ("algorithm.fedproxx.local.lr=1", "'algorithm.fedprox'?"),
        ("algorithm.locl.lr=1", "'algorithm.local'?"),
        ("algorithm.fracton=0.5", "'algorithm.fraction'?"),
        ("algorithm.server.rul=adam", "'algorithm.server.rule'?"),
        ("partition.alpha=0.5", "'partition.label_alpha' of scheme dirichlet-qp?"),
        ("server.beta1=0.5", "'server.beta1' of rule adam?"),
        ("algorithm.server.lrr=0.5", "'algorithm.server.lr' of rule momentum?"),
        ("evaluate.evrey=2", "'evaluate.every'?"),
        ("local.delta=1.0", "'local.delta' of loss huber?"),
        ("fleet.zzzzzz=1", ""),
    ],
)
def test_a_wrong_key_names_the_nearest_right_one(change: str, hint: str) -> None:
    for line in refusals([change], BOTH):
        assert line.startswith("unknown key ") and (f": did you mean {hint} It must be one of " in line) == bool(hint)
        assert "; see `raysim list keys " in line


def test_a_table_of_a_file_below_an_algorithm_s_name_says_where_its_keys_belong() -> None:
    for name, table in (("fedavg", {}), ("short", {"label": "short"})):
        (line,) = refusals([], {"algorithm": {"name": "fedavg", **table, name: {"local": {"lr": 1}}}})
        assert (
            f"'algorithm.{name}' of algorithm fedavg: a path with a name is for changes alone; in a file, write" in line
        )
    (line,) = refusals(["algorithm.fedavg=3"])
    assert "of algorithm fedavg: must be one of" in line


def test_a_misspelt_label_names_the_label() -> None:
    (line,) = refusals(["algorithm.slow_client.local.lr=1"], {"algorithm": {"name": "fedavg", "label": "slow-clients"}})
    assert ": did you mean 'algorithm.slow-clients'? It must" in line


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, "zzzzzz") for key in ("algorithm.name", "local.loss", "model.name", "partition.scheme")),
        ("evaluate.metrics", '["zzzzzz"]'),
        ("uplink.chain", '[{name = "zzzzzz"}]'),
    ],
)
def test_an_unknown_name_names_the_list_of_known_ones(key: str, value: str) -> None:
    (line,) = refusals([f"{key}={value}"])
    kind = line.rpartition("; see `raysim list ")[2].removesuffix("`")
    assert kind in KINDS and LISTED[line.removeprefix("unknown ").partition(" ")[0]] == kind


def test_a_key_of_an_algorithm_that_the_file_lacks_names_the_algorithm() -> None:
    (line,) = refusals(["algorithm.proximal=0.1"])
    assert ": did you mean 'algorithm.proximal' of algorithm fedprox? It must be one of " in line


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ("algorithm.name=SCAFFOLD", ": did you mean 'scaffold'?"),
        ("algorithm.name=Static_BN", ": did you mean 'static-bn'?"),
        ("algorithm.name=adam", ': did you mean server.rule = "adam"?'),
        ("model.name=cifar10", ': did you mean data.dataset = "cifar10"?'),
        ("partition.scheme=dirichlet_qq", ": did you mean 'dirichlet-qp'?"),
        ('evaluate.metrics=["acc"]', ": did you mean 'accuracy'?"),
    ],
)
def test_a_wrong_name_names_the_nearest_right_one_whatever_key_takes_it(change: str, hint: str) -> None:
    (line,) = refusals([change])
    assert f"{hint} It must be one of " in line, line


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            "model.name=logistic",
            "unknown key 'model.hidden' of model logistic: it is a key of model mlp, not of logistic; remove it, or "
            """replace the table: changes=['model={name = "logistic", norm = "batch"}']. It must be one of """,
        ),
        (
            "partition.scheme=iid",
            "it is a key of scheme dirichlet-qp, not of iid; remove it, or replace the table: changes=['partition="
            """{scheme = "iid", clients = 50, test_clients = 10}']. It must be one of """,
        ),
    ],
)
def test_a_key_left_over_from_another_model_or_scheme_says_so(change: str, says: str) -> None:
    left = {"model": {"name": "mlp", "hidden": [8], "norm": "batch"}}
    left["partition"] = {"scheme": "dirichlet-qp", "clients": 50, "label_alpha": 0.1, "test_clients": 10}
    (line,) = refusals([change], FEDAVG | left)
    assert says in line


@pytest.mark.parametrize("model", [{}, {"model": {"name": "mlp"}}])
def test_a_key_of_an_algorithm_s_own_model_is_not_replaced_elsewhere(model: dict[str, object]) -> None:
    (line,) = refusals(
        [], FEDAVG | model | {"algorithm": {"name": "fedavg", "model": {"name": "mlp", "channels": [8]}}}
    )
    assert ", not of mlp; remove it. It must be one of " in line


@pytest.mark.parametrize(
    ("keys", "replaced"),
    [
        ({"weights": Path("start.safetensors")}, """{name = "mlp", hidden = [3], weights = "start.safetensors"}"""),
        ({"weights": None}, """{name = "mlp", hidden = [3]}"""),
        ({"init": {"a b": (1, None), "c": True}}, ""),
        ({"init": {"a b": (1, 0.5), "c": True, "d": None}}, """{name = "mlp", hidden = [3], init = {"a b" = """),
        ({"init": [{"c": {"d": "\x7f"}}]}, """hidden = [3], init = [{c = {d = "\\u007f"}}]}"""),
        ({"init": len}, ""),
    ],
)
def test_the_table_in_a_remedy_is_toml(keys: dict[str, object], replaced: str) -> None:
    raw = FEDAVG | {"model": {"name": "mlp", "hidden": [3], "stem": "cifar", **keys}}
    line = next(each for each in refusals([], raw) if "unknown key 'model.stem'" in each)
    assert "it is a key of model " in line
    if not replaced:
        assert ", not of mlp; remove it. It must be one of " in line
        return
    change = literal_eval(line.partition("replace the table: changes=[")[2].partition("]. It must")[0])
    assert replaced in change
    given = changed({}, [change])["model"]
    assert "stem" not in given and given["name"] == "mlp"


def test_a_key_that_only_other_algorithms_have_says_how_ones_own_gets_it() -> None:
    (line,) = refusals(["algorithm.weighting=equal"], {"algorithm": {"name": own_algorithm}})
    assert ": give your function the keyword `weighting`, or remove it. It must be one of eps, " in line


def own_algorithm(
    participation: Participation, local: Local, server: Server = Assign(), *, eps: float = 1
) -> Algorithm:
    return fedavg(participation, local, server)


def test_a_scheme_of_ones_own_names_the_way_that_works() -> None:
    (line,) = refusals(["partition.scheme=mine:cut"])
    says = (
        '; for a division of your own, write each row\'s client to a column, and set partition.scheme = "natural" and '
    )
    assert line.endswith(f"{says}partition.column")


def test_every_key_of_every_synonym_exists() -> None:
    """A synonym of a key that was renamed would be refused with a key that is refused as well."""
    assert set(SYNONYMS.values()) <= {key.name for key in _known(_tables())}


def test_all_mistakes_of_a_file_come_in_one_go() -> None:
    changes = ["sede=1", "partition.clients=0", "local.lr=fast", "local.momentm=0.9", "fleet.actors=0"]
    lines = refusals([*changes, "evaluate.every=-1"])
    begins = ["unknown key 'sede'", "partition.clients = 0", "unknown key 'local.momentm'", "local.lr = 'fast'"]
    begins += ["fleet.actors = 0", "evaluate.every = -1"]
    assert len(lines) == len(begins)
    for begin in begins:
        assert any(line.startswith(begin) for line in lines), (begin, lines)


def test_a_name_that_is_no_text_is_refused_beside_an_unknown_key() -> None:
    lines = refusals(["rouds=2"], {"algorithm": {"name": {"a": "b:c"}}})
    assert [line.partition(":")[0] for line in lines][:2] == ["unknown key 'rouds'", "unknown algorithm.name = {'a'"]


def test_a_mistake_in_a_table_that_algorithms_share_comes_once() -> None:
    assert len(refusals(["local.lr=fast", "local.epoch=2"], BOTH)) == 2


def test_an_error_of_several_mistakes_can_be_named_by_its_place() -> None:
    with pytest.raises(InputError) as error:
        Experiment.of(read("quickstart", ["lr=1", "rouds=2"]))
    assert str(error.value).count("\n") == 1
    assert "\n" not in str(InputError(f"study.datasets.one: {error.value}"))


@pytest.mark.parametrize(
    ("change", "begin"),
    [
        ("algorithm.fedprox.fraction=7", "algorithm.fedprox.fraction = 7"),
        ("algorithm.fraction=7", "algorithm.fraction = 7"),
    ],
)
def test_a_mistake_of_one_of_several_algorithms_names_it(change: str, begin: str) -> None:
    (line,) = refusals([change], BOTH)
    assert line.startswith(begin)


def test_values_out_of_range_come_with_the_other_mistakes() -> None:
    lines = refusals(["rounds=-1", "local.lr=-1", "local.momentum=2", "local.epochs=0"])
    assert [line.partition(" = ")[0] for line in lines] == ["rounds", "local.epochs", "local.lr", "local.momentum"]
