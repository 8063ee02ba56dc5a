import re
import tomllib
from typing import Any

import pytest
import tomli_w

from algorithms import (
    Concurrent,
    Drawn,
    DrawnDevices,
    Equal,
    Hinge,
    Method,
    Mix,
    Polynomial,
    Quantise,
    Rounds,
    TopK,
    Uplink,
    WeightedMix,
    fedavg,
)
from algorithms.fedprox import Proximal
from raysim.common.errors import InputError
from raysim.config.experiment import Experiment
from raysim.config.read import changed
from raysim.store.resume import settings

BASE: dict[str, Any] = {
    "data": {"dataset": "digits"},
    "partition": {"scheme": "dirichlet-qp", "clients": 5, "label_alpha": 0.1},
    "algorithm": {"name": "fedavg"},
}


def test_defaults_are_written_out_and_read_back() -> None:
    experiment = Experiment.of(BASE)
    resolved = experiment.to_toml()
    partition = dict(resolved["partition"])
    assert (partition.pop("solver"), partition.pop("randomise"), partition.pop("step")) == ("auto", "none", 0.002)
    assert [partition.pop(key) for key in ("burn_in", "search", "burn_in_ratio")] == [100_000, 500_000, 1.1]
    assert partition == {
        "scheme": "dirichlet-qp",
        "clients": 5,
        "test_clients": 0.0,
        "validation_clients": 0.0,
        "folds": 0,
        "stratify": False,
        "local_test": 0.0,
        "features": [],
        "buckets": 4,
        "size_alpha": 1.0,
        "label_alpha": 0.1,
        "min_size": 1,
    }
    common = {"norm": "none", "init": "default", "train": "all"}
    assert resolved["model"] == {"name": "mlp", "hidden": [200, 200], **common}
    assert resolved["algorithm"][0]["local"]["epochs"] == 1
    assert Experiment.of(resolved) == experiment
    assert Experiment.of(resolved).to_toml() == resolved
    tomli_w.dumps(resolved)


def test_tables_compose_an_algorithm() -> None:
    experiment = Experiment.of(
        {
            **BASE,
            "local": {"epochs": 3, "lr": 0.5},
            "server": {"rule": "mix", "alpha": 0.5},
            "algorithm": [
                {"name": "radfed", "aggregate_every": 4, "cohort": 2},
                {"name": "fedavg", "local": {"steps": 7}, "server": {"rule": "assign"}},
                {"name": "fedprox", "proximal": 0.3},
            ],
        }
    )
    radfed, own, prox = (table.compose() for table in experiment.algorithm)
    assert radfed.schedule == Rounds(radfed.schedule.participation, 4) and radfed.schedule.participation.cohort == 2
    assert radfed.server == Mix(0.5) and radfed.weighting == Equal() and radfed.local.epochs == 3
    assert own.local.steps == 7 and own.local.epochs is None and own.local.lr == 0.5
    assert own == fedavg(own.schedule.participation, own.local)
    assert prox.local.method == Proximal(0.3)


def test_a_label_names_an_algorithm_and_changes_no_setting() -> None:
    plain: list[dict[str, Any]] = [{"name": "fedavg"}, {"name": "fedavg", "cohort": 3}]
    labels = "all", "few_3-10"
    labelled = [table | {"label": label} for table, label in zip(plain, labels, strict=True)]
    changes = ["algorithm.few_3-10.local.lr=0.3", "algorithm.all.cohort=2", "algorithm.fedavg.active=0.5"]
    experiment = Experiment.of(changed(BASE | {"algorithm": labelled}, changes))
    assert experiment.names == [*labels]
    assert [table.cohort for table in experiment.algorithm] == [2, 3]
    assert [table.compose().local.lr for table in experiment.algorithm] == [0.1, 0.3]
    assert {table.active for table in experiment.algorithm} == {0.5}
    assert Experiment.of(experiment.to_toml()).names == [*labels]
    bare, named = (Experiment.of(BASE | {"algorithm": tables}) for tables in (plain, labelled))
    assert [settings(bare, name) for name in bare.names] == [settings(named, name) for name in named.names]
    assert not any("label" in table for table in bare.to_toml()["algorithm"])


