"""Names and meanings of everything that a run measures."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from raysim.common.units import percent
from raysim.measures.epsilon.accounting import EPSILON
from raysim.measures.selection import LOWER

ABSENT = "–"


@dataclass(frozen=True)
class Term:
    """Name and meaning of a measure, or of the samples of an evaluation; `short` fits above a narrow column."""

    title: str
    meaning: str
    short: str = ""


@dataclass(frozen=True)
class ShownMetric:
    """Name and meaning of a number of an evaluation.

    Args:
        title: its name.
        kind: format of its values: "number" or "share".
        best: `max` or `min`: chooses the best of several values.
        meaning: a noun phrase.
    """

    title: str
    kind: str
    best: Callable[[Sequence[float]], float]
    meaning: str

    def text(self, value: float | None) -> str:
        if value is None:
            return ABSENT
        if not math.isfinite(value):
            return "diverged"
        return percent(value) if self.kind == "share" else f"{value:.3f}"


@dataclass(frozen=True)
class Stage:
    """Part of a round or of a command, in the driver's seconds; `beside` if it may overlap the next round."""

    title: str
    colour: str
    meaning: str
    beside: bool = False


def _of_clients(name: str, title: str, pooled: str, mean: str) -> dict[str, Term]:
    """Return the terms of the pooled samples of clients, and of the mean over clients, by target."""
    short = title.lower()
    return {
        name: Term(f"{title}, pooled", pooled, short),
        f"{name}_mean": Term(f"{title}, mean", mean, f"{short}, mean"),
    }


TARGETS = {
    "test": Term("Global test set", "the data set's own test samples, which no client holds", "global test set"),
    **_of_clients(
        "held_out",
        "Held-out clients",
        "all samples of the clients that never train, as one set",
        "mean over the clients that never train; each counts once",
    ),
    **_of_clients(
        "validation",
        "Validation clients",
        "all samples of the clients held out for validation, as one set",
        "mean over the clients held out for validation; each counts once",
    ),
    **_of_clients(
        "local",
        "Own test parts",
        "the training clients' own test samples, each under its client's model",
        "mean over the training clients, each on its own test samples",
    ),
    **_of_clients(
        "local_validation",
        "Own validation parts",
        "samples that the search of a study cuts from the clients' training parts, each under its client's model",
        "mean over the training clients, each on the samples that the search cuts from its training part",
    ),
    **{
        f"{name}_finetuned{end}": Term(
            f"{title}, fine-tuned{comma}",
            f"{averaged} test samples of these clients, each under its client's model after evaluate.finetune",
            f"{title.lower()}, fine-tuned{comma}",
        )
        for name, title in (
            ("held_out", "Held-out clients"),
            ("validation", "Validation clients"),
            ("local", "Own test parts"),
        )
        for end, comma, averaged in (("", "", "all own"), ("_mean", ", mean", "mean over clients on the own"))
    },
    "domains": Term(
        "Test sets of domains, mean",
        "mean over domains; a domain's value is the mean over its clients on the domain's test set",
        "test sets of domains",
    ),
}

METRICS = {
    "accuracy": ShownMetric("Accuracy", "share", max, "share of samples whose label is predicted"),
    "f1": ShownMetric("F1", "number", max, "F1 of the second of two classes, or of the classes, averaged"),
    "macro_f1": ShownMetric("Macro F1", "number", max, "F1 of each class, averaged over the classes"),
    "weighted_f1": ShownMetric("Weighted F1", "number", max, "F1 of each class, weighted by the class's samples"),
    "auc": ShownMetric("AUC", "number", max, "area under the ROC curve, each class against the rest, averaged"),
    "average_precision": ShownMetric(
        "Average precision", "number", max, "area under the steps of precision over recall, averaged over the classes"
    ),
    "brier": ShownMetric("Brier score", "number", min, "squared error of the probabilities; less is better"),
    "ece": ShownMetric("ECE", "number", min, "expected calibration error in 15 bins of confidence; less is better"),
    "miou": ShownMetric("mIoU", "number", max, "intersection over union of each class, averaged over the classes"),
    "multilabel_f1": ShownMetric("Multi-label F1", "number", max, "F1 of each of a sample's labels, averaged"),
    "r2": ShownMetric("R²", "number", max, "share of the labels' variance that the outputs explain, averaged"),
    "mse": ShownMetric("MSE", "number", min, "mean squared error; less is better"),
    "mae": ShownMetric("MAE", "number", min, "mean absolute error; less is better"),
    "perplexity": ShownMetric("Perplexity", "number", min, "exponential of the mean loss; less is better"),
    "loss": ShownMetric("Loss", "number", min, "mean of local.loss, in nats for a cross-entropy; less is better"),
}


