"""What Weights & Biases writes offline says what `metrics.parquet` says, also of a run that was stopped."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from algorithms.training.forked import drawn
from tests.kit.logged import NAMES, Heard, rows, watched

wandb = pytest.importorskip("wandb")

# W&B's own are not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")

BLOCK = 32768
"""Of the log format of LevelDB, which W&B's files have after seven bytes of their own."""


def records(path: Path) -> Iterator[bytes]:
    content, place, whole = path.read_bytes(), 7, b""
    while place + 7 <= len(content):
        if BLOCK - place % BLOCK < 7:
            place += BLOCK - place % BLOCK
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            yield whole
            whole = b""


def history(path: Path) -> list[dict[str, float]]:
    from wandb.proto.wandb_internal_pb2 import Record

    found = []
    for content in records(path):
        record = Record()
        record.ParseFromString(content)
        if record.WhichOneof("record_type") == "history":
            items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            found.append({key: float(json.loads(text)) for key, text in items.items() if not key.startswith("_")})
    return found


@pytest.mark.parametrize("stop_in", [None, 3])
def test_its_file_is_the_table(tmp_path: Path, stop_in: int | None) -> None:
    before = drawn()
    run = watched(tmp_path / "run", stop_in, loggers=["wandb"])
    assert drawn() == before, "a logger drew from a default generator"
    folder = tmp_path / "run" / "watch" / "wandb"
    for name in NAMES:
        (file,) = folder.glob(f"offline-run-*/run-{(folder / f'{name}.id').read_text()}.wandb")
        assert history(file) == rows(run.folder / name)


def test_online_without_a_key_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    from raysim.simulation.api import run
    from tests.kit.logged import EXPERIMENT

    heard = Heard()
    watch = {"loggers": ["wandb"], "wandb_mode": "online"}
    run({**EXPERIMENT, "rounds": 1, "watch": watch}, tmp_path / "run", inline=True, watcher=heard)
    assert [text for text in heard.notices if "wandb login" in text] == heard.notices and len(heard.notices) == 1
