"""Recurrent networks: the next-character LSTM of RADFed."""

import torch
from torch import nn

from raysim.common.errors import InputError
from raysim.models.checks import positive


def lstm(
    shape: tuple[int, ...],
    classes: int,
    *,
    vocabulary: int = 80,
    embedding: int = 8,
    hidden: int = 256,
    layers: int = 2,
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


class NextSymbol(nn.Module):
    """Network from symbols [n, length] to the logits [n, classes] of the next symbol."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, layers: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.output = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.embedding(self._symbols(x)))
        logits: torch.Tensor = self.output(states[:, -1])
        return logits

    def _symbols(self, x: torch.Tensor) -> torch.Tensor:
        # raysim reads uint8 as pixels in [0, 1], and all of them would become symbol 0. This check excludes torch.func,
        # but that would run LSTMs one by one anyway.
        symbols, count = x.long(), self.embedding.num_embeddings
        wrong = (symbols != x) | (symbols < 0) | (symbols >= count)
        if wrong.any():
            raise InputError(
                f"model lstm on the value {x[wrong][0].item():g}: must be a whole number from 0 to {count - 1}; set "
                "model.vocabulary, and store symbols as int16 or wider, because raysim reads uint8 as pixels"
            )
        return symbols
