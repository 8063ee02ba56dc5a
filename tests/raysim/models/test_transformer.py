"""Transformers by configuration, with trained weights, and with adapters."""

from pathlib import Path
from typing import Any

import pytest
import torch

from algorithms import Layout
from algorithms.training.loss import LabelKind
from raysim.common.errors import InputError
from raysim.config.read import read
from raysim.models.build import build
from tests.kit.counts import RECIPE_PARAMETERS

SMALL: dict[str, dict[str, Any]] = {
    "bert": {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64},
    "gpt2": {"n_layer": 2, "n_embd": 32, "n_head": 2},
    "llama": {
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
    },
}


T5 = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 64}


def test_the_recipe_has_as_many_parameters_as_the_reference_says() -> None:
    keys = read("language-small")["model"]
    model = build(keys.pop("name"), shape=(64,), classes=256, seed=1, labels="sequence", **keys)
    assert sum(value.numel() for value in model.parameters()) == RECIPE_PARAMETERS


def small(architecture: str, labels: LabelKind = "class", classes: int = 5, **more: Any) -> torch.nn.Module:
    options = {**SMALL[architecture], "vocab_size": 64}
    given = {"architecture": architecture, "options": options} if "pretrained" not in more else {}
    return build("transformer", shape=(12,), classes=classes, seed=1, labels=labels, **given, **more)


def tokens(seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 64, (3, 12), generator=torch.Generator().manual_seed(seed)).float()