def test_the_fold_is_of_the_partition_or_of_the_made_population() -> None:
    assert Experiment.of(BASE).fold is None
    partition = {"clients": 5, "folds": 4, "fold": 2, "stratify": True}
    made = Experiment.of({**BASE, "partition": partition})
    assert made.fold == 2 and Experiment.of(made.to_toml()) == made
    elsewhere = {"data": {"population": "p", "fold": 3}, "algorithm": BASE["algorithm"]}
    assert Experiment.of(elsewhere).fold == 3


def test_the_number_of_clients_is_the_file_s_or_the_data_s() -> None:
    assert Experiment.of({**BASE, "partition": {"scheme": "shards"}}).partition.clients == 10
    assert Experiment.of({**BASE, "partition": {"scheme": "natural", "column": "user"}}).partition.clients is None


def test_an_algorithm_s_own_server_is_the_default() -> None:
    def server(**change: Any) -> dict[str, Any]:
        return Experiment.of({**BASE, **change}).to_toml()["algorithm"][0]["server"]

    assert server() == {"rule": "assign"}
    assert server(algorithm={"name": "radfedm"}) == {"rule": "mix", "alpha": 0.6}
    assert server(algorithm={"name": "radfedm", "server": {"alpha": 0.3}}) == {"rule": "mix", "alpha": 0.3}
    adam = {"rule": "adam", "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "tau": 0.001}
    assert server(algorithm={"name": "fedadam"}) == adam
    assert server(algorithm={"name": "fedadam"}, server={"lr": 0.5}) == {**adam, "lr": 0.5}
    assert server(algorithm={"name": "radfed"}, server={"rule": "adam", "tau": 0.01}) == {**adam, "tau": 0.01}


def test_an_algorithm_may_have_a_model_of_its_own() -> None:
    """What it does not say is of the common one, where it is the same model."""
    own = [{}, {"model": {"norm": "group", "groups": 4}}, {"model": {"name": "logistic"}}]
    tables = [{"name": "fedavg", **each} for each in own]
    experiment = Experiment.of({**BASE, "model": {"hidden": [8], "norm": "batch"}, "algorithm": tables})
    plain, group, other = (experiment.flat(name) for name in experiment.names)
    assert experiment.algorithm[0].model is None and plain["model.norm"] == "batch"
    assert (group["model.hidden"], group["model.norm"], group["model.groups"]) == ([8], "group", 4)
    assert (other["model.name"], "model.hidden" in other, other.get("model.norm")) == ("logistic", False, None)
    assert Experiment.of(experiment.to_toml()) == experiment
    assert [settings(experiment, name)["model.name"] for name in experiment.names] == ['"mlp"', '"mlp"', '"logistic"']
    assert settings(experiment, "fedavg-2")["model.norm"] == '"group"'
    with pytest.raises(InputError, match=r"model\.groop"):
        Experiment.of({**BASE, "algorithm": {"model": {"groop": 4}}})


def test_another_optimiser_leaves_the_keys_of_the_common_one() -> None:
    tables = [{"name": "fedavg"}, {"name": "fedprox", "local": {"optimizer": "sgd", "momentum": 0.5}}]
    local = {"optimizer": "adam", "beta1": 0.8, "eps": 1e-6}
    common, special = Experiment.of({**BASE, "local": local, "algorithm": tables}).algorithm
    assert (common.compose().local.beta1, common.compose().local.eps) == (0.8, 1e-6)
    found = special.compose().local
    assert (found.optimizer, found.momentum, found.beta1, found.eps) == ("sgd", 0.5, 0.9, 1e-8)
    named = {"name": "fedavg", "local": {"optimizer": "sgd"}}
    assert Experiment.of({**BASE, "local": {"momentum": 0.9}, "algorithm": named}).algorithm[0].local.momentum == 0.9


def test_asynchronous_algorithms_and_devices() -> None:
    experiment = Experiment.of(
        {
            **BASE,
            "devices": {"compute": 50, "up": 1e4},
            "algorithm": [
                {"name": "fedasync"},
                {"name": "fedasync", "staleness": "hinge", "a": 5, "max_staleness": 18, "server": {"alpha": 0.3}},
                {"name": "fedasync", "staleness": "constant", "proximal": 0, "max_staleness": "matched"},
                {"name": "fedasync", "concurrency": 4},
            ],
        }
    )
    usual, hinge, constant, four = (table.compose() for table in experiment.algorithm)
    assert (usual.weighting, usual.server, usual.local.method) == (Polynomial(0.5), WeightedMix(0.6), Proximal(0.01))
    assert (hinge.weighting, hinge.server) == (Hinge(5.0, 4.0), WeightedMix(0.3))
    assert (constant.weighting, constant.local.method) == (Equal(), Method())
    delays = [algorithm.schedule.delay for algorithm in (usual, hinge, constant, four)]
    assert delays == [Concurrent(), Drawn(18), Drawn(), Concurrent(4)]
    assert experiment.devices is not None and experiment.devices.profile() == DrawnDevices(compute=50, up=1e4)
    assert Experiment.of(experiment.to_toml()) == experiment
    assert Experiment.of(BASE).devices is None and "devices" not in Experiment.of(BASE).to_toml()
    assert Experiment.of({**BASE, "devices": {}}).devices.profile() == DrawnDevices()


SIGNS = {"chain": [{"name": "sign"}]}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"devices": {"compute": 0}}, r"devices.compute = 0.*: must be a finite number > 0"),
    ({"devices": {"bandwidth": 5}}, r"unknown key 'devices.bandwidth'"),
    ({"devices": 5}, r"devices = 5: must be a table"),
    ({"devices": {"table": "t.parquet", "compute": 5.0}}, r"devices.compute with devices.table: must be left out"),
    ({"devices": {"table": "t.parquet", "availability": "day-night"}}, r"devices.availability with devices.table"),
    ({"devices": {"sha256": "0" * 64}}, r"devices.sha256 = .* must stand with devices.table"),
    ({"devices": {"hours": 5.0}}, r'devices.hours = 5.0: must stand with devices.availability = "day-night"'),
    ({"devices": {"availability": "weekends"}}, r"devices.availability = 'weekends'"),
    ({"devices": {"availability": "day-night", "zones": 0}}, r"devices.zones = 0"),
    ({"algorithm": {"name": "fedasync", "max_staleness": 3, "concurrency": 2}}, r"\(2, 3\): must be one of them"),
    ({"algorithm": {"name": "fedasync", "max_staleness": "all"}}, r"algorithm.max_staleness = 'all'.*'matched'"),
    ({"algorithm": {"name": "fedasync", "b": 3}}, r'algorithm.b = 3.* with algorithm.staleness = "polynomial"'),
    ({"algorithm": {"name": "fedasync", "sampling": "size"}}, r'algorithm.sampling = "size"'),
    ({"server": {"rule": "weighted-mix", "alpha": 0.5}}, r"server.rule = 'weighted-mix' with synchronous rounds: must"),
    ({"algorithm": {"name": "fedadam"}, "server": {"rule": "yogi"}}, r"server.rule = Yogi.*must be 'adam' for fedadam"),
    ({"server": {"lr": 0.1}}, r"unknown key 'server.lr' of rule assign"),
    ({"partition": {"scheme": "natural", "column": "u", "clients": 3}}, r"partition.clients = 3: must be left out"),
    ({"partition": {"buckets": 8}}, r"partition.buckets = 8: must stand with partition.features; set them"),
    ({"evaluate": {"metrics": []}}, r"evaluate.metrics = \[\]: should have at least one item; correct it, or leave"),
    ({"evaluate": {"on": []}}, r"evaluate.on = \[\]: should have at least one item; correct it, or leave it out"),
    ({"partition": {"scheme": "natural"}}, r"partition.column"),
    ({"partition": {"folds": 3, "fold": 3}}, r"partition.fold = 3: must be below partition.folds = 3"),
    ({"partition": {"fold": 0}}, r"partition.fold = 0: must be below partition.folds = 0"),
    ({"partition": {"folds": 3, "fold": 0, "validation": 3}}, r"validation = 3: must be another fold than .*fold = 0,"),
    ({"partition": {"folds": 3, "fold": 1, "validation": 1}}, r"validation = 1: must be another fold than .*fold = 1,"),
    ({"partition": {"validation_clients": 1.5}}, r"partition.validation_clients = 1.5"),
    ({"data": {"dataset": "digits", "fold": 1}}, r"data.fold = 1: must stand with data.population"),
    ({"rounds": "ten"}, "rounds = 'ten': should be a whole number; "),
    ({"round": 3}, r"unknown key 'round'.* did you mean 'rounds'"),
    ({"local": {"epoch": 3}}, r"unknown key 'local.epoch'.* did you mean 'local.epochs'"),
    ({"partition": {"scheme": "dirichlet-qp", "lable_alpha": 1}}, r"did you mean 'label_alpha'"),
    ({"partition": {"scheme": "iid", "label_alpha": 1}}, r"unknown key 'partition.label_alpha'"),
    ({"partition": {"scheme": "dirichlet-pq"}}, r"unknown partition.scheme = 'dirichlet-pq'.* 'dirichlet-qp'"),
    ({"model": {"name": "mpl"}}, r"unknown model.name = 'mpl'.* did you mean 'mlp'"),
    ({"model": {"name": "logistic", "hiden": 3}}, r"unknown key 'model.hiden'"),
    ({"algorithm": {"model": {"hiden": 3}}}, r"unknown key 'algorithm.model.hiden'.* see `raysim list keys model`"),
    ({"algorithm": {"name": "fedavgg"}}, r"unknown algorithm.name = 'fedavgg'.* did you mean 'fedavg'"),
    ({"algorithm": {"name": "fedavg", "aggregate_every": 3}}, r"unknown key 'algorithm.aggregate_every'"),
    ({"algorithm": {"name": "fedavg", "fraction": 0}}, r"algorithm.fraction = 0.*in \(0, 1\]"),
    ({"algorithm": {"name": "fedavg", "fraction": -0.5}}, r"algorithm.fraction = -0.5"),
    ({"algorithm": {"name": "fedavg", "fraction": 1.1}}, r"algorithm.fraction = 1.1"),
    ({"algorithm": {"name": "fedavg", "cohort": 0}}, r"algorithm.cohort = 0"),
    ({"algorithm": {"name": "fedprox", "proximal": -1}}, r"proximal = -1"),
    ({"algorithm": {"name": "radfed", "aggregate_every": 0}}, r"_every = 0"),
    ({"algorithm": {"name": "radfed", "aggregate_every": 2.5}}, r"algorithm.aggregate_every = 2.5"),
    ({"algorithm": {"name": "fedbn", "weighting": "size"}}, r"algorithm.weighting = 'size'.*'samples' or 'equal'"),
    ({"algorithm": [{"label": r"a\1", "cohort": 0}, {}]}, r"algorithm\.a\\1\.cohort = 0"),
    ({"algorithm": []}, r"algorithm = \[\]: must be a table"),
    ({"algorithm": "fedavg"}, r"must be a table"),
    ({"local": {"lr": float("nan")}}, r"local.lr = nan"),
    ({"local": {"lr": float("inf")}}, r"local.lr = inf"),
    ({"local": {"lr": -1}}, r"local.lr = -1"),
    ({"local": {"lr": "fast"}}, r"local.lr = 'fast'"),
    ({"local": {"lr": True}}, r"local.lr = True"),
    ({"local": {"batch_size": 0}}, r"local.batch_size = 0"),
    ({"local": {"batch_size": "half"}}, r"local.batch_size = 'half'"),
    ({"local": {"epochs": 1, "steps": 1}}, r"local.epochs, local.steps"),
    ({"local": 3}, r"^local = 3: must be a table"),
    ({"data": {"dataset": "digits", "text": 1}}, r"^data.text = 1: must be a table; write \[data.text\] and"),
    ({"data": {"dataset": "digits", "columns": 1}}, r"^data.columns = 1: must be a table; write \[data.columns\] and"),
    ({"algorithm": {"local": 1}}, r"^algorithm.local = 1: must be a table; write \[algorithm.local\] and"),
    (
        {"algorithm": [{"name": "fedprox", "uplink": 1}, {}]},
        r"^algorithm.fedprox.uplink = 1: must be a table; write \[algorithm.uplink\] and",
    ),
    ({"server": {"rule": "adamw"}}, r"unknown server.rule = 'adamw'"),
    ({"server": {"rule": "mix"}}, r"server.alpha is missing"),
    ({"server": {"rule": "mix", "alpha": 2}}, r"server.alpha = 2"),
    ({"rounds": -1}, r"rounds = -1.*greater than or equal to 0"),
    ({"seed": -1}, r"seed = -1"),
    ({"seed": 1.5}, r"seed = 1.5"),
    ({"fleet": {"actors": 0}}, r"fleet.actors = 0"),
    ({"fleet": {"gpus_per_actor": -1}}, r"fleet.gpus_per_actor = -1"),
    ({"fleet": {"gpus_per_actor": "all"}}, r"fleet.gpus_per_actor = 'all': should be a number or 'auto'"),
    ({"fleet": {"block": "big"}}, r"fleet.block = 'big'"),
    ({"evaluate": {"metrics": ["acc"]}}, r"evaluate.metrics"),
    ({"evaluate": {"metrics": []}}, r"evaluate.metrics"),
    ({"evaluate": {"on": ["train"]}}, r"evaluate.on"),
    ({"evaluate": {"on": []}}, r"evaluate.on"),
    ({"evaluate": {"metrics": ["multilabel_f1"]}, "local": {"loss": "mse"}}, "'multilabel_f1' with local.loss = 'mse'"),
    (
        {"evaluate": {"metrics": ["multilabel_f1"]}, "algorithm": [{"name": "fedavg", "local": {"loss": "huber"}}]},
        "'multilabel_f1' with local.loss = 'huber': must go .*; set local.loss = \"binary\"",
    ),
    ({"evaluate": {"metrics": ["auc", "auc"]}}, r"evaluate.metrics.*only once"),
    ({"data": {"dataset": "digits", "image_size": [1]}}, r" = \[1\]: should be a whole number or a longer list; "),
    (
        {"data": {"dataset": "digits", "image_size": [1, 2, 3]}},
        r": should be a whole number or a list of at most 2 items; ",
    ),
    ({"data": {"dataset": "digits", "crop_scale": [1]}}, r"^data.crop_scale = \[1\]: should be a longer list; "),
    ({"partition": {"local_test": ""}}, r"local_test = '': should be a number or a text that is not empty; "),
    ({"data": {}}, r"must be exactly one of them"),
    ({"uplink": {"chain": [{"name": "topk"}]}}, r"unknown uplink.chain = 'topk'.* did you mean 'top-k'"),
    (
        {"uplink": {"chain": [{"name": "top-k", "share": 0.1, "shar": 1.0}]}},
        r"unknown key 'uplink.chain.shar'.* mean 'share'",
    ),
    ({"uplink": {"chain": [{"name": "top-k"}]}}, r"uplink.chain has stage top-k without 'share': must be given"),
    ({"uplink": {"chain": [{"share": 0.1}]}}, r"uplink.chain has .*must have a name"),
    ({"uplink": {"chain": "sign"}}, r"uplink.chain = 'sign': must be a list of stages"),
    ({"uplink": {"feedbak": True}}, r"unknown key 'uplink.feedbak'.* did you mean 'uplink.feedback'"),
    ({"uplink": {"feedback": True}}, r"uplink.feedback = true with an empty chain"),
    (
        {"uplink": {"chain": [{"name": "top-k", "share": 2}]}},
        r"^uplink.chain.top-k.share = 2.0: must be in \(0, 1\]; set uplink.chain.top-k.share =",
    ),
    (
        {"uplink": {"chain": [{"name": "sign"}]}, "algorithm": {"name": "singleset"}},
        r'uplink = .* with sharing.weights = "personal"',
    ),
    ({"uplink": {"chain": [{"name": "sign"}]}, "algorithm": {"name": "centralized"}}, r"uplink = .* with united data"),
    ({"downlink": {"chain": [{"name": "clip", "norm": 1.0}]}}, r"downlink.chain has Clip"),
    ({"downlink": {"feedback": True}}, r"unknown key 'downlink.feedback'"),
    ({"downlink": SIGNS, "algorithm": {"name": "radfed"}}, r"with aggregate_every"),
    ({"downlink": SIGNS, "algorithm": {"name": "fedasync"}}, r"with rounds of its own"),
    ({"downlink": SIGNS, "algorithm": {"cohort": 2, "candidates": 3}}, r"with algorithm.candidates"),
    ({"server": {"aggregate": "medain"}}, r"server.aggregate = 'medain'.*median"),
    ({"server": {"aggregate": "krum"}}, r"server.byzantine.*must be given"),
    ({"server": {"aggregate": "median", "trim": 0.1}}, r"server.trim"),
    ({"server": {"aggregate": "trimmed-mean", "trim": 0.6}}, r"server.trim = 0.6.*\[0, 0.5\)"),
    ({"server": {"aggregate": ["median"]}}, r"server.aggregate"),
    ({"server": {"aggregate": "median"}, "algorithm": {"name": "radfed"}}, r'"median".*aggregate_every'),
    ({"attack": {"kind": "signflip"}}, r"attack.kind = 'signflip'.*sign-flip"),
    ({"attack": {"shares": 0.1}}, r"attack.shares.*share"),
    ({"attack": {"share": 1.5}}, r"attack.share = 1.5.*\[0, 1\]"),
    ({"attack": {"kind": "label-flip", "scale": 2.0}}, r"attack.scale = 2.0"),
    ({"attack": {}, "algorithm": {"name": "fedasync"}}, r"attack.*rounds of its own"),
    ({"data": {"dataset": "digits", "population": "x"}}, r"must be exactly one of them; remove the other"),
    ({"data": {"population": "x"}}, r"partition = .*must not be given with data.population"),
    ({"data": {"dataset": "digits", "test": 1.0}}, r"data.test = 1.0"),
]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"deadline": 3.0}, "algorithm.deadline = 3.0"),
        ({"over": 1.3}, "algorithm.over = 1.3"),
        ({"deadline": 3.0, "late": "stale"}, "algorithm.deadline = 3.0"),
        ({"sampling": "oort"}, 'algorithm.sampling = "oort"'),
    ],
)
def test_a_key_of_virtual_time_needs_devices_when_the_file_is_read(keys: dict[str, Any], message: str) -> None:
    tables = [{"name": "fedavg", "cohort": 2}, {"name": "fedprox", "cohort": 2, **keys}]
    with pytest.raises(InputError) as error:
        Experiment.of(BASE | {"algorithm": tables})
    assert str(error.value) == (
        f"fedprox: {message} without [devices]: must have devices, which set the virtual time; add the table [devices]"
    )
    Experiment.of(BASE | {"algorithm": tables, "devices": {"compute": 5.0}})


