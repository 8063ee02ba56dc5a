"""Recurrent networks: the next-character LSTM of RADFed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raysim.common.errors import InputError
from raysim.models.checks import Count, positive

if TYPE_CHECKING:
    from torch import nn


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
        InputError: the data are not sequences, or a size is not positive. The model itself raises it for a value that
            is not a symbol.

    Paper: RADFed, section V; the network is LEAF's for Shakespeare (Caldas et al., 2018).

    Deviations:
        RADFed's text gives no width. Its code and LEAF's use 256.
    """
    from raysim.models.next_symbol import NextSymbol

    if len(shape) != 1:
        raise InputError(
            f"model lstm on samples of shape {shape}: must be sequences, (length,), of whole numbers; store each as "
            'one list of fixed length, or set model.name = "cnn"'
        )
    return NextSymbol(
        positive("vocabulary", vocabulary),
        positive("embedding", embedding),
        positive("hidden", hidden),
        positive("layers", layers),
        classes,
    )