@pytest.mark.parametrize("architecture", SMALL)
def test_a_classifier_ignores_padding(architecture: str) -> None:
    model, x = small(architecture).eval(), tokens()
    x[:, 8:] = -1
    longer = torch.nn.functional.pad(x, (0, 4), value=-1.0)
    assert model(x).shape == (3, 5)
    torch.testing.assert_close(model(x), model(longer), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("architecture", SMALL)
def test_a_language_model_sees_no_later_token(architecture: str) -> None:
    model, x = small(architecture, "sequence", 64).eval(), tokens()
    other = x.clone()
    other[:, 6:] = tokens(1)[:, 6:]
    first, second = model(x), model(other)
    assert first.shape == (3, 64, 12)
    torch.testing.assert_close(first[..., :6], second[..., :6])
    assert not torch.allclose(first[..., 6:], second[..., 6:])


@pytest.mark.parametrize("labels", ["class", "sequence"])
@pytest.mark.parametrize("architecture", SMALL)
def test_only_adapters_and_a_new_head_train(architecture: str, labels: LabelKind) -> None:
    classes = 64 if labels == "sequence" else 5
    plain, adapted = (small(architecture, labels, classes, **more) for more in ({}, {"train": "lora", "lora_rank": 2}))
    torch.testing.assert_close(adapted.eval()(tokens()), plain.eval()(tokens()))  # B starts at 0
    trained = [entry for entry in Layout.of(adapted).entries if entry.is_parameter]
    assert {entry.name for entry in trained if not entry.head} == {e.name for e in trained if ".lora_" in e.name}
    assert any(entry.head for entry in trained) == (labels == "class")
    assert all(2 in entry.shape for entry in trained if not entry.head)
    assert all(
        value.requires_grad == (".lora_" in name or "score" in name or "classifier" in name)
        for name, value in adapted.named_parameters()
    )


def test_the_approximate_gelu_is_one_operation_with_the_same_values() -> None:
    from transformers.activations import NewGELUActivation  # late, as in the product: it takes seconds

    made, x = small("gpt2", "sequence", 64).eval(), tokens()
    layers: list[Any] = [layer.mlp for layer in made.network.transformer.h]  # type: ignore[union-attr]
    fast = made(x)
    assert {type(layer.act).__name__ for layer in layers} == {"GELUTanh"}
    for layer in layers:
        layer.act = NewGELUActivation()
    torch.testing.assert_close(fast, made(x))


def test_targets_choose_layers_by_the_ends_of_their_names() -> None:
    adapted = small("gpt2", train="lora", lora_targets=("attn.c_proj",))
    names = {entry.name.partition(".lora_")[0] for entry in Layout.of(adapted).entries if ".lora_" in entry.name}
    assert names == {f"network.transformer.h.{layer}.attn.c_proj" for layer in (0, 1)}


def test_adapters_of_a_plain_model_keep_its_outputs() -> None:
    plain = build("cnn", shape=(1, 8, 8), classes=3, seed=2)
    adapted = build("cnn", shape=(1, 8, 8), classes=3, seed=2, train="lora", lora_rank=1)
    x = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(adapted(x), plain(x))
    trained = [entry.name for entry in Layout.of(adapted).entries if entry.is_parameter]
    assert trained[-2:] == ["6.weight", "6.bias"] or any("lora_A" in name for name in trained)


@pytest.mark.parametrize("init", ["default", "glorot"])
def test_adapters_are_drawn_apart_from_the_frozen_weights(init: str) -> None:
    state = build("mlp", shape=(20,), classes=3, seed=5, train="lora", init=init).state_dict()
    drawn = state["linear1.lora_A.default.weight"].flatten().double()
    parts = state["linear1.base_layer.weight"].flatten().double().unfold(0, len(drawn), 1)
    assert torch.corrcoef(torch.cat([drawn[None], parts]))[0, 1:].abs().max() < 0.5


def test_the_seed_decides_random_weights_and_adapters() -> None:
    def values(seed: int) -> list[bytes]:
        model = build(
            "transformer", shape=(4,), classes=2, seed=seed, architecture="gpt2", options=SMALL["gpt2"], train="lora"
        )
        return [each.detach().numpy().tobytes() for each in model.state_dict().values()]

    assert values(1) == values(1) != values(2)


@pytest.mark.parametrize("labels", ["class", "sequence"])
def test_trained_weights_of_a_folder(labels: LabelKind, tmp_path: Path) -> None:
    classes = 64 if labels == "sequence" else 5
    made = small("gpt2", labels, classes).eval()
    made.network.save_pretrained(tmp_path / "trained")  # type: ignore[union-attr, operator]
    loaded = small("gpt2", labels, classes, pretrained=str(tmp_path / "trained")).eval()
    torch.testing.assert_close(loaded(tokens()), made(tokens()))
    if labels == "class":  # another number of classes: a new head on the trained body
        other = small("gpt2", labels, 7, pretrained=str(tmp_path / "trained")).eval()
        assert other(tokens()).shape == (3, 7)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "must be exactly one of them"),
        ({"architecture": "gpt2", "pretrained": "gpt2"}, "must be exactly one of them"),
        ({"pretrained": "x", "options": {"n_layer": 1}}, "model.options with model.pretrained = 'x'"),
        ({"architecture": "gpt"}, "model.architecture = 'gpt' cannot be built"),
        ({"architecture": "t5", "options": T5}, "model.architecture = 't5' cannot be built"),
        ({"pretrained": "./nowhere"}, "model.pretrained = './nowhere' cannot be built"),
        (
            {"architecture": "gpt2", "options": SMALL["gpt2"], "train": "lora", "lora_targets": ("q_proj",)},
            "model.lora_targets = 'q_proj'",
        ),
        ({"architecture": "gpt2", "options": {"n_positions": 3}}, "data.text.length = 4 with a gpt2 of 3 positions"),
        ({"architecture": "gpt2", "options": {"n_layers": 1}}, "setting 'n_layers' of model.options for gpt2"),
        ({"architecture": "gpt2", "options": {"num_labels": 9}}, "setting 'num_labels' of model.options"),
        ({"architecture": "gpt2", "lora_rank": 2}, "lora_rank without adapters"),
    ],
)
def test_wrong_models_are_refused_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        build("transformer", shape=(4,), classes=2, seed=1, **given)
    assert "\n" not in str(caught.value)


def test_a_language_model_that_sees_later_tokens_is_refused() -> None:
    keys = {"architecture": "xlnet", "options": {"d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 16}}
    with pytest.raises(InputError, match="'xlnet' sees later tokens"):
        build("transformer", shape=(6,), classes=32, seed=1, labels="sequence", **keys)


@pytest.mark.parametrize("padding", [-1, 999])
def test_a_token_for_padding_is_one_of_the_tokens(padding: int) -> None:
    options = {**SMALL["gpt2"], "vocab_size": 64, "pad_token_id": padding}
    model = build("transformer", shape=(4,), classes=2, seed=1, architecture="gpt2", options=options)
    assert torch.isfinite(model(torch.tensor([[3.0, 4.0, -1.0, -1.0]]))).all()


def test_samples_must_be_tokens() -> None:
    with pytest.raises(InputError, match="must be tokens"):
        build("transformer", shape=(1, 8, 8), classes=2, seed=1, architecture="gpt2")
    model = small("gpt2")
    with pytest.raises(InputError, match="the value 64: must be a token from 0 to 63"):
        model(torch.full((1, 4), 64.0))