def metric_named(name: str) -> ShownMetric:
    """Return the words of a metric; those of a user's own are its name."""
    best = min if name.lower().endswith(LOWER) else max
    return METRICS.get(name) or ShownMetric(name, "number", best, "a metric of your own")


VIEW = re.compile(r"level_([\d.]+)_(.+)")
"""Column of a further model that an evaluation scores: the level of its size, and the column of the whole model."""


def parted(column: str) -> tuple[str, str]:
    """Return the samples of a column of an evaluation, a key of `TARGETS`, and its metric; of others empty texts."""
    target = max((each for each in TARGETS if column.startswith(f"{each}_")), key=len, default="")
    return target, column[len(target) + 1 :] if target else ""


def in_words(column: str) -> str:
    """Return a column of an evaluation in words, such as "accuracy, held-out clients"; others with spaces alone."""
    if match := VIEW.fullmatch(column):
        return f"{in_words(match[2])}, level {match[1]}"
    target, metric = parted(column)
    return f"{metric.replace('_', ' ')}, {TARGETS[target].short}" if target else column.replace("_", " ")


def metrics_in(columns: Iterable[str]) -> list[str]:
    """Return the names of all metrics, users' own ones among these columns last."""
    found = {metric for _, metric in map(parted, columns)}
    return list(dict.fromkeys([*METRICS, *sorted(name for name in found if name.isidentifier())]))


MEASURES = {
    "epsilon": Term("Epsilon", EPSILON),
    "dc": Term(
        "Weight divergence",
        "distance of the global model's parameters from those of a model that trains on "
        "the union of each round's data, as a share of their norm",
    ),
    "twin_test_loss": Term("Twin's test loss", "test loss of a model that trains on mini-batches of all clients' data"),
    "concordance": Term("Discordance", "mean squared difference of the test loss from the twin's, over the rounds"),
    "dl": Term("Divergence of local models", "disagreement in direction among the models that a round's clients send"),
    "dl_updates": Term(
        "Divergence of local updates", "disagreement in direction among the changes that a round's client updates make"
    ),
    "consensus": Term("Distance from consensus", "mean squared distance of the clients' models from their mean"),
    "bn_change": Term("Change of batch-norm statistics", "change from one round to the next"),
    "bn_deviation": Term("Deviation of batch-norm statistics", "deviation of the clients' from the aggregated ones"),
    "bn_variance": Term(
        "Variance of batch-norm statistics", "variance of the clients' deviations over their latest client updates"
    ),
}

WEIGHTS = {
    "Samples": "samples",
    "Equal": "equal",
    "PerStep": "samples per step",
    "LossPower": "power of the loss",
    "SamplesUsed": "samples used",
    "ClientLoss": "loss",
    "Polynomial": "staleness",
    "Hinge": "staleness",
}
"""Weights of client updates in an aggregation, by the part `weighting`; a user's own part has its own name."""

NONFINITE = "Updates not finite"

