"""Twins: centralised models that train beside a run on the same data, and how far the run is from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms import (
    Algorithm,
    Augmented,
    Block,
    DivergedError,
    Fleet,
    Kind,
    Layouts,
    Local,
    Outcome,
    Output,
    Packed,
    Purpose,
    RoundInput,
    RoundReport,
    Rounds,
    Samples,
    State,
    Work,
    Worker,
    aggregated_model,
    generator,
    torch_seed,
)
from algorithms.engine.blocks import block_over
from algorithms.engine.round import client_updates
from algorithms.engine.statistics import with_statistics
from algorithms.engine.union import Union, UnionUpdate
from raysim.common.errors import InputError
from raysim.measures.columns import TWINS
from raysim.measures.evaluate import Targets, loss_on_test

EPSILON = 0.01
"""FedMMB's threshold: a run whose discordance is below it is concordant with its twin."""


@dataclass(frozen=True)
class TwinState:
    """All that a twin remembers between two rounds.

    Args:
        model: its entries.
        kept: what stands beside them: how far it has come in its batches.
        rounds: that it has done.
        drawn: samples that it has drawn.
        squares: the sum over rounds of the squared differences of the test losses.
    """

    model: Packed
    personal: Packed
    rounds: int = 0
    drawn: int = 0
    squares: float = 0.0


class Twin(Protocol):
    """A model that trains beside a run: a round of it begins after each of the run's, and ends during the next."""

    state: TwinState

    def begin(self, state: State, algorithm: Algorithm, fleet: Fleet) -> None:
        """Have the fleet begin the twin's round that belongs to the run's last one."""
        ...

    def end(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Wait for it, and compare: the values of its columns, given the run's own metrics of that round."""
        ...


def twins_of(measures: Sequence[str], state: State, targets: Targets) -> tuple[Twin, ...]:
    """The twins that some measures need, at the start of a run.

    Args:
        measures: their names; those without a twin are passed over.
        state: of the run, before its first round: a twin starts from the same model.
        targets: what is evaluated on.
    """
    made: list[Twin] = []
    if "dc" in measures:
        made.append(Divergence(TwinState(state.model, state.initial)))
    if "concordance" in measures:
        made.append(Concordance(TwinState(state.model, state.initial), targets))
    return tuple(made)


def check_measures(
    measures: Sequence[str], targets: Targets, every: int, algorithm: Algorithm, layouts: Layouts
) -> None:
    """Refuse measures that say nothing of an algorithm.

    Args:
        measures: the names of what is wanted.
        targets: what is evaluated on.
        every: after how many rounds.
        algorithm: its parts.
        placement: how it divides the model's entries.

    Raises:
        InputError: there is nothing to measure, the clients keep entries, or the test loss is not measured in every
            round.
    """
    _check_rounds(measures, algorithm, layouts)
    wanted = [name for name in TWINS if name in measures]
    if wanted and not layouts.has_one_model:
        raise InputError(
            f"evaluate.measures = {wanted[0]!r} where clients keep entries of their own: must be left out, for their "
            "visits do not begin alike, as the twin's do; remove it, or the algorithm"
        )
    if "concordance" not in measures:
        return
    if not any(target.name == "test" for target in targets.targets) or "loss" not in targets.metrics:
        raise InputError(
            "evaluate.measures = 'concordance' without a loss on a global test set: must have one; set data.test, and "
            'name "test" in evaluate.on and "loss" in evaluate.metrics'
        )
    if every != 1:
        raise InputError(
            f"evaluate.every = {every} with evaluate.measures = 'concordance': must be 1, for it compares the losses "
            "of every round; set evaluate.every = 1"
        )


def _check_rounds(measures: Sequence[str], algorithm: Algorithm, layouts: Layouts) -> None:
    of_rounds = [name for name in ("dl", "bn") if name in measures]
    if of_rounds and not isinstance(algorithm.schedule, Rounds):
        raise InputError(
            f"evaluate.measures = {of_rounds[0]!r} where arrivals merge one by one: must be left out, for no models "
            "are sent together; remove it, or the algorithm"
        )
    if "dl" in measures and not any(entry.is_parameter for entry in layouts.shared.entries):
        raise InputError(
            "evaluate.measures = 'dl' where no weights travel: must be left out, for no models are sent; remove it, or "
            "the algorithm"
        )
    untracked = all(phase.local.statistics == "untracked" for phase in algorithm.phases)
    has_any = any(entry.kind is Kind.STATISTIC for entry in layouts.shared.entries)
    if "bn" in measures and (untracked or not has_any):
        raise InputError(
            "evaluate.measures = 'bn' where no batch-norm statistics are tracked and shared: must be left out, for "
            "there is nothing to follow; remove it, or the algorithm"
        )


class Divergence:
    """DC: how far the global model is from a twin that makes one visit a round on the union of the cohort's data.

        DC(t) = |w_FL^t - w_C^t| / |w_C^t|, over the parameters

    Both start from the same model, and both visits have the same local settings. Between merges w_FL is what a merge
    would give now.

    Args:
        state: of the twin.

    Paper: RADFed, section V, "DC". Deviations: what the paper calls weights are the parameters; batch-norm statistics
    are left out. The union is visited with the draws of its first client, so that one client alone does not diverge.
    `local.nonfinite` holds for the twin, too: where its visit is refused and the run goes on, DC is NaN in that round.
    """

    def __init__(self, state: TwinState) -> None:
        self.state = state
        self._outcomes: Iterator[Outcome] = iter(())
        self._model, self._parameters = state.model, np.empty(0, np.int64)

    def begin(self, state: State, algorithm: Algorithm, fleet: Fleet) -> None:
        report = _report(state)
        updates = client_updates(state, algorithm.phase(report.phase), fleet, aggregate=True)
        updates = replace(updates, weighting=Samples(), round_number=state.round, needs=())
        update = UnionUpdate(updates, "the twin of evaluate.measures = 'dc'")
        start = fleet.put(RoundInput(self.state.model, self.state.personal))
        self._outcomes = fleet.map(update, [block_over(_cohort(report, fleet), fleet)], [start])
        self._model = aggregated_model(state, algorithm, fleet)
        self._parameters = _places_of_parameters(fleet.layouts)

    def end(self, metrics: Mapping[str, float]) -> dict[str, float]:
        (outcome,) = self._outcomes
        # Where no client had a batch to train on, the twin stays as it is, like the global model.
        twin = outcome.value.models.mean() or self.state.model
        personal = outcome.value.personal.mean() or self.state.personal
        self.state = replace(self.state, model=twin, personal=personal, rounds=self.state.rounds + 1)
        if any(row.nonfinite for row in outcome.value.rows):
            return {"dc": nan}
        ours, theirs = (each.floats[self._parameters].astype(np.float64) for each in (self._model, twin))
        return {"dc": float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))}


