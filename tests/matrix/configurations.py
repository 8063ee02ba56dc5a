"""Configurations of the matrix: every algorithm, every option alone, and the pairs that people use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from algorithms.names import ALGORITHMS

ROUNDS = 5

OWN_CODE = Path(__file__).parent / "own"
"""Folder of code as a user writes it; no package, so that an error of the tests is not one of this code."""

MLP = {"name": "mlp", "hidden": [12]}
NORMED = {**MLP, "norm": "batch"}
DEEP = {"name": "mlp", "hidden": [12, 8]}
DROPOUT = {"name": "cnn_dropout", "hidden": 16}

NEEDS_BATCH_NORM = ("fedbn", "silobn", "fixbn", "static-bn", "fedtan", "singleset")

ITS_OWN: dict[str, dict[str, Any]] = {
    **{name: {"aggregate_every": 3} for name in ("radfed", "radfedm", "radfeda", "radfedi")},
    "radfedp": {"aggregate_every": 3, "proximal": 0.5},
    "fedprox": {"proximal": 0.1},
    "centralized": {"fraction": 1.0},
    "fedbs": {"patience": 1},
    "fixbn": {"fix_after": 2},
    "heterofl": {"levels": [1.0, 0.5, 0.25]},
    "fjord": {"levels": [0.3, 0.6, 1.0]},
    "hierfavg": {"edges": {"number": 3, "cloud_every": 2}},
    "fedmmb": {"batches": 2},
}
"""What an algorithm is given besides its name."""

BATCH, BATCH_TUNED = 24, 32
"""Batch sizes of two to four steps a client update, and of two or three, of which the last is short."""

SHIFTED = {
    "data": {"dataset": "shifted:digits", "shifts": ["none", "invert", "noise"], "sample": 0.5, "test": 0.2},
    "partition": {"scheme": "domains", "domain": "domain", "clients_per_domain": 3, "local_test": 0.2},
    "fleet": {"block": "auto"},
    "evaluate": {"every": 2, "on": ["domains"]},
}
"""Clients of three domains, each of which is tested alone."""

PHONES = {"devices": {"compute": 20.0, "spread": 1.0, "latency": 1.0}}
AT_NIGHT = {"devices": {**PHONES["devices"], "compute": 0.05, "availability": "day-night"}}
VANISHING = {
    "rounds": 8,
    "devices": {"compute": 20.0, "spread": 1.0, "latency": 1000.0, "availability": "day-night", "hours": 5.0},
}
"""Clients that leave amid a client update."""
TOP_K = [{"name": "top-k", "share": 0.1}]
QUANTISE = {"name": "quantise", "levels": 64}
PRIVACY = {"privacy": {"noise": 1.0, "clip": 0.1, "delta": 1e-3, "accountant": "rdp"}}
ADAPTIVE = {"privacy": {**PRIVACY["privacy"], "adaptive": {"count_noise": 2.0}}}
FOR_EPSILON = {
    "privacy": {"epsilon": 6.0, "clip": 0.5, "delta": 1e-3, "accountant": "rdp", "adaptive": {"count_noise": 3.0}}
}
POISSON = {"sampling": "poisson", "weighting": "equal"}
SIGN_FLIP = {"attack": {"share": 0.3, "kind": "sign-flip", "scale": 2.0}}
COLLUDING = {"attack": {"share": 0.3, "kind": "little-is-enough"}}
KRUM = {"server": {"aggregate": "krum", "byzantine": 1}}
MULTI_KRUM = {"server": {"aggregate": "multi-krum", "byzantine": 1}}
MEDIAN = {"server": {"aggregate": "median"}}
GEOMETRIC = {"server": {"aggregate": "geometric-median"}}
TWINS = {"evaluate": {"every": 1, "metrics": ["accuracy", "loss"], "measures": ["dc", "concordance"]}}
AUGMENTED = {
    "dataset": "digits",
    "test": 0.1,
    "standardise": "global",
    "augment": ["crop", "flip", "colour-jitter"],
    "crop_padding": 1,
}
ONE_LOGIT = {
    "data": {"dataset": "digits", "classes": [3, 8], "test": 0.2},
    "local": {"loss": "binary", "lr": 0.1, "batch_size": 8},
    "evaluate": {"every": 2, "metrics": ["accuracy", "loss", "f1", "auc", "average_precision", "brier", "ece"]},
}
REAL_TABLE = {
    "data": {
        "dataset": "heart-disease",
        "columns": {"categories": ["cp", "restecg"], "drop_first": True, "impute": "mean", "fit": "client"},
        "standardise": "client",
    },
    "partition": {"scheme": "natural", "column": "hospital", "local_test": "split", "test_clients": 1},
    "model": {"name": "logistic"},
    "local": {"loss": "binary", "lr": 0.1, "batch_size": 8},
    "evaluate": {"every": 2, "metrics": ["accuracy", "loss", "auc"]},
}
"""Hospitals with categories, a column that names their test rows, and statistics of their own."""
LOW_RANK = {
    "partition": {"scheme": "iid", "clients": 60},
    "model": {"name": "mlp", "hidden": [50]},
    "local": {"lr": 0.1, "batch_size": 8, "momentum": 0.5, "execution": "low-rank"},
    "fleet": {},
}
"""Several client updates a block, which are kept as products of two narrow matrices."""


def experiment(name: str = "fedavg", tables: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """Return an experiment of a few uneven clients.

    Args:
        name: algorithm.
        tables: tables that are added, or replace common ones.
        keys: keys of the algorithm; None removes a common one.
    """
    given = {"name": name, "fraction": 0.6, **ITS_OWN.get(name, {}), **keys}
    return {
        "seed": 3,
        "rounds": ROUNDS,
        "data": {"dataset": "digits", "sample": 0.5, "test": 0.2},
        "partition": {"scheme": "dirichlet-per-class", "clients": 10, "local_test": 0.2},
        "model": NORMED if name in NEEDS_BATCH_NORM else DEEP,
        "local": {"lr": 0.1, "batch_size": BATCH},
        "algorithm": {key: value for key, value in given.items() if value is not None},
        "fleet": {"block": 2},
        "evaluate": {"every": 2},
        "modules": [str(OWN_CODE)],
        **(tables or {}),
    }


def _tuned() -> dict[str, dict[str, Any]]:
    """Return each algorithm with batch norm, devices, held-out clients, tuned copies and uneven blocks."""
    tables = {
        "partition": {"scheme": "dirichlet-per-class", "clients": 9, "test_clients": 2, "local_test": 0.25},
        "model": NORMED,
        "local": {"lr": 0.1, "batch_size": BATCH_TUNED},
        "devices": {"compute": 500.0, "spread": 0.5, "down": 1e6, "up": 1e5, "latency": 0.05},
        "fleet": {"block": 3},
        "evaluate": {"every": 3, "finetune": {"epochs": 1, "part": "head"}},
    }
    return {f"{name} tuned": experiment(name, tables) for name in ALGORITHMS}


OPTIONS: dict[str, dict[str, Any]] = {
    "power-of-choice": experiment(fraction=None, cohort=3, candidates=6),
    "size": experiment(sampling="size"),
    "inactive": experiment(active=0.5),
    "poisson": experiment(sampling="poisson"),
    "joins": experiment("fedbn", joins={"1": 2, "4": 4}),
    "devices": experiment(tables=PHONES),
    "oort": experiment(tables=PHONES, sampling="oort"),
    "own selection": experiment(sampling="matrix_code:rarest"),
    "over-selection": experiment(tables=PHONES, over=1.5),
    "deadline": experiment(tables=PHONES, deadline=6.0),
    "stale": experiment(tables=PHONES, deadline=6.0, late="stale"),
    "absence": experiment(tables=AT_NIGHT),
    "attack": experiment(tables=SIGN_FLIP),
    "label-flip": experiment(tables={"attack": {"share": 0.3, "kind": "label-flip"}}),
    "gaussian": experiment(tables={"attack": {"share": 0.3, "kind": "gaussian"}}),
    "little-is-enough": experiment(tables=COLLUDING),
    "inner-product": experiment(tables={"attack": {"share": 0.3, "kind": "inner-product"}}),
    "median": experiment(**MEDIAN),
    "trimmed-mean": experiment(server={"aggregate": "trimmed-mean", "trim": 0.2}),
    "krum": experiment(**KRUM),
    "multi-krum": experiment(**MULTI_KRUM),
    "geometric-median": experiment(**GEOMETRIC),
    "top-k": experiment(uplink={"chain": TOP_K}),
    "feedback": experiment(uplink={"chain": TOP_K, "feedback": True}),
    "clip and noise": experiment(uplink={"chain": [{"name": "clip", "norm": 0.1}, {"name": "noise", "std": 0.01}]}),
    "random-k": experiment(uplink={"chain": [{"name": "random-k", "share": 0.1}]}),
    "quantise": experiment(uplink={"chain": [{"name": "quantise", "levels": 15}]}),
    "sign": experiment(uplink={"chain": [{"name": "sign"}]}),
    "downlink": experiment(downlink={"chain": TOP_K}),
    "privacy": experiment(tables=PRIVACY, **POISSON),
    "adaptive privacy": experiment(tables=ADAPTIVE, **POISSON),
    "nonfinite": experiment(tables={"local": {"lr": 1e12, "batch_size": 10, "nonfinite": "leave-out"}}),
    "measures": experiment("fedavg", {"model": NORMED, "evaluate": {"every": 2, "measures": ["dl", "bn"]}}),
    "twins": experiment(tables={"evaluate": {"every": 1, "measures": ["dc", "concordance"]}}),
    "dropout": experiment(tables={"model": DROPOUT}),
    "finetune": experiment("fedbabu", {"evaluate": {"every": 2, "finetune": {"epochs": 1}}}),
    "newcomer": experiment("fedbn", newcomer="average"),
    "until a target": experiment(
        tables={"evaluate": {"every": 2, "target": {"test_loss": 2.3345}, "until_target": True}}
    ),
    "by the best": experiment(tables={"evaluate": {"every": 1, "select": "best", "select_by": "test_accuracy"}}),
    "momentum": experiment(
        tables={"local": {"lr": 0.1, "batch_size": 40, "momentum": 0.9, "weight_decay": 1e-3, "clip": 1.0}}
    ),
    "adam": experiment(tables={"local": {"lr": 0.01, "batch_size": 40, "optimizer": "adam"}}),
    "vectorised": experiment(tables={"local": {"lr": 0.1, "batch_size": 40, "execution": "vectorised"}}),
    "fused": experiment(tables={"local": {"lr": 0.1, "batch_size": 40, "execution": "fused"}}),
    "low-rank": experiment(
        tables={"model": {"name": "logistic"}, "local": {"lr": 0.1, "batch_size": 40, "execution": "low-rank"}}
    ),
    "augmented": experiment(tables={"data": AUGMENTED}),
    "one logit": experiment(tables=ONE_LOGIT),
    "real table": experiment(tables=REAL_TABLE),
    "own augmentation": experiment(tables={"data": {**AUGMENTED, "augment": ["crop", "matrix_code:cutout"]}}),
    "own server rule": experiment(
        tables={"local": {"lr": 0.1, "batch_size": 40, "execution": "fused"}},
        server={"rule": "matrix_code:Extrapolated", "eps": 1e-9},
    ),
    "own loss of batches": experiment(
        "ifca",
        {
            "local": {
                "lr": 0.1,
                "batch_size": 16,
                "batches": 2,
                "loss": "matrix_code:contrastive",
                "execution": "vectorised",
            }
        },
    ),
    "spread edges": experiment("fedprox", edges={"number": 3, "by": "spread", "cloud_every": 4}),
    "edges by label": experiment("hierfavg", edges={"number": 4, "by": "label", "cloud_every": 3}),
    "levels by round": experiment("heterofl", {"model": NORMED}, levels=[1.0, 0.5], by="round"),
    "ordered dropout": experiment("fjord", {"model": DROPOUT}, levels=[0.1, 0.05], static_bn=False),
    "ordered lanes": experiment(
        "fjord",
        {"model": NORMED, "local": {"lr": 0.1, "batch_size": 40, "execution": "vectorised"}, "fleet": {"block": 4}},
        levels=[0.5, 1.0],
        by="round",
    ),
    "ifca by an own rule": experiment("ifca", clusters=3, choose="matrix_code:steady"),
    "domains": experiment("fedbn", SHIFTED),
    "redrawn gossip": experiment("dpsgd", topology={"graph": "erdos-renyi", "probability": 0.5, "redraw": "round"}),
}
"""Runs with one option."""


PAIRS: dict[str, dict[str, Any]] = {
    "privacy and top-k": experiment(tables=PRIVACY, uplink={"chain": TOP_K}, **POISSON),
    "privacy and fedbn": experiment("fedbn", PRIVACY, **POISSON),
    "privacy and downlink": experiment(tables=PRIVACY, downlink={"chain": TOP_K}, **POISSON),
    "privacy and fedadam": experiment("fedadam", PRIVACY, **POISSON),
    "deadline and feedback": experiment(tables=PHONES, deadline=6.0, uplink={"chain": TOP_K, "feedback": True}),
    "stale fedbn": experiment("fedbn", PHONES, deadline=6.0, late="stale"),
    "stale ditto": experiment("ditto", PHONES, deadline=6.0, late="stale"),
    "stale with over-selection": experiment(tables=PHONES, deadline=6.0, late="stale", over=1.3),
    "radfed with devices": experiment("radfed", PHONES),
    "radfed in time": experiment("radfed", PHONES, deadline=6.0, fewer="drop"),
    "radfed drops": experiment("radfed", active=0.6, fewer="drop"),
    "radfed waits": experiment("radfed", active=0.6, fraction=0.5),
    "radfed joined": experiment("radfed", joins={"1": 2, "4": 4}),
    "radfed under attack": experiment("radfed", SIGN_FLIP),
    "radfed compressed": experiment("radfed", uplink={"chain": [{"name": "quantise", "levels": 255}]}),
    "radfed measured": experiment("radfed", {"evaluate": {"every": 2, "measures": ["dl"]}}),
    "radfedi inactive": experiment("radfedi", active=0.5),
    "radfedi with devices": experiment("radfedi", PHONES),
    "krum under attack": experiment(tables=SIGN_FLIP, **KRUM),
    "median under collusion": experiment(tables=COLLUDING, **MEDIAN),
    "median and fedbn": experiment("fedbn", **MEDIAN),
    "median and top-k": experiment(uplink={"chain": TOP_K}, **MEDIAN),
    "attack and clip": experiment(tables=SIGN_FLIP, uplink={"chain": [{"name": "clip", "norm": 0.1}]}),
    "feedback and downlink": experiment(
        uplink={"chain": TOP_K, "feedback": True}, downlink={"chain": [{"name": "quantise", "levels": 63}]}
    ),
    "downlink and fedbn": experiment("fedbn", downlink={"chain": TOP_K}),
    "downlink with devices": experiment(tables=PHONES, downlink={"chain": TOP_K}),
    "oort with over-selection": experiment(tables=PHONES, sampling="oort", over=1.3),
    "oort with stale updates": experiment(tables=PHONES, sampling="oort", deadline=6.0, late="stale"),
    "oort and moon": experiment("moon", PHONES, sampling="oort"),
    "candidates with devices": experiment(tables=PHONES, fraction=None, cohort=3, candidates=6),
    "candidates and fedbn": experiment("fedbn", fraction=None, cohort=3, candidates=6),
    "fedbuff with devices": experiment("fedbuff", PHONES, concurrency=5),
    "fedbuff at night": experiment("fedbuff", AT_NIGHT, concurrency=3),
    "fedbuff and fedbn's model": experiment("fedbuff", {**PHONES, "model": NORMED}, concurrency=5),
    "own selection with devices": experiment("fedbn", PHONES, sampling="matrix_code:rarest", deadline=6.0),
    "radfed by an own selection": experiment("radfed", sampling="matrix_code:rarest", active=0.7),
    "fedasync with devices": experiment("fedasync", PHONES, concurrency=5),
    "fedasync compressed": experiment("fedasync", uplink={"chain": TOP_K}),
    "fixbn in time": experiment("fixbn", PHONES, deadline=6.0),
    "fixbn measured": experiment("fixbn", {"evaluate": {"every": 2, "measures": ["bn"]}}),
    "fedbs compressed": experiment("fedbs", uplink={"chain": TOP_K, "feedback": True}),
    "fedadam joined": experiment("fedadam", joins={"1": 2, "4": 4}),
    "scaffold compressed": experiment("scaffold", uplink={"chain": [{"name": "quantise", "levels": 255}]}),
    "feddyn at night": experiment("feddyn", AT_NIGHT),
    "fedtan with devices": experiment("fedtan", PHONES),
    "centralized with devices": experiment("centralized", PHONES),
    "moon inactive": experiment("moon", active=0.5),
    "fedmmb with dropout": experiment("fedmmb", {"model": DROPOUT}),
    "q-fedavg in time": experiment("q-fedavg", PHONES, deadline=6.0),
    "fednova by size": experiment("fednova", sampling="size"),
    "ditto fine-tuned": experiment("ditto", {"evaluate": {"every": 1, "finetune": {"epochs": 1}}}),
    "fedadam with downlink": experiment("fedadam", downlink={"chain": TOP_K}),
    "fedavgm with median": experiment("fedavgm", server={"rule": "momentum", "aggregate": "median"}),
    "over-selection of vanishing clients": experiment(tables=VANISHING, over=1.5, deadline=1004.0),
    "stale fedbn of vanishing clients": experiment("fedbn", VANISHING, deadline=1003.0, late="stale"),
    "radfed of vanishing clients": experiment("radfed", VANISHING, deadline=1006.0),
    "oort of vanishing clients": experiment("fedprox", VANISHING, sampling="oort"),
    "fedasync of vanishing clients": experiment("fedasync", VANISHING, concurrency=3),
    "fedbuff of vanishing clients": experiment("fedbuff", VANISHING, buffer=3, concurrency=4),
    "two stages and feedback": experiment(uplink={"chain": [*TOP_K, QUANTISE], "feedback": True}),
    "fedbn by sign": experiment("fedbn", uplink={"chain": [{"name": "random-k", "share": 0.1}, {"name": "sign"}]}),
    "fedadam with two stages down": experiment("fedadam", downlink={"chain": [*TOP_K, QUANTISE]}),
    "fedasync and noise": experiment("fedasync", uplink={"chain": [{"name": "noise", "std": 0.01}]}),
    "privacy and fedprox": experiment("fedprox", PRIVACY, **POISSON),
    "adaptive privacy and fedadam": experiment("fedadam", FOR_EPSILON, **POISSON),
    "multi-krum and fedbn under collusion": experiment("fedbn", COLLUDING, **MULTI_KRUM),
    "geometric median and fedadam under collusion": experiment("fedadam", COLLUDING, **GEOMETRIC),
    "twins of radfed": experiment("radfed", {**TWINS, "model": NORMED}),
    "twins of static-bn": experiment("static-bn", TWINS),
    "twins of centralized": experiment("centralized", {**TWINS, "model": NORMED}),
    "twins of augmented clients": experiment(tables={**TWINS, "data": AUGMENTED}),
    "edges with devices": experiment(
        "fedadam", PHONES, edges={"number": 2, "cloud_every": 3, "up": 1e4, "latency": 5.0}
    ),
    "edges and fedbn": experiment("fedbn", joins={"1": 2, "4": 4}, edges={"number": 3, "cloud_every": 2}),
    "edges and fixbn": experiment("fixbn", active=0.5, edges={"number": 3, "cloud_every": 3}),
    "edges compressed": experiment(
        "fedavgm", uplink={"chain": TOP_K, "feedback": True}, edges={"number": 3, "cloud_every": 2}
    ),
    "edges and scaffold": experiment("scaffold", edges={"number": 2, "cloud_every": 2}),
    "levels by speed": experiment("heterofl", PHONES, levels=[1.0, 0.25], shares=[1.0, 2.0], by="speed"),
    "levels compressed": experiment(
        "heterofl", levels=[1.0, 0.5], server={"rule": "momentum"}, uplink={"chain": TOP_K}
    ),
    "gossip of received models": experiment(
        "dpsgd", {"topology": {"graph": "exponential"}}, order="combine-then-adapt", active=0.7, fraction=None
    ),
    "directed gossip in batches": experiment(
        "sgp",
        {"model": NORMED, "local": {"lr": 0.1, "batch_size": 40, "batches": 2}},
        topology={"graph": "random-regular", "degree": 4, "directed": True},
    ),
    "gossip by the best": experiment(
        "dpsgd", {"evaluate": {"every": 1, "select": "best", "select_by": "test_accuracy"}}, joins={"1": 2, "4": 4}
    ),
    "low-rank mlp": experiment(tables=LOW_RANK, fraction=None, cohort=20),
    "low-rank radfed": experiment("radfed", LOW_RANK, fraction=None, cohort=20),
}
"""Runs with two options or more."""


BY_ALGORITHM = {**{name: experiment(name) for name in ALGORITHMS}, **_tuned()}
CONFIGURATIONS = {**BY_ALGORITHM, **OPTIONS, **PAIRS}
"""Experiments by name."""

ASKED = (
    *("until a target", "redrawn gossip", "ifca by an own rule", "edges with devices", "levels compressed"),
    *("feedback and downlink", "fedmmb with dropout", "twins of radfed"),
    *("fedasync of vanishing clients", "radfed of vanishing clients"),
    *("twins of centralized", "fedtan with devices", "edges and fixbn"),
)
"""Configurations that are asked to stop, some of each kind of round; of others, a copy amid the run is resumed, which
takes fewer rounds."""

ON_TWO_ACTORS = (
    "fedavg",
    "fedbn tuned",
    "radfed tuned",
    "scaffold",
    "fedtan",
    "centralized",
    "hierfavg tuned",
    "ifca by an own rule",
    "ordered lanes",
    "dpsgd tuned",
    "fedasync of vanishing clients",
    "candidates and fedbn",
    "stale ditto",
    "adaptive privacy",
    "feedback and downlink",
    "measures",
    "twins of radfed",
    "low-rank radfed",
    "dropout",
    "own augmentation",
    "radfedi inactive",
    "real table",
)
"""Configurations on two actors in the default suite: each way in which the driver and actors share the work."""

KILLED = ("edges compressed", "fedbn tuned", "redrawn gossip", "fedbuff at night", "feedback and downlink")
"""Configurations that are killed in the default suite: with personal state, updates under way, and options' memory."""