def test_an_algorithm_s_own_uplink_replaces_the_common_one() -> None:
    common = {"chain": [{"name": "top-k", "share": 0.1}, {"name": "quantise", "levels": 9}], "feedback": True}
    own_one = {"chain": [{"name": "quantise", "levels": 4}]}
    tables = [{"name": "fedavg"}, {"name": "radfed", "uplink": own_one}, {"name": "fedbn", "uplink": {"chain": []}}]
    experiment = Experiment.of({**BASE, "uplink": common, "algorithm": tables})
    uplinks = [table.compose().option(Uplink) or Uplink() for table in experiment.algorithm]
    assert uplinks == [Uplink((TopK(0.1), Quantise(9)), True), Uplink((Quantise(4),)), Uplink()]
    again = Experiment.of(tomllib.loads(tomli_w.dumps(experiment.to_toml())))
    assert again == experiment and "uplink" not in Experiment.of(BASE).to_toml()["algorithm"][0]
    assert experiment.flat("radfed")["uplink.chain"] == [{"name": "quantise", "levels": 4}]


def test_text_without_keys_is_refused_beside_clients_that_exist() -> None:
    with pytest.raises(InputError, match=r"data\.text with data\.population: must be left out"):
        Experiment.of({"data": {"population": "p", "text": {}}, "algorithm": BASE["algorithm"]})


