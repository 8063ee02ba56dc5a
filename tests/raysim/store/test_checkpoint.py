"""What a checkpoint holds, comes back from the disk as it was; and what nobody needs any more goes."""

import json
import math
import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from algorithms import (
    Assign,
    DamagedError,
    Layout,
    Local,
    Location,
    Packed,
    Participation,
    PersonalLedger,
    PersonalStore,
    State,
    fedavg,
)
from algorithms.core.report import UpdateRows
from algorithms.parts.arrivals import Arrivals, Concurrent, Flight, Timeline
from algorithms.rounds.asynchronous import AsyncProgress
from raysim.common.errors import InputError
from raysim.measures.selection import EvaluationHistory
from raysim.store.checkpoint import CLASSES, Checkpoints, Sweeper, check_same
from raysim.store.codec import Codec
from raysim.store.journal import Journal, JournalMark
from raysim.store.result import AlgorithmResult, RunProgress, Snapshot

PACKED = Packed(np.arange(16, dtype=np.float32), np.arange(16))


@dataclass(frozen=True)
class Own:
    """What a step of one's own may leave in the state."""

    value: Any
    more: Mapping[str, float] = field(default_factory=dict)


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same to the last bit, and of the same classes."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "__dataclass_fields__"):
        return all(same(getattr(one, name), getattr(other, name)) for name in one.__dataclass_fields__)
    return repr(one) == repr(other)


VALUES: list[Any] = [
    *(None, True, False, 0, -3, 2**80, "", "käse\n\0", 0.1, -0.0, 5e-324, math.inf, -math.inf, math.nan),
    *((), (1,), [], [1, (2, [3])], {}, {1: "a", "1": "b", (2, None): [0.5], None: {}}),
    {"float": "nan", "tuple": [1]},
    *(np.array(values, dtype) for values in ([], [1, 0, 1]) for dtype in ("?", "i1", "u8", "i8", "f2", "f4", "f8")),
    *(np.zeros((0, 3)), np.array(2.5), np.float32(0.1), np.int64(-1), np.bool_(True)),
    *(np.array([np.nan, np.inf, -0.0, 1e-45], "f4"), np.arange(6).reshape(2, 3).T, np.arange(9)[::2]),
    *(Location("a", 1), PACKED, EvaluationHistory(2, {"loss": 0.5}, {"loss": 3}, {"loss": 1}, {})),
    vars(
        AsyncProgress(
            repr(Arrivals(Participation(cohort=2), Concurrent(3))),
            *(0, 4),
            Timeline(7, 1.25, (Flight(8, 3, 6, 2.5),)),
            {6: PACKED},
            {
                8: (
                    UpdateRows.of([3], [{"steps": 1.0, "loss": math.nan}], [0.0], [None], ["the loss"]),
                    *(2, {"actor": 0.0}, PACKED),
                )
            },
            3,
        )
    ),
    Own((Own(None), [np.ones(2)]), {"a": math.nan}),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:30])
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    codec = Codec([*CLASSES, Location], [__name__.partition(".")[0]])
    held, arrays = codec.encode(value, {})
    there = json.loads(json.dumps(held, allow_nan=False))
    assert same(codec.decode(there, arrays, {}), value)


def test_what_is_shared_is_held_once_and_shared_again() -> None:
    codec = Codec(CLASSES)
    held, arrays = codec.encode({"a": PACKED, "b": [PACKED, PACKED.floats], "c": VALUES}, {"the others": VALUES})
    assert len(arrays) == 2
    back = codec.decode(held, arrays, {"the others": VALUES})
    assert back["a"] is back["b"][0] and back["b"][1] is back["a"].floats and back["c"] is VALUES


@dataclass(frozen=True)
class Hidden:
    state: Any


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (Hidden(1), r"value = .*Hidden"),
        ({"own": [1, {2}]}, r"\['own'\]\[1\] = builtins.set"),
        (Timeline(0, torch.zeros(1)), "now = torch.Tensor"),  # type: ignore[arg-type]
        (np.array(["text"]), "numpy.ndarray"),
        (lambda: 1, "builtins.function"),
        (Local, "builtins.type"),
    ],
)
def test_what_is_no_plain_value_is_refused(value: Any, what: str) -> None:
    with pytest.raises(InputError, match=f"{what}.*: must be a plain value") as error:
        Codec(CLASSES).encode(value, {})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["Hidden", "os:stat_result", f"{__name__}:Own", "os:system"])
def test_no_class_is_made_that_is_not_known(name: str) -> None:
    held = {"objects": [{"class": name, "fields": {}}], "value": {"object": 0}}
    with pytest.raises(ValueError, match="is not a known class"):
        Codec(CLASSES).decode(held, {}, {})