class Concordance:
    """Federated-centralised concordance: the mean squared difference of the test losses, round by round.

        delta(t) = 1/t sum_(i <= t) (l_i^g - l_i^c)^2;   concordant where delta < epsilon

    The twin draws batches of B' = K B samples from the union of all training clients' data, pass after pass by a key of
    its own, K being the visits of the round. It takes as many steps a round as a visit: `local.batches`, `local.steps`,
    or those of `local.epochs` passes over the union; at the same learning rate, from the same model.

    Args:
        state: of the twin.
        targets: have the global test set.

    Paper: FedMMB, section 3.1, equation 3; epsilon 0.01 in section 4.

    Deviations: with cohorts smaller than the population, K is the cohort's size. A momentum begins anew in each round,
    as a visit's does. B' is the union where `local.batch_size` is "full".
    """

    def __init__(self, state: TwinState, targets: Targets) -> None:
        self.state = state
        self._targets = targets
        self._outcomes: Iterator[Outcome] = iter(())
        self._round: tuple[State, Algorithm, Fleet] | None = None

    def begin(self, state: State, algorithm: Algorithm, fleet: Fleet) -> None:
        report, census = _report(state), fleet.census
        phase = algorithm.phase(report.phase)
        local, lr = phase.local.fitted(census), phase.local.rate(state.round, state.rounds)
        draw = TwinSteps(local, lr, state.seed, state.round, self.state.drawn, len(report.updates))
        start = fleet.put((self.state.model, self.state.personal))
        self._outcomes = fleet.map(draw, [block_over(census.joined(state.round), fleet)], [start])
        self._round = state, phase, fleet

    def end(self, metrics: Mapping[str, float]) -> dict[str, float]:
        if self._round is None:
            raise RuntimeError("the twin's round has not begun")
        (outcome,), (state, phase, fleet) = self._outcomes, self._round
        model, drawn, refused = outcome.value
        if refused:
            self.state = replace(self.state, rounds=self.state.rounds + 1, drawn=drawn)
            return {"twin_test_loss": nan, "concordance": nan}
        measured = model
        if phase.local.statistics == "untracked":
            measured = with_statistics(model, self.state.personal, fleet, state.round)
        loss = loss_on_test(measured, state.average, fleet, self._targets)
        squares = self.state.squares + (metrics["test_loss"] - loss) ** 2
        self.state = TwinState(model, self.state.personal, self.state.rounds + 1, drawn, squares)
        return {"twin_test_loss": loss, "concordance": squares / self.state.rounds}


