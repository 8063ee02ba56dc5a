"""HeteroFL and FjORD against their equations, and slices of models."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from algorithms import (
    Algorithm,
    Census,
    DeviceTable,
    DrawnDevices,
    InputError,
    Layout,
    Local,
    Momentum,
    Participation,
    Purpose,
    Sizes,
    begin,
    current_model,
    fedavg,
    fjord,
    generator,
    heterofl,
    next_round,
    torch_seed,
)
from algorithms.training.dropout import ClassMask
from algorithms.training.loss import CrossEntropy, Loss, MeanSquaredError
from algorithms.training.slicing import Slice, channels
from raysim.fleet.inline import InlineFleet
from raysim.models.build import build
from tests.kit.federation import perceptron
from tests.kit.models import MODELS
from tests.kit.reference import DATA, FP64, agree, drawn, engine, module
from tests.kit.rounds import same

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.05, batch_size=4, epochs=2)
PARTICIPATION = Participation(fraction=0.7)
LEVELS = (1.0, 0.5, 0.2)
SIZES = [len(y) for _, y in DATA]


@pytest.mark.parametrize("server", [None, Momentum()])
def test_level_1_alone_is_fedavg(federation: Federation, server: Momentum | None) -> None:
    given = () if server is None else (server,)
    plain, _ = engine(federation, fedavg(PARTICIPATION, LOCAL, *given), 4)
    for method in (partial(heterofl, masked_loss=False), fjord):
        found, _ = engine(federation, method(PARTICIPATION, LOCAL, *given, levels=(1.0,), static_bn=False), 4)
        assert same(found.model, plain.model)
        assert found.report is not None and plain.report is not None
        assert (found.report.bytes_up, found.report.bytes_down) == (plain.report.bytes_up, plain.report.bytes_down)


def test_a_negative_counter_counts_on(federation: Federation) -> None:
    model = perceptron(norm=True)
    model[1].num_batches_tracked.fill_(-1000)
    fleet = federation(DATA, model)
    state = begin(model, fleet, 0)
    after = next_round(state, fjord(PARTICIPATION, LOCAL, levels=(1.0, 0.5), static_bn=False), fleet)
    before, now = (fleet.layouts.shared.unpack(each.model)["1.num_batches_tracked"] for each in (state, after))
    assert before == -1000 < now < 0


def small(whole: nn.Sequential, width: int, rate: float) -> nn.Sequential:
    """The first hidden channels of the perceptron with batch norm, which divides by a rate before it."""
    _first, _norm, _, _last = whole
    made = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 3)).double()
    made.load_state_dict(cut(whole.state_dict(), made.state_dict()))
    made[0].register_forward_hook(lambda layer, _, y: y / rate)
    made[1].track_running_stats = False
    made[1].running_mean = made[1].running_var = None  # by the batch, as in training
    return made


def cut(values: dict[str, torch.Tensor], like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: values[name][tuple(slice(n) for n in like[name].shape)].clone() for name in like}


def trained(model: nn.Module, client: int, number: int, widths: Sequence[int] = (), masked: bool = False) -> None:
    """Plain steps on a client's batches; with widths, each step draws one and drops the other hidden channels."""
    x, y = DATA[client][0].double(), DATA[client][1]
    own = torch.isin(torch.arange(3), y).double() if masked else torch.ones(3).double()
    masks = torch.Generator().manual_seed(torch_seed(0, Purpose.DROPOUT, number, client))
    optimiser = torch.optim.SGD(model.parameters(), LOCAL.lr)
    for rows in drawn(LOCAL, DATA[client], number, client):
        hooks = []
        if widths:
            width = widths[int(torch.randint(len(widths), (), generator=masks))]
            for layer in (model[0], model[1]):
                keep = torch.zeros(layer.weight.shape[0]).double()
                keep[:width] = 1
                hooks.append(layer.register_forward_hook(lambda layer, _, h, keep=keep: h * keep))
        optimiser.zero_grad()
        cross_entropy(model(x[rows]) * own, y[rows]).backward()
        optimiser.step()
        for hook in hooks:
            hook.remove()


def average(whole: nn.Sequential, models: Sequence[nn.Module], weights: Sequence[int]) -> None:
    """Average each entry over the models that have it; the statistics stay."""
    for name, value in whole.state_dict().items():
        if "running" in name or "tracked" in name:
            continue
        total, count = torch.zeros_like(value), torch.zeros_like(value)
        for model, weight in zip(models, weights, strict=True):
            own = model.state_dict()[name]
            part = tuple(slice(n) for n in own.shape)
            total[part] += weight * own
            count[part] += weight
        value.copy_(torch.where(count > 0, total / count.clamp(min=1), value))


