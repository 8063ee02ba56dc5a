"""Hostile folders in the layout of the hub: none of their code runs, nobody is asked, and nothing else is read."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import transformers

from raysim.common.errors import InputError
from raysim.data.hub import read_hub
from raysim.data.tokens import _load
from raysim.models.language import language
from tests.raysim.data.tokenizers import write_tokenizer

CODE = "from pathlib import Path\nPath({marker!r}).touch()\nfrom transformers import *\nclass Own(GPT2Config): pass\n"
ELSEWHERE = ["../other.safetensors", "/etc/hostname", "https://example.org/x", "a/../../b", "C:\\x", "~/x", "..\\x"]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder of a small model."""
    config = transformers.GPT2Config(vocab_size=11, n_positions=8, n_embd=4, n_layer=1, n_head=1)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "small")
    return tmp_path / "small"


def changed(file: Path, **keys: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))


def load(folder: Path) -> object:
    return language("", {}, str(folder), 6, 11, "sequence")


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """File that a folder's code would write, for a user who answers yes to all questions."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 9))
    return tmp_path / "it-ran"


def test_a_sound_folder_is_read(small: Path) -> None:
    read = load(small)
    assert isinstance(read, torch.nn.Module)
    stored = transformers.GPT2LMHeadModel.from_pretrained(small).state_dict()
    torch.testing.assert_close(read.state_dict()["network.lm_head.weight"], stored["lm_head.weight"])


def test_a_model_s_code_never_runs(small: Path, marker: Path) -> None:
    (small / "own.py").write_text(CODE.format(marker=str(marker)))
    changed(small / "config.json", auto_map={"AutoConfig": "own.Own"}, model_type="own")
    with pytest.raises(InputError, match=r"model.pretrained = .* cannot be built \(it has code of its own, and raysim"):
        load(small)
    assert not marker.exists()


def test_the_library_s_own_model_is_read_without_the_folder_s_code(small: Path, marker: Path) -> None:
    (small / "own.py").write_text(CODE.format(marker=str(marker)))
    changed(small / "config.json", auto_map={"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"})
    load(small)
    assert not marker.exists()


def test_a_tokenizer_s_code_never_runs(tmp_path: Path, marker: Path) -> None:
    folder = write_tokenizer(tmp_path / "words")
    (folder / "own.py").write_text(CODE.format(marker=str(marker)))
    auto_map = {"AutoTokenizer": ["own.Own", "own.Own"]}
    changed(folder / "tokenizer_config.json", auto_map=auto_map, tokenizer_class="Own")
    with pytest.raises(InputError, match=r"data.text.tokenizer = .* cannot be loaded \(it has code of its own"):
        _load(str(folder))
    assert not marker.exists()


@pytest.mark.parametrize("name", ELSEWHERE)
def test_an_index_names_files_of_its_folder_alone(name: str, small: Path) -> None:
    (small / "model.safetensors").rename(small.parent / "other.safetensors")
    index = {"metadata": {"total_size": 1}, "weight_map": {"transformer.wte.weight": name}}
    (small / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(
        InputError, match=r"model.pretrained = .*: model.safetensors.index.json names .* not in the fol"
    ):
        load(small)


def test_weights_are_no_pickles(small: Path) -> None:
    (small / "model.safetensors").unlink()
    torch.save({"lm_head.weight": torch.zeros(11, 4)}, small / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"model.pretrained = .* cannot be built \(.*safetensors"):
        load(small)


def test_an_adapter_of_another_model_is_refused(small: Path) -> None:
    (small / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(small)}))
    with pytest.raises(InputError, match=r"has adapter_config.json, an adapter of a model elsewhere: must have all"):
        load(small)


@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.parametrize("file", ["README.md", ".huggingface.yaml"])
@pytest.mark.parametrize("key", ["data_files", "data_dir"])
def test_a_data_set_names_files_of_its_folder_alone(name: str, file: str, key: str, tmp_path: Path) -> None:
    (folder := tmp_path / "insects").mkdir()
    pq.write_table(pa.table({"x": [1.0, 2.0], "label": [0, 1]}), folder / "train.parquet")
    pq.write_table(pa.table({"x": [3.0, 4.0], "label": [0, 1]}), tmp_path / "b")
    value = [{"split": "train", "path": [name]}] if key == "data_files" else name
    described = json.dumps({"configs": [{"config_name": "default", key: value}]})
    (folder / file).write_text(described if file.startswith(".") else f"---\n{described}\n---\n")
    with pytest.raises(InputError, match=rf"data.dataset = .*insects': {file} names .* which is not in the folder"):
        read_hub(f"hf:{folder}", None, "label")


@pytest.mark.parametrize("card", ["no card", "---\nlicense: mit\n---\n"])
def test_other_descriptions_are_read_as_ever(card: str, tmp_path: Path) -> None:
    (folder := tmp_path / "insects").mkdir()
    pq.write_table(pa.table({"x": [1.0, 2.0], "label": [0, 1]}), folder / "train.parquet")
    (folder / "README.md").write_text(card)
    assert read_hub(f"hf:{folder}", None, "label")[0].num_rows == 2


@pytest.mark.parametrize("card", ["---\nconfigs: [\n---\n", "---\n- a\n---\n"])
def test_a_damaged_description_is_the_library_s_to_refuse(card: str, tmp_path: Path) -> None:
    (folder := tmp_path / "insects").mkdir()
    pq.write_table(pa.table({"x": [1.0, 2.0], "label": [0, 1]}), folder / "train.parquet")
    (folder / "README.md").write_text(card)
    with pytest.raises(InputError, match=r"data.dataset = .* cannot be loaded"):
        read_hub(f"hf:{folder}", None, "label")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", "sub/model.safetensors"])
def test_a_model_is_not_read_from_a_pipe(name: str, small: Path) -> None:
    (small / name).unlink(missing_ok=True)
    (small / name).parent.mkdir(exist_ok=True)
    os.mkfifo(small / name)
    with pytest.raises(InputError, match=rf"model.pretrained = .*: {Path(name).name} is neither a file nor a folder"):
        load(small)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_tokenizer_is_not_read_from_a_pipe(name: str, tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "words")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(InputError, match=rf"data.text.tokenizer = .*: {name} is neither a file nor a folder"):
        _load(str(folder))


def test_a_tokenizer_s_file_is_no_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "words.json")
    with pytest.raises(InputError, match=r"data.text.tokenizer = .*it is a named pipe, not a regular file"):
        _load(str(tmp_path / "words.json"))


@pytest.mark.parametrize("name", ["README.md", ".huggingface.yaml", "more.parquet"])
def test_a_data_set_is_not_read_from_a_pipe(name: str, tmp_path: Path) -> None:
    (folder := tmp_path / "insects").mkdir()
    pq.write_table(pa.table({"x": [1.0, 2.0], "label": [0, 1]}), folder / "train.parquet")
    os.mkfifo(folder / name)
    with pytest.raises(InputError, match=rf"data.dataset = .*: {name} is neither a file nor a folder"):
        read_hub(f"hf:{folder}", None, "label")