@dataclass(frozen=True)
class TwinSteps:
    """Take the steps of a round of a concordance twin, on the union of a block's clients' samples.

    Args:
        local: what a visit does.
        lr: the round's learning rate.
        seed: the run's.
        number: the round, the first being 1.
        drawn: samples that were drawn before.
        visits: K, how many client batches one of the twin's is as large as.
    """

    local: Local
    lr: float
    seed: int
    number: int
    drawn: int
    updates: int

    DROPOUT: ClassVar[int] = 1
    """The place of the dropout's key among the twin's own; that of the batches is 0."""

    AUGMENT: ClassVar[int] = 2
    """And that of the augmentation's."""

    def objects(self, block: Block) -> int:
        return 0

    def join(self, left: Any, right: Any) -> Any:
        raise RuntimeError("a twin's round is one block")

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        worker.resident.load(*values[0])
        x, y = Union(worker.data, block.clients).samples(0, "train")
        batches, drawn = self.batches(len(y))
        if worker.resident.refuses_single and self.local.statistics != "frozen":
            batches = [rows for rows in batches if len(rows) > 1]
        masks = None
        if worker.trainer.has_dropout:
            masks = torch.Generator(x.device)
            masks.manual_seed(torch_seed(self.seed, Purpose.TWIN, self.number, self.DROPOUT))
        augment = None
        if worker.augment is not None:
            key = torch_seed(self.seed, Purpose.TWIN, self.number, self.AUGMENT)
            augment = Augmented.of(worker.augment, batches, key, x.device)
        work = Work(x.to(worker.resident.floating), y, batches, masks, augment)
        (loss,) = worker.trainer.train(self.local, [work], self.lr)
        wrong = worker.resident.first_nonfinite(0) or (None if isfinite(loss) or not batches else "the training loss")
        if wrong is None:
            return Output((worker.resident.shared().copy(), drawn, False))
        if self.local.nonfinite == "stop":
            raise DivergedError(
                f"the twin of evaluate.measures = 'concordance' in round {self.number}: {wrong} is not finite; lower "
                "local.lr, or leave the measure out"
            )
        return Output((values[0][0], drawn, True))

    def batches(self, samples: int) -> tuple[list[NDArray[np.int64]], int]:
        """The rows of each step's batch, the last of a pass perhaps smaller; and how many are drawn then."""
        if samples == 0 or self.updates == 0:
            return [], self.drawn
        size = samples if self.local.batch_size == "full" else min(samples, self.updates * self.local.batch_size)
        given = self.local.batches or self.local.steps
        steps = (self.local.epochs or 0) * -(-samples // size) if given is None else int(given)
        batches, drawn = [], self.drawn
        order, current = np.empty(0, np.int64), -1
        for _ in range(steps):
            number, first = divmod(drawn, samples)
            if number != current:
                order, current = generator(self.seed, Purpose.TWIN, number).permutation(samples), number
            batches.append(order[first : first + size])
            drawn += len(batches[-1])
        return batches, drawn


def verdict(delta: float, epsilon: float = EPSILON) -> dict[str, Any]:
    """What a discordance says: whether the run is concordant with centralised training."""
    return {"delta": delta, "epsilon": epsilon, "concordant": bool(delta < epsilon)}


def _report(state: State) -> RoundReport:
    if state.report is None:
        raise RuntimeError("a step left no report")
    return state.report


def _cohort(report: RoundReport, fleet: Fleet) -> NDArray[np.int64]:
    """The clients that were visited; all of them where the visit was of their union."""
    updated = np.unique([row.client for _, row, _ in report.updates]).astype(np.int64)
    return fleet.census.clients if (updated < 0).any() else updated


def _places_of_parameters(layouts: Layouts) -> NDArray[np.int64]:
    """Where the trained parameters stand among the floating entries."""
    places = [np.arange(place.start, place.stop) for entry, place in layouts.shared.places() if entry.is_parameter]
    return np.concatenate(places) if places else np.empty(0, np.int64)