@pytest.mark.parametrize("by", ["client", "round"])
@pytest.mark.parametrize("method", ["heterofl", "fjord"])
def test_both_match_a_loop(federation: Federation, method: str, by: Any) -> None:
    ordered = method == "fjord"
    algorithm = (fjord if ordered else heterofl)(PARTICIPATION, LOCAL, levels=LEVELS, by=by)
    state, fleet = engine(federation, algorithm, 3)
    whole, sizes = module(), algorithm.option(Sizes)
    assert sizes is not None
    assert min(len(y.unique()) for _, y in DATA) == 2  # a client that lacks one of three classes
    for number in range(1, 4):
        cohort = PARTICIPATION.draw(np.arange(6), 0, number).tolist()
        levels = [LEVELS[n] for n in sizes.assigned(fleet.census, 0, number)[cohort]]
        models = [small(whole, channels(level, 6), 1 if ordered else level) for level in levels]
        for model, client, level in zip(models, cohort, levels, strict=True):
            widths = [channels(width, 6) for width in LEVELS if width <= level] if ordered else []
            trained(model, client, number, widths if len(widths) > 1 else (), masked=not ordered)
        average(whole, models, [SIZES[client] for client in cohort])
    agree(state, fleet, whole.state_dict())


def test_the_masked_loss_changes_only_clients_that_lack_a_class(federation: Federation) -> None:
    def trained_models(client: int) -> list[Any]:
        only = Census(np.array([client]), np.array([SIZES[client]]))
        models = []
        for masked in (True, False):
            algorithm = heterofl(Participation(), LOCAL, levels=(0.5,), static_bn=False, masked_loss=masked)
            fleet = federation(DATA, module(), algorithm.sharing, compute=FP64)
            fleet.census = only
            models.append(next_round(begin(module(), fleet, 0, 1), algorithm, fleet, last=True).model)
        return models

    lacking = [client for client, (_, y) in enumerate(DATA) if len(y.unique()) < 3]
    assert 0 < len(lacking) < len(DATA)
    for client in range(len(DATA)):
        masked, plain = trained_models(client)
        assert same(masked, plain) == (client not in lacking)


def test_a_class_mask_knows_all_labels_and_leaves_out_pixels_without_a_class() -> None:
    mask = torch.full((2, 4), 7.0)
    ClassMask().fill(mask, torch.tensor([3, 1, 3]))
    assert mask.tolist() == [[0, 1, 0, 1]] * 2
    mask = torch.full((2, 4, 1, 1), 7.0)
    ClassMask().fill(mask, torch.tensor([[[0, 255], [2, 2]]], dtype=torch.uint8))
    assert mask.flatten(1).tolist() == [[1, 0, 1, 0]] * 2


@pytest.mark.parametrize(("loss", "masked"), [(CrossEntropy(0.1), True), (MeanSquaredError(), False)])
def test_only_cross_entropy_is_masked(loss: Loss, masked: bool) -> None:
    sizes = heterofl(PARTICIPATION, replace(LOCAL, loss=loss)).option(Sizes)
    assert sizes is not None
    assert sizes.slice(1.0, trains=True).masks is masked
    assert not sizes.slice(1.0, trains=False).masks


def test_a_shared_slot_is_refused() -> None:
    """Slices have none; it was a KeyError in the first round."""
    algorithm = fedavg(PARTICIPATION, replace(LOCAL, momentum=0.9), maintained_momentum="global").having(Sizes())
    with pytest.raises(InputError, match=r"sharing\.slots = 'momentum' with models of many sizes: must not be shared"):
        algorithm.divide(Layout.of(module()))


def test_an_entry_that_nobody_trains_keeps_its_value(federation: Federation) -> None:
    algorithm = heterofl(Participation(), LOCAL, levels=(0.5,), static_bn=False)
    state, fleet = engine(federation, algorithm, 2)
    first, found = module().state_dict(), fleet.layouts.shared.unpack(state.model)
    assert np.array_equal(found["0.weight"][3:], first["0.weight"][3:].numpy())
    assert np.array_equal(found["3.weight"][:, 3:], first["3.weight"][:, 3:].numpy())
    assert not np.array_equal(found["0.weight"][:3], first["0.weight"][:3].numpy())
    assert not np.array_equal(found["3.bias"], first["3.bias"].numpy())


