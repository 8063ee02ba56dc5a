"""The head of a model: marked, called so, or the last layer."""

import copy

import pytest
import torch
from torch import nn

from algorithms import Layout
from algorithms.core.entries import entries_of
from algorithms.core.head import head_layers, mark_head
from algorithms.core.layout import Layouts
from algorithms.parts.sharing import Sharing


class Named(nn.Module):
    """A module whose head is not its last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
        self.header = nn.Linear(4, 4)


def plain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3), nn.Tanh())


def heads(module: nn.Module) -> list[str]:
    return [entry.name for entry, _ in entries_of(module) if entry.head]


def test_the_head_is_the_last_layer_unless_it_is_called_so_or_marked() -> None:
    assert head_layers(plain()) == ("2",) and heads(plain()) == ["2.weight", "2.bias"]
    assert head_layers(Named()) == ("head",) and len(heads(Named())) == 9
    assert heads(nn.Linear(4, 3)) == ["weight", "bias"]
    assert heads(nn.Sequential(nn.BatchNorm1d(4))) == []
    marked = plain()
    mark_head(marked, ["0", "1"])
    assert heads(copy.deepcopy(marked)) == [name for name, _ in plain().state_dict().items() if name[0] in "01"]


def test_a_head_without_entries_is_none() -> None:
    module = plain()
    module.head = nn.Tanh()
    assert head_layers(module) == ("2",)


def personal(module: nn.Module, *parts: str) -> Layouts:
    return Sharing(personal=parts).divide(Layout.of(module))


@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        ((), ""),
        (("head",), "2"),
        (("body",), "01"),
        (("1",), "1"),
        (("head", "0"), "02"),
        (("2.bias", "0"), "0b"),
        (("head", "body"), "012"),
    ],
)
def test_parts_are_personal_by_name(parts: tuple[str, ...], kept: str) -> None:
    layouts = personal(plain(), *parts)
    found = {entry.name for entry in layouts.personal.entries}
    names = {name for name in plain().state_dict() if name[0] in kept} | ({"2.bias"} if "b" in kept else set())
    assert found == names
    assert {entry.name for entry in layouts.shared.entries} == set(plain().state_dict()) - names


@pytest.mark.parametrize("part", ["fc", "2.weights", "2.", ""])
def test_an_unknown_part_is_refused(part: str) -> None:
    with pytest.raises(ValueError, match=r'must be "head", "body" or a part of the model \(0, 1, 2\)'):
        personal(plain(), part)


def test_an_empty_part_is_refused() -> None:
    with pytest.raises(ValueError, match=r"algorithm\.personal = 'body'"):
        personal(nn.Linear(4, 3), "body")
    with pytest.raises(ValueError, match=r"algorithm\.personal = 'head'"):
        personal(nn.Sequential(nn.BatchNorm1d(4)), "head")


def test_parts_go_by_whole_names() -> None:
    module = nn.Sequential()
    for name in ("1", "10"):
        module.add_module(name, nn.Linear(2, 2))
    assert [entry.name for entry in personal(module, "1").personal.entries] == ["1.weight", "1.bias"]
    assert torch.is_tensor(module(torch.zeros(1, 2)))
