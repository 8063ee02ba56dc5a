"""Centralised twins: models that train beside a run on all its data, and measures of the distance to them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from algorithms import (
    Algorithm,
    Block,
    DivergedError,
    Fleet,
    Function,
    Local,
    Outcome,
    Output,
    Packed,
    Purpose,
    RoundReport,
    Samples,
    State,
    Work,
    Worker,
    aggregated_model,
    generator,
    torch_seed,
)
from algorithms.core.fleet import block_over
from algorithms.parts.cohort import client_updates
from algorithms.parts.option import Draft
from algorithms.rounds.union import UnionUpdate
from algorithms.training.statistics import with_statistics
from raysim.measures.evaluate import Targets, loss_on_test

EPSILON = 0.01
"""FedMMB's threshold: a run with a smaller discordance is concordant with its twin."""


Cursor: TypeAlias = tuple[int, int, int]
"""Place of a concordance twin in its data: number of the pass, samples drawn in it, and samples of its union."""


@dataclass(frozen=True)
class TwinState:
    """State of a twin between two rounds.

    Args:
        model: entries of the model.
        personal: entries beside the model, such as a batch cursor.
        rounds: number of finished rounds; of a concordance, those that its mean counts.
        cursor: place in the data, of a concordance.
        squares: sum over rounds of the squared differences of the test losses.
    """

    model: Packed
    personal: Packed
    rounds: int = 0
    cursor: Cursor = (-1, 0, 0)
    squares: float = 0.0


Twin: TypeAlias = "Divergence | Concordance"
"""Model that trains beside a run: a round of it starts after each of the run's, and ends during the next."""


def twins_of(measures: Sequence[str], state: State, targets: Targets) -> tuple[Twin, ...]:
    """Return the twins of some measures at the start of a run.

    Args:
        measures: names of measures; a name without a twin is skipped.
        state: state before the first round; a twin starts from the same model.
        targets: data to evaluate on.
    """
    twins: list[Twin] = []
    if "dc" in measures:
        twins.append(Divergence(TwinState(state.model, state.initial)))
    if "concordance" in measures:
        twins.append(Concordance(TwinState(state.model, state.initial), targets))
    return tuple(twins)