@pytest.mark.parametrize("method", [heterofl, fjord])
@pytest.mark.parametrize("model", [name for name in MODELS if name != "mlp"])
def test_statistics_of_a_level_come_from_a_pass_under_its_model(
    federation: Federation, method: Callable[..., Algorithm], model: str
) -> None:
    algorithm = method(PARTICIPATION, LOCAL, levels=LEVELS)
    made = MODELS[model]().double()
    fleet = federation(DATA, MODELS[model]().double(), algorithm.sharing, compute=FP64)
    state = next_round(begin(made, fleet, 0, 1), algorithm, fleet, last=True)
    option = algorithm.option(Sizes)
    assert option is not None
    assert option.viewed == ("level_0.5", "level_0.2")
    views = option.views_of(state, algorithm, fleet)
    for name, level in (("level_0.5", 0.5), ("level_0.2", 0.2)):
        each, view = views[name]
        found = view.layouts.shared.unpack(current_model(each, algorithm, view))
        whole = MODELS[model]().double()
        values = fleet.layouts.shared.unpack(state.model)
        whole.load_state_dict({key: torch.from_numpy(value.copy()) for key, value in values.items()})
        hand, _ = Slice(level).of(whole, torch.zeros(4).double())
        norms = [layer for layer in hand.modules() if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)]
        sums: dict[str, torch.Tensor] = {}
        for x, y in DATA:
            hand.train()
            for norm in norms:
                norm.momentum = 1.0
            with torch.no_grad():
                hand(x.double())
            for key, value in hand.state_dict().items():
                if "running" in key:
                    sums[key] = sums.get(key, 0) + len(y) * value.clone()
        for key, value in sums.items():
            np.testing.assert_allclose(found[key], (value / sum(SIZES)).numpy(), rtol=1e-9, err_msg=key)
        for key, tensor in hand.state_dict().items():
            if "running" not in key and "tracked" not in key:
                assert np.array_equal(found[key], tensor.numpy()), key


def test_bytes_flops_and_time_are_those_of_the_levels(federation: Federation) -> None:
    devices = DrawnDevices(compute=10.0, spread=1.0, latency=1.0, up=1e3)
    algorithm = heterofl(Participation(), LOCAL, levels=(1.0, 0.5), shares=(1.0, 2.0), static_bn=False)
    fleet = federation(DATA, perceptron().double(), algorithm.sharing, compute=FP64)
    fleet.census = replace(fleet.census, devices=devices)
    state = next_round(begin(perceptron().double(), fleet, 0, 1), algorithm, fleet, last=True)
    option = algorithm.option(Sizes)
    assert state.report is not None
    assert option is not None
    level, used = option.assigned(fleet.census, 0, 1), state.report.updates.column("used")
    parameters, flops = [(4 * n + n + 3 * n + 3) * 8 for n in (6, 3)], [2 * (4 * n + 3 * n) for n in (6, 3)]
    assert sorted(level) == [0, 0, 1, 1, 1, 1]
    measures = state.report.measures
    for number, title in enumerate(("level_1", "level_0.5")):
        own = level == number
        assert measures[f"{title}_updates"] == own.sum()
        assert measures[f"{title}_bytes"] == 2 * own.sum() * parameters[number]
        assert measures[f"{title}_flops"] == 3 * flops[number] * used[own].sum()
    assert state.report.bytes_up == sum(parameters[n] for n in level)
    seconds = [
        devices.seconds(0, client, used[client] * flops[n] / flops[0], parameters[n], parameters[n])
        for client, n in enumerate(level)
    ]
    assert measures["simulated_seconds"] == pytest.approx(max(seconds))