def test_the_ledger_forgets_what_nobody_sees() -> None:
    ledger = PersonalLedger()
    for number in range(1, 8):
        for client in range(number % 3, 6):
            ledger.add(number, client, Location(f"file-{number}", client))
    seen = {n: [ledger.latest(client, n) for client in range(6)] for n in (3, 5, 6, 7)}
    files, table = ledger.table({3, 5})
    again = PersonalLedger.of(files, table)
    ledger.forget({3, 5})
    for n in (3, 5, 6, 7):
        assert [ledger.latest(client, n) for client in range(6)] == seen[n]
    assert [again.latest(client, 3) for client in range(6)] == seen[3]
    assert [again.latest(client, 5) for client in range(6)] == seen[5] == [again.latest(c, 9) for c in range(6)]
    assert ledger.latest(2, 2) is None and "file-1" not in ledger.files()


def test_a_ledger_does_not_grow() -> None:
    ledger, sizes = PersonalLedger(), []
    for number in range(1, 200):
        for client in range(10):
            ledger.add(number, client, Location("file", number))
        ledger.forget({number, max(1, number - 5)})
        sizes.append(sum(map(len, ledger._rows.values())))
    assert max(sizes) == 20


def snapshot(number: int, personal: PersonalLedger) -> Snapshot:
    """After a round, with the model and all else that the round made."""
    model = Packed(np.full(16, number, np.float32), np.arange(16))
    state = State(3, number, model, PACKED, model, memory={"m": np.arange(3.0)}, personal=personal)
    result = AlgorithmResult("fedavg", ALGORITHM, {"test_loss": math.nan}, number, number)
    return Snapshot(state, RunProgress(result, 9, state, {"test_loss": math.nan}))


ALGORITHM = fedavg(Participation(), Local(epochs=1), Assign())
LAYOUT = Layout.of(torch.nn.BatchNorm1d(2000))


def rows(folder: Path, count: int) -> list[dict[str, JournalMark]]:
    """Journals of so many rounds, as another run may have left them; their marks after each round."""
    schema = pa.schema([("round", pa.int64())])
    marks = []
    for name in ("metrics", "updates"):
        journal = Journal(folder / f"{name}.journal", schema)
        marks.append([journal.mark])
        for number in range(1, count + 1):
            journal.append(pa.RecordBatch.from_pydict({"round": [number]}, schema))
            marks[-1].append(journal.mark)
        journal.close()
    return [dict(zip(("metrics", "updates"), both, strict=True)) for both in zip(*marks, strict=True)]


