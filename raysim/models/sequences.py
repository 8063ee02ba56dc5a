"""Networks that read sequences: RADFed's next-character LSTM, and transformers of the library `transformers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from raysim.common.distribution import require
from raysim.common.errors import InputError
from raysim.models.keys import Count

if TYPE_CHECKING:
    from torch import nn

Setting = bool | int | float | str
"""Value of a setting of a configuration."""


def lstm(
    shape: tuple[int, ...],
    classes: int,
    *,
    vocabulary: Count = 80,
    embedding: Count = 8,
    hidden: Count = 256,
    layers: Count = 2,
) -> nn.Module:
    """Build a next-character LSTM: an embedding, two recurrent layers, a linear layer on the last state.

    819,920 parameters for 80 symbols and 80 classes.

    Args:
        shape: (length,) of a window of symbols; RADFed's windows have 80. The model takes x [n, length]: whole numbers
            in [0, vocabulary), stored as floats like all samples.
        classes: number of outputs, the logits [n, classes] of the next symbol.
        vocabulary: number of symbols.
        embedding: values in the embedding of a symbol.
        hidden: width of the recurrent layers.
        layers: number of recurrent layers.

    Raises:
        InputError: the data are not sequences. The model itself raises it for a value that is not a symbol.

    Paper: RADFed, section V; the network is LEAF's for Shakespeare (Caldas et al., 2018).

    Deviations:
        RADFed's text gives no width. Its code and LEAF's use 256.
    """
    from raysim.models.networks import NextSymbol

    if len(shape) != 1:
        raise InputError(
            f"model lstm on samples of shape {shape}: must be sequences, (length,), of whole numbers; store each as "
            'one list of fixed length, or set model.name = "cnn"'
        )
    return NextSymbol(vocabulary, embedding, hidden, layers, classes)


def transformer(
    shape: tuple[int, ...],
    classes: int,
    labels: str = "class",
    *,
    architecture: str = "",
    options: Mapping[str, Setting] = {},
    pretrained: str = "",
) -> nn.Module:
    """Build a transformer of the library `transformers` that reads tokens: a classifier, or a language model.

    Samples with a label get `AutoModelForSequenceClassification`; labels that are numbers are its outputs. A label at
    each position, as with `data.text.predict = "next-token"`, gets `AutoModelForCausalLM`. Attention is computed
    plainly ("eager"), which is deterministic on GPUs too.

    Args:
        shape: (length,) of the tokens. The model takes x [n, length]: whole numbers, -1 behind the end of a text.
        classes: number of outputs: classes or numbers [n, classes], or tokens [n, classes, length].
        labels: kind of the labels.
        architecture: type of a model with random weights, such as "gpt2" or "distilbert".
        options: settings of its configuration, such as {n_layer = 2, n_embd = 64, n_head = 2}.
        pretrained: trained model instead: a name of the Hugging Face hub, with @REVISION if wanted, or a folder.

    Raises:
        InputError: the extra is missing, both or neither of the two are given, the library refuses them, or samples are
            not tokens. The model itself raises it for a token that it does not have.

    Deviations:
        A model without a token for padding takes the end of text, or token 0. With random weights a language model has
        as many tokens as the tokenizer. The activation "gelu_new" is computed as PyTorch's one operation for the same
        function, so outputs differ from the library's by rounding.
    """
    if len(shape) != 1 or labels == "pixels":
        raise InputError(
            f"model transformer on samples of shape {shape}: must be tokens, (length,), with one label, or one at each "
            'position; set data.text.tokenizer, or set model.name = "cnn"'
        )
    if bool(architecture) == bool(pretrained):
        raise InputError(
            f"model.architecture, model.pretrained = {architecture!r}, {pretrained!r}: must be exactly one of them; "
            'set model.architecture = "gpt2"'
        )
    if options and pretrained:
        raise InputError(
            f"model.options with model.pretrained = {pretrained!r}, which has settings of its own: must be left out; "
            "remove it"
        )
    require("transformers", 'model.name = "transformer"')
    from raysim.models.language import language

    return language(architecture, options, pretrained, shape[0], classes, labels)