def test_levels_of_clients() -> None:
    census = Census(np.arange(10), np.ones(10, np.int64))
    fixed = Sizes((0.5, 1.0, 0.25), (1.0, 1.0, 3.0))
    assert np.bincount(fixed.assigned(census, 1, 1)).tolist() == [2, 2, 6]
    assert np.array_equal(fixed.assigned(census, 1, 1), fixed.assigned(census, 1, 7))
    assert not np.array_equal(fixed.assigned(census, 1, 1), fixed.assigned(census, 2, 1))
    anew = replace(fixed, by="round")
    often = np.bincount(np.concatenate([anew.assigned(census, 1, number) for number in range(1, 401)])) / 4000
    np.testing.assert_allclose(often, [0.2, 0.2, 0.6], atol=0.02)
    zeros = np.zeros(3)
    kinds = np.array([0, 1, 2])
    table = DeviceTable(np.arange(10) % 3, np.array([5.0, 20.0, 1.0]), zeros, zeros, zeros, kinds, ("b", "c", "a"))
    with_devices = replace(census, devices=table)
    by_kind = replace(fixed, by="device", shares=()).assigned(with_devices, 0, 1)
    assert by_kind[:3].tolist() == [0, 1, 2] and np.array_equal(by_kind, by_kind[np.arange(10) % 3])
    by_speed = replace(fixed, by="speed").assigned(replace(census, devices=DrawnDevices(spread=1.0)), 0, 1)
    rates = np.array([DrawnDevices(spread=1.0).rate(0, client) for client in range(10)])
    assert (
        rates[by_speed == 1].min()
        > rates[by_speed == 0].max()
        > rates[by_speed == 0].min()
        > rates[by_speed == 2].max()
    )


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Sizes(()), "algorithm.levels = (): must be different shares in (0, 1]"),
        (lambda: Sizes((0.5, 0.5)), "algorithm.levels = (0.5, 0.5): must be different shares in (0, 1]"),
        (lambda: Sizes((1.5,)), "algorithm.levels = (1.5,): must be different shares in (0, 1]"),
        (lambda: Sizes((1.0, 0.5), (1.0,)), "algorithm.shares = (1.0,): must be 2 numbers > 0"),
        (lambda: Sizes((1.0, 0.5), (1.0, 2.0), "device"), "algorithm.shares = (1.0, 2.0): must be left out with"),
        (lambda: heterofl(PARTICIPATION, LOCAL, by="x"), "algorithm.by = 'x': must be"),  # type: ignore[arg-type]
        (
            lambda: Sizes(by="speed").assigned(Census(np.arange(3), np.ones(3, np.int64)), 0, 1),
            'algorithm.by = "speed" without [devices]: must have devices',
        ),
        (
            lambda: Sizes(by="device").assigned(
                Census(np.arange(3), np.ones(3, np.int64), devices=DrawnDevices()), 0, 1
            ),
            'with algorithm.by = "device": must have 1 levels',
        ),
    ],
)
def test_wrong_levels_are_refused(make: Callable[[], object], text: str) -> None:
    with pytest.raises(InputError) as refused:
        make()
    assert text in str(refused.value) and "\n" not in str(refused.value)


def test_a_slice_equals_the_whole_model_with_zeros() -> None:
    for name, shape in (("lenet", (3, 32, 32)), ("cnn", (1, 28, 28)), ("mlp", (1, 28, 28))):
        made = build(name, shape=shape, classes=10, seed=1, norm="batch")
        Slice(0.3).check(made, torch.zeros(shape))
        sliced, flops = Slice(0.5).of(made, torch.zeros(shape))
        assert flops < Slice(1.0).of(made, torch.zeros(shape))[1]
        assert sliced(torch.zeros(2, *shape)).shape == (2, 10)


class Turned(nn.Module):
    """A model whose channels do not pass on one by one: it turns the pixels of an image to the front."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, 1), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(x.reshape(-1, 1, 2, 2)).permute(0, 2, 3, 1).flatten(1))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.layer(x))


def test_a_model_with_batch_norm_without_statistics_is_cut() -> None:
    normed = nn.BatchNorm1d(6, track_running_stats=False)
    made = nn.Sequential(nn.Linear(4, 6), normed, nn.ReLU(), nn.Linear(6, 3))
    Slice(0.5).check(made, torch.zeros(4))
    assert Slice(0.5).of(made, torch.zeros(4))[1] == 2 * (4 * 3 + 3 * 3)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3)), "model layer 1 = LayerNorm: must be Linear"),
        (nn.Sequential(nn.Unflatten(1, (4, 1)), nn.Conv1d(4, 4, 1, groups=4)), "model layer 1 = Conv1d: must be"),
        (Turned(), "model: must have layers whose first channels are a model of their own at level 0.5"),
        (Twice(), "model: must call each layer once in a pass"),
    ],
)
def test_models_that_cannot_be_cut_are_refused(model: nn.Module, text: str) -> None:
    before = deepcopy(model.state_dict())
    with pytest.raises(InputError) as refused:
        heterofl(PARTICIPATION, LOCAL, levels=(1.0, 0.5)).check_model(model, torch.zeros(4))
    assert text in str(refused.value) and "\n" not in str(refused.value)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())


def test_draws_of_levels_have_a_purpose_of_their_own() -> None:
    order = generator(3, Purpose.LEVELS).random(4)
    assigned = Sizes((1.0, 0.5)).assigned(Census(np.arange(4), np.ones(4, np.int64)), 3, 1)
    assert assigned[np.argsort(order)].tolist() == [0, 0, 1, 1]