COSTS = {
    "Round": "every model trains once on one client; algorithms compare at equal work by rounds",
    "Aggregation": "the models become the next global model; between two aggregations, and without a server, raysim "
    "evaluates their mean",
    "Weights": "share of a client update in an aggregation; samples: in proportion to the client's samples",
    "Time": "all rounds on this machine, without evaluation",
    "Simulated time": "all rounds in the virtual time of [devices]; the same on any machine",
    NONFINITE: "client updates that gave NaN or infinity; raysim left them out or replaced them by the received model",
    "Protocol bytes": "bytes that a real federation would send: up from clients, down to clients",
    "Exchanges": "times that clients and server, or clients and their neighbours, wait for each other in turn",
    "Driver bytes": "array data that the driving process sent and received, as measured",
    "Moved bytes": "array data that actors took from the object store, as measured",
}

STAGES = {
    "sample": Stage("Sample", "#d9a441", "draw the cohort and deal the models to it"),
    "send": Stage("Send", "#e07b54", "publish the model to the actors and hand out the blocks"),
    "train": Stage("Train", "#7d95a8", "wait for the client updates; a plain training loop has only this stage"),
    "sum": Stage("Sum", "#b58bb5", "add the blocks' partial sums as they arrive"),
    "aggregate": Stage("Aggregate", "#6fae8f", "apply the server's rule and keep the new state"),
    "evaluate": Stage("Evaluate", "#c3ccd5", "evaluate the model, in the rounds that are evaluated", beside=True),
    "write": Stage("Write", "#8c9aa8", "write the rows of the round and of its client updates to disk", beside=True),
}

COMMAND_STAGES = {
    "start": Stage("Start", "#8c9aa8", "start Python and import modules; from Python, check the experiment"),
    "data": Stage("Data", "#d9a441", "read the data and partition it into clients"),
    "plan": Stage("Plan", "#e6c88a", "prepare the samples, and try the model and the algorithms"),
    "fleet": Stage("Fleet", "#e07b54", "wait for Ray and its actors; nothing without Ray"),
    "training": Stage("Training", "#7d95a8", "the rounds, as the table of results counts them"),
    "evaluation": Stage("Evaluation", "#c3ccd5", "evaluation that no round ran beside, and the scores of each client"),
    "files": Stage("Files", "#b58bb5", "everything else of an algorithm: the model, its checkpoints and its files"),
    "end": Stage("End", "#6fae8f", "end Ray and the loggers"),
    "report": Stage("Report", "#a3b8cc", "draw and write this page; the first page of a run cannot show it yet"),
}

EVALUATION_TERMS = (
    ("Evaluated on", [(each.title, each.meaning) for each in TARGETS.values()]),
    ("Metrics", [(each.title, each.meaning) for each in METRICS.values()]),
)
"""Glossary of the words that reports of runs and of studies share."""

COUNTED = {
    "Simulated time": "simulated_seconds",
    NONFINITE: "nonfinite",
    "Driver bytes": "machine_bytes_driver",
    "Moved bytes": "machine_bytes_moved",
}
"""Columns without which, or with zeros alone, a report does not show a cost."""


def used_terms(measured: Collection[str], stages: bool, commands: bool) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the glossary of a report, without the words that it does not use.

    Args:
        measured: columns with values other than zero.
        stages: whether the report shows the stages of a round.
        commands: whether the report shows the stages of commands.
    """
    known = metrics_in(measured)
    targets = [name for name in TARGETS if any(f"{name}_{metric}" in measured for metric in known)]
    metrics = [name for name in known if any(f"{target}_{name}" in measured for target in targets)]
    groups: list[tuple[str, list[Term | ShownMetric | Stage]]] = [
        ("Evaluated on", [TARGETS[name] for name in targets]),
        ("Metrics", [metric_named(name) for name in metrics]),
        ("Measures", [term for name, term in MEASURES.items() if name in measured]),
        ("Costs", [Term(name, text) for name, text in COSTS.items() if COUNTED.get(name, "round") in measured]),
        ("Stages of a round, in the driver's seconds", list(STAGES.values()) if stages else []),
        ("Stages of a command", list(COMMAND_STAGES.values()) if commands else []),
    ]
    return [(heading, [(each.title, each.meaning) for each in terms]) for heading, terms in groups if terms]
