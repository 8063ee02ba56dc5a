"""State that a user's own code keeps on itself: each change is seen, and nothing else."""

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import Local
from algorithms.core.errors import InputError
from algorithms.core.held import LARGE, MOST, changed, held
from algorithms.core.returned import Returned


class Copying:
    """Object whose state is a copy of an array and a new function, beside attributes as they are."""

    def __init__(self, kept: object = None) -> None:
        self.copied, self.kept = np.zeros(LARGE), kept

    def __getstate__(self) -> dict[str, object]:
        return {"copied": self.copied.copy(), "kept": self.kept, "made": lambda: 0}


class Many:
    def __init__(self) -> None:
        self.__dict__.update({f"a{number}": number for number in range(2 * MOST)})


class Own:
    shared: ClassVar[dict[str, int]] = {}
    count = 0

    def __init__(self) -> None:
        self.number, self.nothing, self.text = 0.5, float("nan"), "a"
        self.nested = [1, {2: {3}}]
        self.array, self.tensor, self.half = np.zeros(3), torch.zeros(3), torch.zeros((), dtype=torch.bfloat16)
        self.sparse = torch.eye(3).to_sparse()
        self.large, self.large_array = torch.zeros(LARGE), np.zeros(LARGE)
        self.module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))
        self.numpy, self.python, self.torch = np.random.default_rng(0), random.Random(0), torch.Generator()
        self.lists, self.queue = defaultdict[int, list[int]](list), deque([1])
        self.function: Callable[[], int] = lambda: 0
        self.long = list(range(MOST + 1))
        self.set, self.frozen = set(range(2 * MOST)), frozenset(range(2 * MOST))
        self.long_queue, self.counts = deque(range(2 * MOST)), Counter(range(2 * MOST))
        self.copying = Copying(np.zeros(LARGE))
        self.many = Many()
        self.local = Local()
        self.itself = self

    @cached_property
    def following(self) -> float:
        return self.number

    def __call__(self) -> None: ...


CHANGES: dict[str, Callable[[Own], object]] = {
    "shared": lambda own: own.shared.update(a=1),
    "count": lambda own: setattr(Own, "count", 1),
    "number": lambda own: setattr(own, "number", 0.6),
    "text": lambda own: setattr(own, "text", "b"),
    "another": lambda own: setattr(own, "another", None),
    "nested": lambda own: own.nested[1][2].add(4),  # type: ignore[index]
    "array": lambda own: own.array.__setitem__(0, 1),
    "tensor": lambda own: own.tensor.data.add_(1),
    "half": lambda own: own.half.add_(1),
    "large": lambda own: own.large.add_(1),
    "large_array": lambda own: setattr(own, "large_array", np.ones(LARGE)),
    "module": lambda own: own.module(torch.ones(3, 2)),
    "numpy": lambda own: own.numpy.random(),
    "python": lambda own: own.python.random(),
    "torch": lambda own: torch.rand(1, generator=own.torch),
    "lists": lambda own: own.lists[0],
    "queue": lambda own: own.queue.append(2),
    "function": lambda own: setattr(own, "function", lambda: 1),
    "long": lambda own: own.long.append(0),
    "set": lambda own: own.set.add(-1),
    "long_queue": lambda own: own.long_queue.append(0),
    "counts": lambda own: own.counts.update([-1]),
    "copying": lambda own: setattr(own.copying, "kept", np.ones(LARGE)),
    "many": lambda own: setattr(own.many, "another", 0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Own, "count", 0)
    monkeypatch.setattr(Own, "shared", {})
    own = Own()
    before = held(own)
    CHANGES[name](own)
    assert changed(own, before) == [name]


def test_reading_is_no_change() -> None:
    own = Own()
    before = held(own)
    with torch.no_grad():
        own.module.eval()(torch.ones(3, 2))
    own.module.train()
    assert own.following == 0.5 and own.local.arithmetic is not None
    assert changed(own, before) == changed(own.__call__, before) == []


def test_objects_that_refer_to_each_other_are_walked_once() -> None:
    nodes = [Many.__new__(Many) for _ in range(60)]
    for place, node in enumerate(nodes):
        node.__dict__.update(place=place, nodes=[*nodes])
    own = Own()
    own.__dict__.update(nodes=nodes)
    before = held(own)
    assert changed(own, before) == []
    nodes[-1].__dict__["place"] = -1
    assert changed(own, before) == ["nodes"]


def test_equal_numbers_and_arrays_in_several_places_are_no_change() -> None:
    own = Own()
    number, array, pair = float("2.5"), np.zeros(3), (1, 2)
    own.nested = [number, number, array, array, pair, pair]
    before = held(own)
    own.nested = [number, float("2.5"), array, array.copy(), pair, tuple(range(1, 3))]
    assert changed(own, before) == []


def test_a_cached_property_of_an_object_without_attributes_is_no_state() -> None:
    class Nested:
        @cached_property
        def following(self) -> int:
            return 1

    own = Own()
    own.nested = [nested := Nested()]
    before = held(own)
    assert nested.following and changed(own, before) == []
    nested.__dict__["kept"] = 1
    assert changed(own, before) == ["nested"]


def test_a_walk_is_no_longer_than_most_in_all() -> None:
    own = Own()
    own.nested = lists = [[float(number) for number in range(200)] for _ in range(MOST // 100)]
    before = held(own)
    assert len(before["nested"]) <= 2 * MOST and changed(own, before) == []
    for change in (lists[0].append, lists.append):
        change(0)
        assert changed(own, before) == ["nested"]
        before = held(own)


def test_a_large_part_hides_no_small_one_beside_it() -> None:
    own = Own()
    own.nested = [{number: str(number) for number in range(MOST // 2)}, small := [0]]
    before = held(own)
    small.append(1)
    assert changed(own, before) == ["nested"]


def test_the_mode_of_a_module_is_no_state() -> None:
    own, module = Own(), nn.Sequential(nn.Dropout())
    before, of_module = held(own), held(module)
    own.module.eval()
    module.eval()
    assert changed(own, before) == changed(module, of_module) == []
    module[0].p = 0.1  # type: ignore[assignment]
    assert changed(module, of_module) == ["_modules"]


def test_an_attribute_of_a_function_is_seen() -> None:
    def train() -> None:
        train.calls = 1  # type: ignore[attr-defined]

    with (
        pytest.raises(InputError, match=r"must keep nothing on itself, and sets 'calls' \(test_held.py, .*\); use x"),
        Returned("key = 'x:y'", train).keeping_nothing("use x"),
    ):
        train()


def test_an_error_of_the_code_comes_first() -> None:
    own = Own()
    with pytest.raises(ZeroDivisionError), Returned("key = 'x:y'", own).keeping_nothing("use x"):
        own.number = 1 / 0


def test_a_change_of_a_slot_is_seen() -> None:
    @dataclass(slots=True)
    class Slots:
        v: float = 0.0
        later: list[int] = field(init=False)

    own = Slots()
    before = held(own)
    assert changed(own, before) == [] and set(before) == {"v"}
    own.v, own.later = 1.0, []
    assert set(changed(own, before)) == {"v", "later"}