def test_the_newest_two_stay_and_a_damaged_one_is_left_out(tmp_path: Path) -> None:
    marks = rows(tmp_path, 4)
    checkpoints, notices = Checkpoints(tmp_path, ALGORITHM, {"cpu": "x"}), list[str]()
    assert checkpoints.newest(notices.append) is None
    for number in (1, 2, 4):
        checkpoints.write(snapshot(number, PersonalLedger()), marks[number])
    older, newest = sorted((tmp_path / "checkpoint").iterdir())
    assert older.name.startswith("round-000000002-")
    found = Checkpoints(tmp_path, ALGORITHM, {"cpu": "x"}).newest(notices.append)
    assert found is not None and found.progress.chosen is found.state and found.progress.result.algorithm is ALGORITHM
    wanted = snapshot(4, PersonalLedger())
    assert same(found.state.model, wanted.state.model)
    assert same(found.progress.result.metrics, wanted.progress.result.metrics)
    assert notices == []

    content = newest.read_bytes()
    newest.write_bytes(content[: len(content) // 2])
    found = Checkpoints(tmp_path, ALGORITHM, {"cpu": "x"}).newest(notices.append)
    assert found is not None and found.state.round == 2 and not newest.exists()
    assert len(notices) == 1 and newest.name in notices[0] and "sha256" in notices[0]
    rows(tmp_path, 1)
    assert Checkpoints(tmp_path, ALGORITHM, {"cpu": "x"}).newest(notices.append) is None
    assert "metrics.journal is damaged" in notices[1]


def test_another_machine_is_named(tmp_path: Path) -> None:
    Checkpoints(tmp_path, ALGORITHM, {"cpu": "x", "torch": "2"}).write(snapshot(1, PersonalLedger()), {})
    with pytest.raises(InputError, match="begun with cpu = x, and here it is y"):
        Checkpoints(tmp_path, ALGORITHM, {"cpu": "y", "torch": "2"}).newest(print)


@pytest.mark.parametrize(
    ("there", "here", "change"),
    [
        ({"exp.py": "1"}, {"exp.py": "2"}, "has changed"),
        ({"exp.py": "1"}, {}, "is gone"),
        ({}, {"exp.py": "2"}, "is new"),
    ],
)
def test_a_file_of_one_s_own_code_is_named_without_its_digest(
    there: dict[str, str], here: dict[str, str], change: str
) -> None:
    with pytest.raises(
        InputError, match=rf"^run: exp.py {change} since the run began: .*; undo that, or start a new run$"
    ):
        check_same(Path("run"), there, here)


def test_files_of_personal_state_go_when_nobody_needs_them(tmp_path: Path) -> None:
    """Two writers, one of which begins another file after each two records; a client update is always under way."""
    store, other = (
        PersonalStore(tmp_path / "personal", LAYOUT, full=2 * LAYOUT.nbytes),
        PersonalStore(tmp_path / "personal", LAYOUT),
    )
    record = LAYOUT.pack(torch.nn.BatchNorm1d(2000).state_dict())
    ledger, sweeper = PersonalLedger(), Sweeper(tmp_path / "personal", full=2 * LAYOUT.nbytes)
    ledger.add(1, 9, other.append(record))
    counts, flying = [], store.append(record)
    for number in range(1, 30):
        ledger.add(number, 1, flying)
        flying = store.append(record)  # of the next round, which no ledger names yet
        files, _ = ledger.table({number})
        sweeper.sync(files)
        ledger.forget({number})
        sweeper.sweep(number, set(files), ledger)
        there = {path.name for path in (tmp_path / "personal").iterdir()}
        assert {*files, flying.file} <= there
        counts.append(len(there))
    assert max(counts[5:]) <= 5
    store.close()
    other.close()


@pytest.mark.parametrize(("personal", "wait"), [(False, 49), (True, 9)])
def test_the_next_checkpoint_waits_for_a_multiple_of_the_last(
    personal: bool, wait: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, ledger = [100.0], PersonalLedger()
    monkeypatch.setattr("raysim.store.checkpoint.time", SimpleNamespace(monotonic=lambda: now[0]))
    store = PersonalStore(tmp_path / "personal", LAYOUT)
    if personal:
        ledger.add(1, 9, store.append(LAYOUT.pack(torch.nn.BatchNorm1d(2000).state_dict())))
        store.close()

    def saved() -> None:
        now[0] += 2  # seconds that the checkpoint takes

    checkpoints = Checkpoints(tmp_path, ALGORITHM, {"cpu": "x"}, saved=saved)
    checkpoints.write(snapshot(1, ledger), {})
    now[0] += 2 * wait - 0.1
    assert now[0] < checkpoints.next
    now[0] += 0.2
    assert now[0] >= checkpoints.next


def test_a_record_that_was_cut_is_no_entry(tmp_path: Path) -> None:
    store = PersonalStore(tmp_path, LAYOUT)
    at = store.append(LAYOUT.pack(torch.nn.BatchNorm1d(2000).state_dict()))
    store.close()
    path = tmp_path / at.file
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedError, match="personal state at byte 0 is damaged"):
        store.read(at)


def test_a_file_that_cannot_be_read_now_is_not_damaged(tmp_path: Path) -> None:
    store, (mark, *_) = PersonalStore(tmp_path, LAYOUT), rows(tmp_path, 1)
    at = store.append(LAYOUT.pack(torch.nn.BatchNorm1d(2000).state_dict()))
    store.close()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            store.read(at)
        with pytest.raises(OSError, match="Too many open files"):
            mark["metrics"].holds(tmp_path / "metrics.journal")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    store.read(at)
    (tmp_path / at.file).unlink()
    with pytest.raises(DamagedError, match="personal state is lost"):
        store.read(at)


def test_rounds_are_the_ones_that_a_snapshot_needs() -> None:
    now = snapshot(4, PersonalLedger())
    assert now.rounds == {4}
    chosen = snapshot(2, PersonalLedger()).state
    assert Snapshot(now.state, RunProgress(now.progress.result, 9, chosen)).rounds == {2, 4}


def test_a_file_that_fills_up_while_it_is_awaited_is_awaited_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    awaited: list[list[str]] = []

    def waits(*paths: Path) -> None:
        awaited.append([path.name for path in paths])
        (tmp_path / "a.bin").write_bytes(bytes(20))  # a client update ends meanwhile

    monkeypatch.setattr("raysim.store.checkpoint.sync", waits)
    (tmp_path / "a.bin").write_bytes(bytes(10))
    sweeper = Sweeper(tmp_path, full=20)
    for _ in range(3):
        sweeper.sync(["a.bin"])
    assert awaited == [["a.bin", tmp_path.name]] * 2


def test_each_checkpoint_waits_for_the_entries_of_its_algorithms_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The personal store may begin after the first checkpoint, such as with a later phase."""
    awaited: list[Path] = []
    monkeypatch.setattr("raysim.store.checkpoint.sync", lambda *paths: awaited.extend(paths))
    checkpoints = Checkpoints(tmp_path, ALGORITHM, {"cpu": "x"})
    for number in (1, 2):
        awaited.clear()
        checkpoints.write(snapshot(number, PersonalLedger()), {})
        assert tmp_path in awaited