class Divergence:
    """DC: distance of the global model to a twin with one update per round on the union of the cohort's data.

        DC(t) = |w_FL^t - w_C^t| / |w_C^t|, over the parameters

    Both start from the same model and train with the same local settings. Between aggregations, w_FL is the model
    that an aggregation would give now. A round of the twin begins after each of the run's rounds, and ends during the
    next one.

    Args:
        state: state of the twin.

    Paper: RADFed, section V, "DC". Deviations: the paper's weights are the parameters; batch-norm statistics are left
    out. The update of the union uses the draws of its first client, so a single client does not diverge.
    `local.nonfinite` holds for the twin, too: if its update is refused and the run continues, DC is NaN in that round.
    """

    def __init__(self, state: TwinState) -> None:
        self.state = state
        self._outcomes: Iterator[Outcome] = iter(())
        self._model = state.model
        self._parameters: list[slice] = []

    def begin(self, state: State, algorithm: Algorithm, fleet: Fleet) -> None:
        """Start the twin's round that belongs to the run's last one."""
        report = _report(state)
        updates = client_updates(Draft.of(state, algorithm.phase(report.phase), fleet))
        updates = replace(updates, weighting=Samples(), round_number=state.round, needs=())
        arrivals = state.of("arrivals")
        if arrivals and arrivals["round"] == state.round:  # its own dispatches must not count as earlier ones
            updates = replace(updates, dispatches=arrivals["before"] - arrivals["first"])
        update = UnionUpdate(updates, "the twin of evaluate.measures = 'dc'")
        start = fleet.put((self.state.model, self.state.personal))
        updated = np.unique(report.updates.clients)
        clients = fleet.census.clients if (updated < 0).any() else updated
        self._outcomes = fleet.map(update, [block_over(clients, fleet)], [start])
        self._model = aggregated_model(state, algorithm, fleet)
        self._parameters = [place for entry, place in fleet.layouts.shared.places() if entry.is_parameter]

    def end(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Wait for the twin's round and return the values of its columns, given the run's metrics of that round."""
        (outcome,) = self._outcomes
        # If no client had a batch to train on, the twin is unchanged, like the global model.
        twin = outcome.value.models.mean() or self.state.model
        personal = outcome.value.personal.mean() or self.state.personal
        self.state = replace(self.state, model=twin, personal=personal, rounds=self.state.rounds + 1)
        if not outcome.value.rows.finite.all():
            return {"dc": nan}
        ours, theirs = (
            np.concatenate([np.empty(0, np.float64), *(model.floats[place] for place in self._parameters)])
            for model in (self._model, twin)
        )
        return {"dc": float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))}


class Concordance:
    """Federated-centralised concordance: mean squared difference of the test losses, round by round.

        delta(t) = 1/t sum_(i <= t) (l_i^g - l_i^c)^2;   concordant if delta < epsilon

    The twin draws batches of B' = K B samples from the union of all training clients' data, pass after pass. If clients
    join late, the larger union begins a new pass. The twin's draws have a key of their own. K is the number of client
    updates in the round. The twin starts from the same model, and takes as many steps per round as a client update, at
    the same learning rate: `local.batches`, `local.steps`, or `local.epochs` passes over the union.

    Args:
        state: state of the twin.
        targets: data to evaluate on, with the global test set.

    Paper: FedMMB, section 3.1, equation 3; epsilon 0.01 in section 4.

    Deviations: with a cohort smaller than the population, K is the cohort's size. Momentum starts anew in each round,
    as in a client update. B' is the union if `local.batch_size` is "full". If `local.nonfinite` lets the run continue
    after a refused update of the twin, both columns are NaN in that round, and the mean leaves it out.
    """

    def __init__(self, state: TwinState, targets: Targets) -> None:
        self.state = state
        self._targets = targets
        self._outcomes: Iterator[Outcome] = iter(())
        self._round: tuple[State, Algorithm, Fleet] | None = None

    def begin(self, state: State, algorithm: Algorithm, fleet: Fleet) -> None:
        """Start the twin's round that belongs to the run's last one."""
        report, census = _report(state), fleet.census
        phase = algorithm.phase(report.phase)
        local, lr = phase.local.fitted(census), phase.local.rate(state.round, state.rounds)
        steps = TwinSteps(local, lr, state.seed, state.round, self.state.cursor, len(report.updates))
        start = fleet.put((self.state.model, self.state.personal))
        self._outcomes = fleet.map(steps, [block_over(census.joined(state.round), fleet)], [start])
        self._round = state, phase, fleet

    def end(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Wait for the twin's round and return the values of its columns, given the run's metrics of that round."""
        if self._round is None:
            raise RuntimeError("the twin's round has not begun")
        (outcome,), (state, phase, fleet) = self._outcomes, self._round
        model, cursor, refused = outcome.value
        if refused:
            self.state = replace(self.state, cursor=cursor)
            return {"twin_test_loss": nan, "concordance": nan}
        measured = model
        if phase.local.statistics == "untracked":
            measured = with_statistics(model, self.state.personal, fleet, state.round)
        loss = loss_on_test(measured, state.average, fleet, self._targets, phase.local.loss)
        squares = self.state.squares + (metrics["test_loss"] - loss) ** 2
        self.state = TwinState(model, self.state.personal, self.state.rounds + 1, cursor, squares)
        return {"twin_test_loss": loss, "concordance": squares / self.state.rounds}


@dataclass(frozen=True)
class TwinSteps(Function):
    """Function of a fleet: a round of a concordance twin, on the union of a block's clients' samples.

    Args:
        local: settings of a client update.
        lr: learning rate of the round.
        seed: seed of the run.
        round_number: round, starting at 1.
        cursor: place in the data before the round.
        updates: number K of client updates in the round; a batch of the twin is as large as K client batches.
    """

    local: Local
    lr: float
    seed: int
    round_number: int
    cursor: Cursor
    updates: int

    INDEX: ClassVar[Mapping[Purpose, int]] = {Purpose.BATCHES: 0, Purpose.DROPOUT: 1, Purpose.AUGMENT: 2}
    """Index of each of the twin's keys, by its purpose."""

    def join(self, left: Any, right: Any) -> Any:
        raise RuntimeError("a twin's round is one block")

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        worker.resident.load(*values[0])
        x, y = worker.data.union(block.clients, "train")
        batches, cursor = self.batches(len(y))
        least = worker.least_batch(self.local)
        work = Work(x.to(worker.resident.floating), y, [rows for rows in batches if len(rows) >= least])
        for prepare in worker.preparations:
            work = prepare(work, self.local, self._key)
        (loss,) = worker.trainer.train(self.local, [work], self.lr)
        is_finite = isfinite(loss) or not work.batches
        wrong = worker.resident.first_nonfinite(0) or (None if is_finite else "the training loss")
        if wrong is None:
            return Output((worker.resident.shared().copy(), cursor, False))
        if self.local.nonfinite == "stop":
            raise DivergedError(
                f"the twin of evaluate.measures = 'concordance' in round {self.round_number}: {wrong} is not finite; "
                "lower local.lr, or leave the measure out"
            )
        return Output((values[0][0], cursor, True))

    def _key(self, purpose: Purpose) -> int:
        return torch_seed(self.seed, Purpose.TWIN, self.round_number, self.INDEX[purpose])

    def batches(self, samples: int) -> tuple[list[NDArray[np.int64]], Cursor]:
        """Return the rows of each step's batch, and the place in the data afterwards.

        The last batch of a pass may be smaller. A union of another size begins the next pass.
        """
        if samples == 0 or self.updates == 0:
            return [], self.cursor
        size = samples if self.local.batch_size == "full" else min(samples, self.updates * self.local.batch_size)
        given = self.local.batches or self.local.steps
        steps = (self.local.epochs or 0) * -(-samples // size) if given is None else int(given)
        data_pass, drawn, before = self.cursor
        batches, order, current = [], np.empty(0, np.int64), -1
        for _ in range(steps):
            if drawn == before or samples != before:
                data_pass, drawn, before = data_pass + 1, 0, samples
            if data_pass != current:
                order, current = generator(self.seed, Purpose.TWIN, data_pass).permutation(samples), data_pass
            batches.append(order[drawn : drawn + size])
            drawn += len(batches[-1])
        return batches, (data_pass, drawn, before)


def verdict(delta: float) -> dict[str, Any]:
    """Return whether a discordance makes the run concordant with centralised training."""
    return {"delta": delta, "epsilon": EPSILON, "concordant": bool(delta < EPSILON)}


def _report(state: State) -> RoundReport:
    if state.report is None:
        raise RuntimeError("the round left no report")
    return state.report
