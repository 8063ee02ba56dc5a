"""Networks of the library `transformers` as models of tokens."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from torch import nn

from algorithms.core.head import mark_head
from partitioning.common.paths import expanded
from raysim.common.errors import InputError, unknown
from raysim.common.hub import NO_CODE, check_model_folder, quiet_hub, reason_of


class Language(nn.Module):
    """Network from tokens [n, length], -1 for none, to logits [n, classes] or [n, classes, length].

    Args:
        network: network of the library.
        classes: number of outputs.
    """

    def __init__(self, network: Any, classes: int) -> None:
        super().__init__()
        self.network = network
        self.classes = classes
        self.tokens = int(network.get_input_embeddings().num_embeddings)
        mark_head(self, _head(network))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.long()
        wrong = (tokens != x) | (tokens < -1) | (tokens >= self.tokens)
        if wrong.any():
            raise InputError(
                f"model transformer on the value {x[wrong][0].item():g}: must be a token from 0 to {self.tokens - 1}, "
                "or -1 for none; take the model's own tokenizer, or set vocab_size in model.options"
            )
        known = tokens >= 0
        logits: torch.Tensor = self.network(
            input_ids=tokens.masked_fill(~known, self.network.config.pad_token_id), attention_mask=known.long()
        ).logits
        return logits[..., : self.classes].movedim(-1, 1) if logits.dim() == 3 else logits


SET = ("num_labels", "is_decoder", "use_cache", "return_dict")
"""Settings that raysim makes itself."""


def language(
    architecture: str, options: Mapping[str, Any], pretrained: str, length: int, classes: int, labels: str
) -> Language:
    """Build a network; see `raysim.models.sequences.transformer`."""
    speaks = labels == "sequence"
    kind = transformers.AutoModelForCausalLM if speaks else transformers.AutoModelForSequenceClassification
    # The size of a model is checked on the device "meta", without values.
    has_values = torch.get_default_device().type != "meta"
    with _refused(*(("pretrained", pretrained) if pretrained else ("architecture", architecture))):
        if pretrained:
            name, _, revision = pretrained.partition("@")
            path = expanded("model.pretrained", name)
            if path.is_dir():
                check_model_folder("model.pretrained", path)
            source = {"pretrained_model_name_or_path": str(path) if path.is_dir() else name, **NO_CODE}
            source["revision"] = revision or "main"
            config = transformers.AutoConfig.from_pretrained(**source)
        else:
            usual = {"vocab_size": classes} if speaks else {}
            _check_options(transformers.AutoConfig.for_model(architecture), options)
            config = transformers.AutoConfig.for_model(architecture, **{**usual, **options})
        _complete(config, length, None if speaks else classes)
        plain = {"attn_implementation": "eager", "dtype": torch.float32}
        if pretrained and has_values:
            # Other formats than safetensors are pickles.
            stored = {**plain, "use_safetensors": True, "ignore_mismatched_sizes": not speaks}
            network = kind.from_pretrained(**source, **stored, config=config)
        else:
            network = kind.from_config(config, **plain, **NO_CODE)
        made = Language(network, classes)
        if has_values:
            _try(made.eval(), length, speaks)
    return made.train()


def _check_options(usual: Any, options: Mapping[str, Any]) -> None:
    """Refuse settings that a configuration does not have, which the library would ignore."""
    known = {*usual.to_dict(), *usual.attribute_map} - set(SET)
    for key in options:
        if key not in known:
            raise unknown(f"setting {key!r} of model.options for {usual.model_type}", key, sorted(known))


@torch.no_grad()
def _try(made: Language, length: int, speaks: bool) -> None:
    """Pass tokens of a sample's length; refuse a language model that sees the tokens that it predicts."""
    x = torch.zeros(2, length)
    x[1, -1:] = min(1, made.tokens - 1)
    first, second = made(x)
    if speaks and length > 1 and not torch.equal(first[:, :-1], second[:, :-1]):
        raise InputError(
            f"model transformer of the type {made.network.config.model_type!r} sees later tokens: must not, because it "
            'predicts them; set model.architecture = "gpt2"'
        )
    x[:, length // 2 :] = -1
    made(x)


def _complete(config: Any, length: int, outputs: int | None) -> None:
    """Set a token for padding and the number of outputs; None for a language model, which has its tokens."""
    most = getattr(config, "max_position_embeddings", None)
    if isinstance(most, int) and 0 < most < length:
        raise InputError(
            f"data.text.length = {length} with a {config.model_type} of {most} positions: must be at most as many; set "
            f"data.text.length = {most}, or more positions in model.options"
        )
    given, end = config.pad_token_id, getattr(config, "eos_token_id", None)
    if given is None or not 0 <= given < config.vocab_size:
        config.pad_token_id = end if isinstance(end, int) and 0 <= end < config.vocab_size else 0
    if outputs is not None:
        config.num_labels = outputs
    elif hasattr(config, "is_decoder"):
        config.is_decoder = True  # otherwise BERT would see the token that it predicts
    config.use_cache = False
    for key in ("activation_function", "hidden_act"):
        if getattr(config, key, None) == "gelu_new":
            setattr(config, key, "gelu_pytorch_tanh")  # the same function, as one operation in place of eight


def _head(network: Any) -> list[str]:
    """Return the layers beside the network's body, such as "classifier" or "lm_head"."""
    children = network.named_children()
    return [f"network.{n}" for n, layer in children if n != network.base_model_prefix and list(layer.parameters())]


@contextmanager
def _refused(key: str, name: str) -> Iterator[None]:
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        with quiet_hub():
            yield
    except InputError:
        raise
    except Exception as error:  # the library may raise anything
        raise InputError(
            f"model.{key} = {name!r} cannot be built ({reason_of(error)}): must be one that transformers knows, and "
            "reads text; check the name, model.options, the network and HF_HUB_OFFLINE"
        ) from error
    finally:
        transformers.logging.set_verbosity(verbosity)
        transformers.logging.enable_progress_bar()
