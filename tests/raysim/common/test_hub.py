"""Hostile folders in the layout of the hub: none of their code runs, nobody is asked, and nothing else is read."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from PIL import Image

from raysim.common.errors import InputError
from raysim.common.hub import check_data_folder
from raysim.data.hub import read_hub
from raysim.data.tokens import _load
from raysim.models.language import language
from tests.kit.tokenizers import write_tokenizer

CODE = "from pathlib import Path\nPath({marker!r}).touch()\nfrom transformers import *\nclass Own(GPT2Config): pass\n"
ELSEWHERE = ["../other.safetensors", "/etc/hostname", "https://example.org/x", "a/../../b", "C:\\x", "~/x", "..\\x"]
LOCAL = ["file:/etc/hostname", "local:/etc/hostname", "file:local:../x", "local:~/x"]


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


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/hostname"])
def test_weights_by_another_name_are_in_the_folder(name: str, small: Path) -> None:
    (small / "model.safetensors").rename(small.parent / "other.safetensors")
    changed(small / "config.json", transformers_weights=name)
    with pytest.raises(InputError, match=r"model.pretrained = .*: config.json names .* not in the folder"):
        load(small)
    (small / "sub").mkdir()
    changed(small / "config.json", transformers_weights="sub/x.safetensors.index.json")
    keys = transformers.GPT2LMHeadModel(transformers.AutoConfig.from_pretrained(small)).state_dict()
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(keys, name)}
    (small / "sub" / "x.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=r"model.pretrained = .*: x.safetensors.index.json names .* not in the fol"):
        load(small)


def test_weights_are_no_link_to_elsewhere(small: Path) -> None:
    (small / "model.safetensors").rename(small.parent / "other.safetensors")
    (small / "model.safetensors").symlink_to("../other.safetensors")
    with pytest.raises(InputError, match=r"model.pretrained = .*: model.safetensors is a link to .*, which is not in"):
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


@pytest.mark.parametrize("name", [*ELSEWHERE, *LOCAL])
@pytest.mark.parametrize("file", ["README.md", ".huggingface.yaml", "\ufeffREADME.md"])
@pytest.mark.parametrize("key", ["data_files", "data_dir"])
def test_a_data_set_names_files_of_its_folder_alone(name: str, file: str, key: str, tmp_path: Path) -> None:
    (folder := tmp_path / "insects").mkdir()
    mark, file = file[: file.startswith("\ufeff")], file.lstrip("\ufeff")
    pq.write_table(pa.table({"x": [1.0, 2.0], "label": [0, 1]}), folder / "train.parquet")
    pq.write_table(pa.table({"x": [3.0, 4.0], "label": [0, 1]}), tmp_path / "b")
    value = [{"split": "train", "path": [name]}] if key == "data_files" else name
    described = json.dumps({"configs": [{"config_name": "default", key: value}]})
    (folder / file).write_text(described if file.startswith(".") else f"{mark}---\n{described}\n---\n")
    with pytest.raises(InputError, match=rf"data.dataset = .*insects': {file} names .* which is not in the folder"):
        read_hub(f"hf:{folder}", None, "label")


def test_a_link_of_a_data_set_stays_in_its_folder(tmp_path: Path) -> None:
    (folder := tmp_path / "insects").mkdir()
    pq.write_table(pa.table({"x": [1.0, 2.0], "label": [0, 1]}), tmp_path / "other.parquet")
    (folder / "train.parquet").symlink_to("../other.parquet")
    with pytest.raises(InputError, match=r"data.dataset = .*: train.parquet is a link to '.*other.parquet', which is"):
        read_hub(f"hf:{folder}", None, "label")
    (tmp_path / "other.parquet").rename(folder / "held")
    (folder / "train.parquet").unlink()
    (folder / "train.parquet").symlink_to("held")
    assert read_hub(f"hf:{folder}", None, "label")[0].num_rows == 2


def test_a_snapshot_of_the_hub_s_cache_is_read(tmp_path: Path) -> None:
    (folder := tmp_path / "snapshots" / "0").mkdir(parents=True)
    (tmp_path / "blobs").mkdir()
    pq.write_table(pa.table({"x": [1.0, 2.0], "label": [0, 1]}), tmp_path / "blobs" / "0")
    (folder / "train.parquet").symlink_to("../../blobs/0")
    assert read_hub(f"hf:{folder}", None, "label")[0].num_rows == 2


@pytest.mark.parametrize("form", ["plain", "list", "prefix"])
def test_images_are_in_the_data_set(form: str, tmp_path: Path) -> None:
    for name in ("insects", "others"):
        (tmp_path / name).mkdir()
        Image.new("L", (4, 4)).save(tmp_path / name / "a.png")
    feature: Any = datasets.Image()
    feature = datasets.List(feature) if form == "list" else feature
    for name in ("insects", "others"):
        path = f"{'file:' if form == 'prefix' else ''}{tmp_path / name / 'a.png'}"
        cell: Any = {"bytes": None, "path": path}
        table = datasets.Dataset.from_dict(
            {"picture": [[cell] if form == "list" else cell], "label": [0]},
            datasets.Features({"picture": feature, "label": datasets.Value("int64")}),
        )
        (tmp_path / "insects" / "train.parquet").unlink(missing_ok=True)
        pq.write_table(table.with_format("arrow")[:], tmp_path / "insects" / "train.parquet")
        if (name, form) in (("insects", "plain"), ("insects", "list")):
            assert read_hub(f"hf:{tmp_path / 'insects'}", None, "label")[0].num_rows == 1
            continue
        with pytest.raises(InputError, match=r"data.dataset = .* reads '.*a.png', which is not in the data set: must"):
            read_hub(f"hf:{tmp_path / 'insects'}", None, "label")


def test_a_folder_of_images_is_read(tmp_path: Path) -> None:
    for kind in ("ant", "bee"):
        (tmp_path / "insects" / "train" / kind).mkdir(parents=True)
        Image.new("L", (4, 4)).save(tmp_path / "insects" / "train" / kind / "a.png")
    table = read_hub(f"hf:{tmp_path / 'insects'}", None, "label")[0]
    assert all(each["bytes"] for each in table["image"].to_pylist()) and table.num_rows == 2


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


LAUGHS = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9 if n else ['x'])}]" for n in range(30)]


@pytest.mark.parametrize("text", ["a: &a [*a]", "\n".join(LAUGHS)], ids=["in itself", "9^29"])
def test_aliases_of_a_description_are_followed_once(text: str, tmp_path: Path) -> None:
    (tmp_path / ".huggingface.yaml").write_text(f"path: ../outside\n{text}\n")
    with pytest.raises(InputError, match=r"\.huggingface\.yaml names '\.\./outside', which is not in the folder"):
        check_data_folder("data.dataset", tmp_path)
