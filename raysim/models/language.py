"""Networks of the library `transformers` as models of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import torch
import transformers
from torch import nn

from partitioning.common.paths import expanded
from raysim.common.errors import InputError

LONGEST = 300
"""Most characters of an error of the library in a message."""


class Language(nn.Module):
    """Network from tokens [n, length], -1 for none, to logits [n, classes] or [n, classes, length].

    Args:
        network: network of the library.
        classes: number of outputs.
        padding: token that the network sees in the place of -1; it does not attend to it.
    """

    def __init__(self, network: Any, classes: int, padding: int) -> None:
        super().__init__()
        self.network = network
        self.classes, self.padding = classes, padding
        self.tokens = int(network.get_input_embeddings().num_embeddings)

    @classmethod
    def of(cls, architecture: str, options: Mapping[str, Any], pretrained: str, classes: int, labels: str) -> Self:
        """Build the network; see `raysim.models.transformer.transformer`."""
        key, name = ("pretrained", pretrained) if pretrained else ("architecture", architecture)
        with _refused(key, name):
            speaks = labels == "sequence"
            kind = transformers.AutoModelForCausalLM if speaks else transformers.AutoModelForSequenceClassification
            if pretrained:
                folder, _, revision = pretrained.partition("@")
                path = expanded("model.pretrained", folder)
                source = {"pretrained_model_name_or_path": str(path) if path.is_dir() else folder}
                source["revision"] = revision or "main"
                config = transformers.AutoConfig.from_pretrained(**source)
            else:
                sizes = {"vocab_size": classes} if speaks else {}
                config = transformers.AutoConfig.for_model(architecture, **{**sizes, **options})
            if config.pad_token_id is None:
                end = getattr(config, "eos_token_id", None)
                config.pad_token_id = end if isinstance(end, int) and end < config.vocab_size else 0
            if not speaks:
                config.num_labels = classes
            config.use_cache = False
            # The size of a model is checked without its memory, so without its values.
            if not pretrained or torch.get_default_device().type == "meta":
                network = kind.from_config(config, attn_implementation="eager", dtype=torch.float32)
            else:
                network = kind.from_pretrained(
                    **source,
                    config=config,
                    attn_implementation="eager",
                    dtype=torch.float32,
                    ignore_mismatched_sizes=not speaks,
                )
        return cls(network, classes, int(config.pad_token_id))

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
            input_ids=tokens.masked_fill(~known, self.padding), attention_mask=known.long()
        ).logits
        return logits[..., : self.classes].movedim(-1, 1) if logits.dim() == 3 else logits


@contextmanager
def _refused(key: str, name: str) -> Iterator[None]:
    """Turn the library's errors into one line."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # the library may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST]
        raise InputError(
            f"model.{key} = {name!r} cannot be built ({reason}): must be one that transformers knows, and reads text; "
            "check the name, model.options, the network and HF_HUB_OFFLINE"
        ) from error
    finally:
        transformers.logging.set_verbosity(verbosity)
        transformers.logging.enable_progress_bar()
