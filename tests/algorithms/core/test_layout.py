import numpy as np
import pytest
from torch import nn

from algorithms import InputError, Kind, Layout
from algorithms.core.entries import Entry
from algorithms.core.layout import ALIGNMENT, Layouts, Packed
from tests.kit.federation import perceptron


class Block(nn.Module):
    """A residual block whose shortcut holds a batch norm that no name tells."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.n = nn.BatchNorm2d(4)
        self.downsample = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))


class Custom(nn.BatchNorm1d):
    """A subclass of a batch norm."""


def test_kinds_go_by_the_layers_type() -> None:
    kinds = {entry.name: entry.kind for entry in Layout.of(nn.Sequential(Block(), Custom(4))).entries}
    assert kinds["0.downsample.1.weight"] is Kind.AFFINE
    assert kinds["0.downsample.1.running_mean"] is Kind.STATISTIC
    assert kinds["0.downsample.1.num_batches_tracked"] is Kind.STATISTIC
    assert kinds["0.downsample.0.weight"] is Kind.WEIGHT
    assert kinds["1.bias"] is Kind.AFFINE
    assert Layout.of(nn.GroupNorm(2, 4)).entries[0].kind is Kind.WEIGHT


def test_pack_and_unpack_are_inverse() -> None:
    module = perceptron(norm=True)
    module[1].num_batches_tracked.fill_(7)
    layout = Layout.of(module)
    packed = layout.pack(module.state_dict())
    unpacked = layout.unpack(packed)
    assert list(unpacked) == list(module.state_dict())
    for name, value in module.state_dict().items():
        assert np.array_equal(unpacked[name], value.numpy())
    assert packed.integers.dtype == np.int64 and packed.floats.dtype == np.float32


def test_every_entry_is_aligned() -> None:
    assert all(place.start % ALIGNMENT == 0 for _, place in Layout.of(perceptron(norm=True)).places())


def test_bytes_leave_the_padding_out() -> None:
    assert Layout.of(perceptron()).nbytes == 4 * (4 * 6 + 6 + 6 * 3 + 3)
    assert Layout.of(nn.BatchNorm1d(6)).nbytes == 4 * 4 * 6 + 8


def test_tied_parameters_stand_once() -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    assert [e.name for e in Layout.of(nn.Sequential(first, second)).entries] == ["0.weight", "0.bias", "1.bias"]


@pytest.mark.parametrize("module", [nn.Linear(2, 2).half(), nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())])
def test_other_types_are_refused(module: nn.Module) -> None:
    with pytest.raises(InputError, match=r"weight = torch\.float.*: must be int64, or float32 or float64"):
        Layout.of(module)


def test_a_model_in_double_precision_is_packed_so() -> None:
    module = nn.Linear(2, 2).double()
    layout = Layout.of(module)
    packed = layout.pack(module.state_dict())
    assert packed.floats.dtype == np.float64 and layout.nbytes == 8 * 6
    assert np.array_equal(layout.unpack(packed)["weight"], module.weight.detach().numpy())


def test_counters_do_not_hide_parameters() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    layout = Layout.of(module)
    places = {entry.name: place for entry, place in layout.places() if not entry.integer}
    for name, place in places.items():
        assert layout.parameters[place].all() == (name in dict(module.named_parameters())), name
    assert layout.parameters.sum() == sum(each.numel() for each in module.parameters())


def test_a_newcomers_own_counters_begin_at_0_and_those_of_the_model_stay() -> None:
    entries = (
        Entry("norm.num_batches_tracked", (), Kind.STATISTIC, integer=True),
        Entry("batches", (), Kind.SLOT, True),
    )
    layouts = Layouts(Layout(()), Layout(entries), Layout(()))
    begun = layouts.begun(Packed(np.zeros(0, np.float32), np.full(layouts.personal.integers, 7)))
    assert {name: int(value) for name, value in layouts.personal.unpack(begun).items()} == {
        "norm.num_batches_tracked": 7,
        "batches": 0,
    }
