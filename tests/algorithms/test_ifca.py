"""IFCA against its equations, and clusters of clients that it finds."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.nn.functional import cross_entropy

import raysim
from algorithms import InputError, Local, Mix, Momentum, Participation, Server, fedavg, fedbn, ifca, phases
from algorithms.core.keys import Purpose, generator
from algorithms.training.loss import CrossEntropy
from raysim.fleet.inline import InlineFleet
from tests.kit.reference import DATA, drawn, engine, mean, module, sgd, train
from tests.kit.rounds import same
from tests.kit.runs import quick_run

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.05, batch_size=4)
PARTICIPATION = Participation(fraction=0.5)


def begun(count: int) -> list[torch.nn.Module]:
    """The initial models: the later ones are the first with the values of each parameter permuted."""
    models = [module() for _ in range(count)]
    for number, model in enumerate(models[1:], 1):
        draws = generator(0, Purpose.CLUSTERS, number)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.from_numpy(draws.permutation(p.detach().numpy().ravel()).reshape(tuple(p.shape))))
    return models


def loss(model: torch.nn.Module, client: int) -> float:
    x, y = DATA[client][0].double(), DATA[client][1]
    with torch.no_grad():
        return float(cross_entropy(deepcopy(model).eval()(x), y))


@pytest.mark.parametrize("server", [Mix(0.8), Momentum(beta=0.9)])
@pytest.mark.parametrize("count", [2, 3])
def test_ifca_matches_its_paper(federation: Federation, server: Server, count: int) -> None:
    state, fleet = engine(federation, ifca(PARTICIPATION, LOCAL, server, clusters=count), rounds=4)
    models, speeds = begun(count), [dict[str, torch.Tensor]() for _ in range(count)]
    last = np.full(6, -1)
    for number in range(1, 5):
        members: dict[int, list[int]] = {}
        for client in PARTICIPATION.draw(np.arange(6), 0, number).tolist():
            last[client] = int(np.argmin([loss(model, client) for model in models]))
            members.setdefault(last[client], []).append(client)
        for chosen, clients in members.items():
            trained = [deepcopy(models[chosen]) for _ in clients]
            for model, client in zip(trained, clients, strict=True):
                train(model, DATA[client], drawn(LOCAL, DATA[client], number, client), sgd(LOCAL.lr))
            averaged, then = mean(trained, [len(DATA[client][1]) for client in clients]), models[chosen].state_dict()
            for name, value in then.items():
                step = averaged[name] - value
                if isinstance(server, Momentum) and name in dict(models[chosen].named_parameters()):
                    speeds[chosen][name] = step = 0.9 * speeds[chosen].get(name, 0) + step
                elif isinstance(server, Mix) and value.is_floating_point():
                    step = 0.8 * step
                then[name] = value + step
            models[chosen].load_state_dict(then)
    assert len(set(last.tolist())) > 1  # the choice is one
    np.testing.assert_array_equal(state.of("clusters")["chosen"], last)
    for model, packed in zip(models, state.models, strict=True):
        found = fleet.layouts.shared.unpack(packed)
        for name, value in model.state_dict().items():
            np.testing.assert_allclose(found[name], value.numpy(), rtol=1e-9, atol=1e-11, err_msg=name)


def test_a_model_that_nobody_chooses_stays(federation: Federation) -> None:
    state, fleet = engine(federation, ifca(Participation(cohort=1), LOCAL, clusters=3), rounds=1)
    (chosen,) = set(state.of("clusters")["chosen"].tolist()) - {-1}
    for number, (packed, first) in enumerate(zip(state.models, begun(3), strict=True)):
        found = fleet.layouts.shared.unpack(packed)
        same = [np.array_equal(found[name], value.numpy()) for name, value in first.state_dict().items()]
        assert all(same) == (number != chosen)


def test_a_client_receives_all_models_and_sends_one(federation: Federation) -> None:
    plain, _ = engine(federation, fedavg(PARTICIPATION, LOCAL), rounds=1)
    state, _ = engine(federation, ifca(PARTICIPATION, LOCAL, clusters=4), rounds=1)
    assert state.report is not None and plain.report is not None
    assert state.report.bytes_down == 4 * plain.report.bytes_down
    assert state.report.bytes_up == plain.report.bytes_up + 8 * len(plain.report.updates)


@pytest.mark.parametrize("clusters", [1, 0, 2.5])
def test_one_cluster_is_refused(clusters: Any) -> None:
    with pytest.raises(InputError, match=r"algorithm\.clusters is .*whole number >= 2|algorithm\.clusters = "):
        ifca(PARTICIPATION, LOCAL, clusters=clusters)


def test_all_phases_after_clusters_have_as_many(federation: Federation) -> None:
    two, plain = ifca(PARTICIPATION, LOCAL, clusters=2), fedavg(PARTICIPATION, LOCAL)
    for later in (plain, ifca(PARTICIPATION, LOCAL, clusters=3)):
        with pytest.raises(InputError, match="a phase after one of 2 clusters: must have as many"):
            phases(two, (1, later))
    state, _ = engine(federation, phases(plain, (1, two)), rounds=3)
    assert len(state.models) == 2 and state.model is state.models[0]


@pytest.fixture(scope="module")
def swapped(tmp_path_factory: pytest.TempPathFactory) -> raysim.Run:
    """Two groups of clients that call the same things by other names."""
    random = np.random.default_rng(0)
    group, kinds = np.repeat([0, 1], 400), random.integers(0, 4, 800)
    x = np.eye(4)[kinds] * 3 + random.normal(size=(800, 4))
    client = group * 10 + random.integers(0, 10, 800)
    table = pa.table({**{f"x{k}": x[:, k] for k in range(4)}, "label": (kinds + 2 * group) % 4, "client": client})
    config = {
        "rounds": 10,
        "data": {"dataset": table, "test": 0.1},
        "partition": {"scheme": "natural", "column": "client", "test_clients": 4, "local_test": 0.2},
        "model": {"hidden": [16]},
        "local": {"lr": 0.3, "batch_size": 10},
        "algorithm": [{"name": "fedavg", "cohort": 8}, {"name": "ifca", "cohort": 8}],
    }
    return quick_run(config, tmp_path_factory.mktemp("ifca") / "run", inline=True)


def test_the_groups_are_found_and_held_out_clients_choose_as_well(swapped: raysim.Run) -> None:
    pytest.importorskip("pandas")
    clients = swapped.clients("ifca")
    group = (clients.name.astype(int) >= 10).astype(int)
    assert clients.split.eq("test").sum() == 4
    assert (clients.cluster == group).all() or (clients.cluster == 1 - group).all()
    fedavg_accuracy = swapped.clients("fedavg").test_accuracy.mean()
    assert clients.test_accuracy.mean() > 0.8 > fedavg_accuracy + 0.1


def test_the_files_hold_every_model(swapped: raysim.Run) -> None:
    pytest.importorskip("pandas")
    clients = swapped.clients("ifca")
    with pytest.warns(UserWarning, match="the first of the 2 global models"):
        first = swapped.model("ifca")
    models = {row.cluster: swapped.model("ifca", client=row.client) for row in clients.itertuples()}
    states = [models[number].state_dict() for number in (0, 1)]
    assert all(torch.equal(value, states[0][name]) for name, value in first.state_dict().items())
    assert not all(torch.equal(value, states[0][name]) for name, value in states[1].items())


def lowest(context):
    assert not context.losses.flags.writeable and np.isfinite(context.losses).all()
    return context.losses.argmin(1)


class Stays:
    """The first choice of a client, by its number, is its last one."""

    def __call__(self, context):
        return np.where(context.chosen < 0, context.clients % 2, context.chosen)


def test_the_lowest_loss_as_an_own_rule_is_ifca(federation: Federation) -> None:
    plain, own = (engine(federation, ifca(PARTICIPATION, LOCAL, choose=rule), rounds=3)[0] for rule in ("loss", lowest))
    for one, other in zip(plain.models, own.models, strict=True):
        assert one.floats.tobytes() == other.floats.tobytes()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_rule_sees_losses_that_are_not_finite_as_infinite(federation: Federation, value: float) -> None:
    class Wild(CrossEntropy):
        def sums(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return super().sums(outputs, y) * value

    def sees(context):
        assert np.isposinf(context.losses).all()
        return np.zeros(len(context.clients), int)

    engine(federation, ifca(PARTICIPATION, replace(LOCAL, loss=Wild()), choose=sees), rounds=1)


def test_the_average_of_personal_entries_is_that_of_the_whole_cohort(federation: Federation) -> None:
    plain = fedbn(PARTICIPATION, LOCAL, weighting="samples")
    first = ifca(PARTICIPATION, LOCAL, choose=lambda context: np.zeros(len(context.clients), int))
    alike, _ = engine(federation, replace(first, sharing=plain.sharing), rounds=2)
    assert same(alike.average, engine(federation, plain, rounds=2)[0].average)


def test_an_own_rule_sees_the_last_choices(federation: Federation) -> None:
    state, _ = engine(federation, ifca(PARTICIPATION, LOCAL, choose=Stays), rounds=6)
    chosen = state.of("clusters")["chosen"]
    assert set(chosen[chosen >= 0].tolist()) == {0, 1}
    assert all(choice in (-1, client % 2) for client, choice in enumerate(chosen.tolist()))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            lambda context: context.losses.argmin(1)[:1],
            "return 3 whole numbers, one for each client, and returns int64",
        ),
        (lambda context: context.losses.min(1), "return 3 whole numbers, one for each client, and returns float64"),
        (lambda context: [[0], [0, 1]], "return 3 whole numbers, one for each client .*inhomogeneous"),
        (lambda context: [2] * len(context.clients), "return numbers of models from 0 to 1, and returns 2"),
    ],
)
def test_impossible_choices_are_refused(federation: Federation, rule: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine(federation, ifca(PARTICIPATION, LOCAL, choose=rule), rounds=1)


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(InputError, match=r"algorithm\.choose = 'best': must be \"loss\", or a function"):
        ifca(PARTICIPATION, LOCAL, choose="best")