def test_two_mistakes_of_a_table_of_an_option_are_both_told() -> None:
    with pytest.raises(InputError) as error:
        Experiment.of({**BASE, "privacy": {"clip": -1.0}})
    assert str(error.value).splitlines() == [
        "privacy.noise, privacy.epsilon = (None, None): must be one of them; set privacy.noise = 1.0",
        "privacy.clip = -1.0: must be a finite number > 0; set privacy.clip = 1.0",
    ]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_wrong_input_is_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        Experiment.of({**BASE, **change})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"algorithm": {"name": "fedadam", "server": {"lr": "x"}}}, "algorithm.server.lr"),
        ({"algorithm": [{"name": "fedadam", "server": {"lr": "x"}}, {}]}, "algorithm.fedadam.server.lr"),
        ({"algorithm": {"name": "fedadam"}, "server": {"rule": "adam", "lr": "x"}}, "server.lr"),
        ({"algorithm": {"local": {"lr": -1.0}}}, "algorithm.local.lr"),
        ({"algorithm": {"model": {"norm": "batch-renorm", "renorm_r_end": 3}}}, "algorithm.model.renorm_r_end"),
        ({"algorithm": {"local": {"momentum": 0.1}}, "local": {"lr": "x"}}, "local.lr"),
    ],
)
def test_the_remedy_for_a_key_is_in_the_table_that_has_the_key(change: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as error:
        Experiment.of({**BASE, **change})
    what, _, remedy = str(error.value).partition(" = ")
    assert what == path and re.search(rf"[ '\[]{re.escape(path)} ?=", remedy)
