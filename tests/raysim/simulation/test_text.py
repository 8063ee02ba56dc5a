"""Runs on text: language models by role, classifiers, adapters."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from safetensors.numpy import load_file

import raysim
from raysim.common.errors import InputError
from tests.kit.ray import SharedRay
from tests.kit.runs import metrics, quick_resume, quick_run
from tests.kit.tokenizers import write_tokenizer

SPEECHES = "\n\n".join(
    f"{who}:\n{' '.join(['to be or not to be'] * (3 + turn))}" for turn in range(4) for who in ("A", "B", "C")
)

SMALL = {"n_layer": 1, "n_embd": 16, "n_head": 2, "n_positions": 32}


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("plays")
    (root / "shakespeare.txt").write_text(SPEECHES)
    return {
        "rounds": 2,
        "data": {
            "dataset": "plays",
            "root": str(root),
            "text": {"tokenizer": "bytes", "length": 16, "predict": "next-token"},
        },
        "partition": {"scheme": "natural", "column": "speaker", "local_test": 0.2},
        "model": {"name": "transformer", "architecture": "gpt2", "options": SMALL},
        "algorithm": {"name": "fedavg"},
        "local": {"lr": 0.5, "batch_size": 4, "clip": 1.0},
        "evaluate": {"every": 0, "metrics": ["perplexity", "accuracy"]},
    }


@pytest.fixture(scope="module")
def adapted(plays: dict[str, Any]) -> dict[str, Any]:
    """Return the experiment with a run of the whole model, and one of adapters."""
    lora = {**plays["model"], "train": "lora", "lora_rank": 2}
    return {**plays, "algorithm": [{"name": "fedavg"}, {"name": "fedavg", "model": lora}]}


@pytest.fixture(scope="module")
def inline(adapted: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quick_run(adapted, tmp_path_factory.mktemp("inline") / "run", inline=True).folder


def weights(folder: Path, name: str = "fedavg") -> dict[str, np.ndarray]:
    return load_file(folder / name / "model.safetensors")


def test_a_language_model_learns_the_plays_by_role(plays: dict[str, Any], tmp_path: Path) -> None:
    run = quick_run(
        {**plays, "rounds": 10, "evaluate": {**plays["evaluate"], "every": 1}}, tmp_path / "run", inline=True
    )
    perplexity = run.metrics()["local_perplexity"]
    state = run.model().state_dict()
    for name, value in weights(tmp_path / "run").items():
        np.testing.assert_array_equal(state[name].numpy(), value)
    assert perplexity.iloc[-1] < 10 < perplexity.iloc[0]  # the text has nine letters


@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_same_bytes_inline_and_on_actors(
    adapted: dict[str, Any], inline: Path, number: int, tmp_path: Path, shared_ray: SharedRay
) -> None:
    """By default on one actor, because each imports transformers and adapters for seconds."""
    actors = quick_run(adapted, tmp_path / "actors", fleet=shared_ray.actors(number)).folder
    for name in ("fedavg", "fedavg-2"):
        one, other = (folder / name / "model.safetensors" for folder in (inline, actors))
        assert one.read_bytes() == other.read_bytes()


def test_only_what_trains_is_sent(adapted: dict[str, Any], inline: Path, tmp_path: Path) -> None:
    quick_run({**adapted, "rounds": 0, "algorithm": adapted["algorithm"][1]}, tmp_path / "before", inline=True)
    before, after = weights(tmp_path / "before"), weights(inline, "fedavg-2")
    changed = {name for name in after if not np.array_equal(before[name], after[name])}
    adapters = {name for name in after if ".lora_" in name}
    assert changed == adapters  # with B = 0, A has no gradient in the first step, and one in the next
    sent = 4 * sum(after[name].size for name in adapters)
    rows = metrics(inline / "fedavg-2")
    assert rows["bytes_up"] == rows["bytes_down"] == [3 * sent] * 2


def test_a_classifier_of_a_frame_with_a_tokenizer_of_ones_own(tmp_path: Path) -> None:
    folder, words = write_tokenizer(tmp_path / "tokenizer"), np.array(["to be", "or not", "not to be", "or"])
    labels = np.random.default_rng(0).integers(0, 2, 200)
    frame = pd.DataFrame({"text": words[labels * 2 + np.arange(200) % 2], "label": labels, "where": np.arange(200) % 4})
    run = quick_run(
        {
            "rounds": 8,
            "data": {"dataset": frame, "text": {"tokenizer": str(folder), "length": 4}, "test": 0.2},
            "partition": {"scheme": "natural", "column": "where"},
            "model": {
                "name": "transformer",
                "architecture": "bert",
                "options": {
                    "num_hidden_layers": 1,
                    "hidden_size": 16,
                    "num_attention_heads": 2,
                    "intermediate_size": 32,
                    "vocab_size": 7,
                },
            },
            "algorithm": {"name": "fedavg"},
            "local": {"optimizer": "adam", "lr": 0.02},
        },
        tmp_path / "run",
        inline=True,
    )
    assert run.metrics().iloc[-1]["test_accuracy"] == 1.0


def test_a_data_set_in_the_hubs_layout(plays: dict[str, Any], tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    rows = {"text": ["to be", "or not"] * 20, "label": [1, 0] * 20}
    folder = tmp_path / "hub" / "data"
    folder.mkdir(parents=True)
    datasets.Dataset.from_dict(rows, features=features).to_parquet(str(folder / "train-00000-of-00001.parquet"))
    run = quick_run(
        {
            **plays,
            "data": {"dataset": f"hf:{tmp_path}/hub", "text": {"length": 8}, "test": 0.2},
            "partition": {"scheme": "iid", "clients": 2},
            "evaluate": {"every": 0},
        },
        tmp_path / "run",
        inline=True,
    )
    assert np.isfinite(run.metrics().iloc[-1]["test_loss"])


def test_a_misspelt_owner_is_answered_with_the_users_columns(plays: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown column partition.column = 'speker'.*did you mean 'speaker'"):
        raysim.run({**plays, "partition": {"scheme": "natural", "column": "speker"}}, tmp_path / "run", inline=True)


def test_a_run_goes_on_after_its_tokenizer_is_gone(plays: dict[str, Any], tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tokenizer")
    text = {"tokenizer": str(tmp_path / "tokenizer"), "length": 16, "predict": "next-token"}
    plays = {**plays, "data": {**plays["data"], "text": text}}
    quick_run(plays, tmp_path / "run", inline=True)
    for path in (tmp_path / "tokenizer").iterdir():
        path.unlink()
    assert quick_resume(tmp_path / "run", inline=True).folder == tmp_path / "run"


@pytest.mark.parametrize(
    ("text", "label", "message"),
    [
        ({"predict": "next-token"}, "speaker", "data.label = 'speaker' with data.text.predict = 'next-token'"),
        ({"tokeniser": "bytes"}, None, "unknown key 'data.text.tokeniser'"),
        ({"length": 0}, None, "data.text.length = 0"),
        ({"column": "words", "predict": "next-token"}, None, "must be one of text, speaker"),
    ],
)
def test_wrong_text_is_refused_in_one_line(
    plays: dict[str, Any], text: dict[str, Any], label: str | None, message: str, tmp_path: Path
) -> None:
    data = {**plays["data"], "text": text} | ({} if label is None else {"label": label})
    with pytest.raises(InputError, match=message) as caught:
        raysim.run({**plays, "data": data}, tmp_path / "run", inline=True)
    assert "\n" not in str(caught.value)


def test_texts_without_a_sequence_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    data = {"dataset": pa.table({"text": [""] * 60}), "test": 0.2, "text": {"predict": "next-token"}}
    model = {"name": "transformer", "architecture": "gpt2"}
    with pytest.raises(InputError, match=r"column 'text' of data.text.column has no text of two tokens: must"):
        raysim.run({"data": data, "model": model}, tmp_path / "run", inline=True)
    assert not any(tmp_path.iterdir())
